"""The `host` image: complete enough to work, and nothing of the machine's in it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import HostError
from agentkernel.images import host
from agentkernel.images.host import SUDO, resolve_host
from agentkernel.images.model import IdView, RootFilesystem
from agentkernel.images.view import View

from .fake_files import MARKER, contents, link, program, put

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0")
SOURCE = Path(host.__file__).resolve().parents[2]


def resolve(machine: Path, cache: Path, ids: IdView, **more: Any) -> RootFilesystem:
    more.setdefault("environment", {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/alice"})
    return resolve_host(cache, ids, machine=machine, **more)


def base_of(image: RootFilesystem) -> Path:
    assert image.stacks[0].target == "/"
    return Path(image.stacks[0].lowers[0])


def view_of(image: RootFilesystem) -> View:
    return View([(stack.target, stack.lowers) for stack in image.stacks])


def test_no_secret_of_the_machine_is_in_any_layer(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    resolve(machine, tmp_path / "cache", ids)
    layers = tmp_path / "cache" / "layers"
    leaked = [name for name, data in contents(layers).items() if MARKER.encode() in data]
    assert leaked == []


def test_what_programs_need_is_there(machine: Path, tmp_path: Path, ids: IdView) -> None:
    image = resolve(machine, tmp_path / "cache", ids)
    view = view_of(image)
    for path in (
        "/etc/os-release",
        "/etc/alternatives/java",
        "/etc/ld.so.cache",
        "/etc/services",
        "/etc/ssl/openssl.cnf",
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/ssl/certs/abcd.0",
        "/etc/apt/keyrings/vendor.gpg",
        "/etc/java-17-openjdk/security/java.security",
        "/etc/python3.11/sitecustomize.py",
        "/bin/bash",
        "/home/user",
        "/var/tmp",
    ):
        assert view.resolve(path) is not None, path
    base = base_of(image)
    assert (base / "etc/localtime").read_text() == "public-zone"
    assert not (base / "etc/localtime").is_symlink()
    assert os.readlink(base / "etc/mtab") == "/proc/self/mounts"
    assert os.readlink(base / "bin") == "usr/bin"


def test_every_link_in_etc_leads_somewhere(machine: Path, tmp_path: Path, ids: IdView) -> None:
    image = resolve(machine, tmp_path / "cache", ids)
    view = view_of(image)
    links = [path for path in (base_of(image) / "etc").rglob("*") if path.is_symlink()]
    inside = ["/" + str(path.relative_to(base_of(image))) for path in links]
    dead = [path for path in inside if view.resolve(path) is None and path != "/etc/mtab"]
    assert dead == []
    assert "/etc/fonts" not in inside
    assert "/etc/ssl/certs/evil.pem" not in inside


def test_fresh_files_name_no_account_of_the_machine(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    base = base_of(resolve(machine, tmp_path / "cache", ids))
    names = [line.split(":")[0] for line in (base / "etc/passwd").read_text().splitlines()]
    assert names[0] == "root"
    assert names[-1] == "user"
    assert "user:x:1000:1000::/home/user:/bin/bash\n" in (base / "etc/passwd").read_text()
    shadow = (base / "etc/shadow").read_text().splitlines()
    assert [line.split(":")[0] for line in shadow] == names
    assert {line.split(":")[1] for line in shadow} == {"*"}
    assert (base / "etc/hostname").read_text() == "sandbox\n"
    assert (base / "etc/machine-id").read_text() == ""
    assert "hosts: files dns\n" in (base / "etc/nsswitch.conf").read_text()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_modes_do_not_depend_on_the_umask(
    machine: Path, tmp_path: Path, ids: IdView, umask: int
) -> None:
    os.umask(umask)
    base = base_of(resolve(machine, tmp_path / "cache", ids))
    expected = {
        "": 0o755,
        "tmp": 0o1777,
        "var/tmp": 0o1777,
        "root": 0o700,
        "home/user": 0o755,
        "etc": 0o755,
        "etc/ssl/certs": 0o755,
        "etc/passwd": 0o644,
        "etc/shadow": 0o600,
    }
    modes = {path: stat.S_IMODE((base / path).stat().st_mode) for path in expected}
    assert modes == expected
    assert stat.S_IMODE((tmp_path / "cache/layers").stat().st_mode) == 0o700


def test_a_normal_user_gets_a_skeleton_above_the_machine(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    image = resolve(machine, tmp_path / "cache", ids)
    (usr,) = image.stacks[1:]
    assert usr.target == "/usr"
    extras, skeleton, own = map(Path, usr.lowers)
    assert own == machine / "usr"
    assert (skeleton / "local/bin").is_dir()
    assert contents(skeleton) == {}
    assert sorted(contents(extras)) == ["bin/sudo", "local/bin/sudo"]


@needs_root
def test_root_gets_no_skeleton_but_covers_for_private_files(machine: Path, tmp_path: Path) -> None:
    put(machine, "usr/local/etc/app/token", MARKER, 0o600)
    put(machine, "usr/local/vault/deep/key", MARKER)
    (machine / "usr/local/vault").chmod(0o700)
    put(machine, "usr/bin/helper", mode=0o711)
    image = resolve(machine, tmp_path / "cache", IdView("range", 0, 0))
    private = Path(image.stacks[1].lowers[1])
    covered = {str(path.relative_to(private)) for path in private.rglob("*") if not path.is_dir()}
    assert covered == {"local/etc/app/token", "local/vault"}
    for path in covered:
        info = (private / path).lstat()
        assert stat.S_ISCHR(info.st_mode)
        assert info.st_rdev == 0
    home = base_of(image) / "home/user"
    assert (home.stat().st_uid, home.stat().st_gid) == (1000, 1000)


def test_unmerged_machines_get_a_stack_for_each_directory(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    (machine / "bin").unlink()
    program(machine, "bin/bash")
    program(machine, "lib64/ld.so")
    image = resolve(machine, tmp_path / "cache", ids)
    assert [stack.target for stack in image.stacks] == ["/", "/usr", "/bin", "/lib64"]
    assert (base_of(image) / "bin").is_dir()
    assert not (base_of(image) / "bin").is_symlink()
    assert os.readlink(base_of(image) / "lib") == "usr/lib"


def test_a_filesystem_below_usr_gets_its_own_stack(
    machine: Path, tmp_path: Path, ids: IdView, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(machine, "usr/lib/driver.so")
    mounts = ("/", "/usr", "/usr/local", "/usr/lib/driver.so", "/var")
    lines = [f"1 1 8:1 / {machine}{mount} rw - ext4 /dev/x rw" for mount in mounts]
    table = put(tmp_path, "mountinfo", "\n".join(lines))
    monkeypatch.setattr(host, "MOUNTINFO", str(table))
    image = resolve(machine, tmp_path / "cache", ids)
    assert [stack.target for stack in image.stacks] == ["/", "/usr", "/usr/local"]
    assert image.stacks[2].lowers[-1] == str(machine / "usr/local")
    assert any("/usr/lib/driver.so" in note for note in image.notes)


def test_mount_points_are_read_as_the_kernel_writes_them(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "usr/é b\\c").mkdir()
    (machine / "usr/a\rb").mkdir()
    points = (r"/usr/é\040b\134c", r"/usr/odd\\", r"/usr/\400", "/usr/a\rb")
    lines = [f"1 1 8:1 / {machine}{point} rw - ext4 /dev/x rw" for point in points]
    monkeypatch.setattr(host, "MOUNTINFO", str(put(tmp_path, "mountinfo", "\n".join(lines))))
    assert host._mounts_below(str(machine), ["usr"], []) == ["/usr/a\rb", "/usr/é b\\c"]


def test_a_link_out_of_the_machine_is_no_system_directory(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    link(machine, "lib64", "/home/alice")
    base = base_of(resolve(machine, tmp_path / "cache", ids))
    assert not os.path.lexists(base / "lib64")


def test_no_usr_is_a_typed_error(tmp_path: Path, ids: IdView) -> None:
    with pytest.raises(HostError, match="no /usr"):
        resolve(tmp_path, tmp_path / "cache", ids)


def test_layers_are_reused_until_the_machine_changes(
    machine: Path, tmp_path: Path, ids: IdView
) -> None:
    said: list[str] = []
    first = resolve(machine, tmp_path / "cache", ids, progress=said.append)
    assert len(said) == 2
    put(machine, "etc/unrelated", "x")
    assert resolve(machine, tmp_path / "cache", ids, progress=said.append) == first
    assert len(said) == 2
    put(machine, "etc/ld.so.cache", "newer")
    again = resolve(machine, tmp_path / "cache", ids)
    assert base_of(again) != base_of(first)
    assert (base_of(again) / "etc/ld.so.cache").read_text() == "newer"
    assert again.stacks[1:] == first.stacks[1:]


def test_environment_has_nothing_of_the_host(machine: Path, tmp_path: Path) -> None:
    outside = {"PATH": "/bin:.::relative:/usr/bin:/bin", "HOME": "/home/alice", "TOKEN": MARKER}
    outside |= {"LANG": "xx_XX", "USER": "alice", "JAVA_HOME": "/elsewhere"}
    image = resolve(machine, tmp_path / "cache", IdView("single", 1000, 5), environment=outside)
    assert image.environment == {
        "PATH": "/bin:/usr/bin:/usr/local/bin:/usr/sbin:/sbin:/home/user/.local/bin",
        "HOME": "/home/user",
        "USER": "user",
        "LOGNAME": "user",
        "LANG": "C.UTF-8",
    }


def test_user_can_pass_through_to_the_toolchains_of_root(
    machine: Path, tmp_path: Path, ids: IdView, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkernel.images import toolchains
    from agentkernel.images.model import Tree

    found = toolchains.Found(trees=[Tree("/root/.pyenv", "pyenv")])
    monkeypatch.setattr(toolchains, "find", lambda *_, **__: found)
    image = resolve(machine, tmp_path / "cache", IdView("single", 1000, ids.host_uid))
    assert stat.S_IMODE((base_of(image) / "root").stat().st_mode) == 0o711
    image = resolve(machine, tmp_path / "cache", ids)
    assert stat.S_IMODE((base_of(image) / "root").stat().st_mode) == 0o700


# --- sudo


def run_sudo(tmp_path: Path, *args: str, prefix: tuple[str, ...] = ()) -> Any:
    script = put(tmp_path, "sudo", SUDO, 0o755)
    tmp_path.chmod(0o755)
    return subprocess.run(
        [*prefix, "sh", str(script), *args], capture_output=True, text=True, timeout=20, check=False
    )


@needs_root
@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["echo", "-n", "hi"], "hi"),
        (["-E", "-n", "-H", "echo", "hi"], "hi"),
        (["-u", "root", "--", "echo", "hi"], "hi"),
        (["-uroot", "echo", "hi"], "hi"),
        (["--user=root", "A=1 2", "sh", "-c", 'echo "$A"'], "1 2"),
        (["-s", "echo", "hi"], "hi"),
        (["-v"], ""),
        (["-u", "nobody", "id", "-un"], "nobody"),
    ],
)
def test_sudo_as_root_runs_the_command(tmp_path: Path, args: list[str], output: str) -> None:
    result = run_sudo(tmp_path, *args)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, output, "")


def test_sudo_as_another_user_says_what_to_do() -> None:
    prefix: tuple[str, ...] = ()
    if os.getuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv to become another user")
        prefix = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    result = subprocess.run(
        [*prefix, "sh", "-c", SUDO, "sudo", "id"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert "no_new_privs" in result.stderr
    assert "--user root" in result.stderr


# --- this machine


@pytest.fixture(scope="module")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def real(real_cache: Path) -> RootFilesystem:
    kind = "range" if os.getuid() == 0 else "single"
    return resolve_host(real_cache, IdView(kind, 0, os.getuid()))  # type: ignore[arg-type]


def test_this_machine_is_not_named(real: RootFilesystem) -> None:
    data = contents(base_of(real))
    ours = {line.split(":")[0] for line in data["etc/passwd"].decode().splitlines()}
    people = {entry.pw_name for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 60000}
    assert ours & people <= {"user"}
    places = ("/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/ssh/ssh_host_rsa_key.pub")
    secrets = [Path(path).read_bytes().strip() for path in places if os.access(path, os.R_OK)]
    secrets = [secret for secret in secrets if len(secret) > 5]
    name = socket.gethostname()
    if len(name) > 5 and name not in ("localhost", "sandbox", "debian", "ubuntu", "fedora"):
        secrets.append(name.encode())
    patterns = [
        re.compile(rb"(?<![\w-])" + re.escape(secret) + rb"(?![\w-])") for secret in secrets
    ]
    found = {path for path, text in data.items() for pattern in patterns if pattern.search(text)}
    assert found == set()


# Links that are dead inside on purpose: to keys.
DEAD_ON_PURPOSE = ("/etc/ssl/private",)


def test_no_link_of_usr_is_dead_inside(real: RootFilesystem) -> None:
    view = view_of(real)
    dead = []
    for folder, folders, files in os.walk("/usr"):
        for name in folders + files:
            path = os.path.join(folder, name)
            if not os.path.islink(path) or view.resolve(path) is not None:
                continue
            end = os.path.realpath(path)
            wanted = end.startswith(("/etc/", "/usr/")) and not end.startswith(DEAD_ON_PURPOSE)
            if os.path.exists(path) and wanted:
                dead.append(f"{path} -> {end}")
    assert dead == []


def test_a_cached_image_resolves_in_milliseconds(real: RootFilesystem, real_cache: Path) -> None:
    kind = "range" if os.getuid() == 0 else "single"
    times = []
    for _ in range(50):
        start = time.perf_counter()
        again = resolve_host(real_cache, IdView(kind, 0, os.getuid()))  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    assert again == real
    assert min(times) < 0.003, f"{min(times) * 1000:.2f} ms"


@needs_root
def test_an_unprivileged_user_can_build_it() -> None:
    # pytest's own temporary directories are closed to other accounts.
    with tempfile.TemporaryDirectory(prefix="agentkernel-test-") as directory:
        os.chmod(directory, 0o755)
        build_as_nobody(Path(directory))


def build_as_nobody(tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    setpriv = shutil.which("setpriv")
    if setpriv is None or not os.access(python, os.X_OK):
        pytest.skip("needs setpriv and a python3 that every account can run")
    copy = tmp_path / "lib"
    shutil.copytree(SOURCE / "agentkernel", copy / "agentkernel")
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 65534, 65534)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "if sys.version_info < (3, 11): print('too old'); sys.exit()\n"
        "from agentkernel.images.host import resolve_host\n"
        "from agentkernel.images.model import IdView\n"
        "image = resolve_host(sys.argv[2], IdView('single', 0, 65534))\n"
        "print(*[lower for stack in image.stacks for lower in stack.lowers], sep='\\n')\n"
    )
    as_nobody = [setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    result = subprocess.run(
        [*as_nobody, python, "-c", code, str(copy), str(cache)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        cwd="/",
    )
    if result.stdout.strip() == "too old":
        pytest.skip(f"{python} is older than 3.11")
    lowers = result.stdout.split()
    assert "/usr" in lowers
    generated = [Path(path) for path in lowers if path.startswith(str(cache))]
    assert len(generated) >= 3
    assert {path.stat().st_uid for path in generated} == {65534}
