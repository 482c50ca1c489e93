"""The machine's disk: Debian with systemd and what our tests need, made once and kept.

    ~/.cache/agentkernel/vm/<suite>-<key>/   root.ext4  kernel  initramfs  about.json

The key is made of everything that goes in; a change of it makes a new image. The three newest of a
suite are kept: several worktrees may use one cache.
Making one needs root and mmdebstrap; using one needs neither.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import initramfs

HERE = Path(__file__).resolve().parent
CLONE = HERE.parents[1]
# Each suite that was tried, with the version of its python3.
SUITES = {"bookworm": "3.11"}
PACKAGES = (
    "linux-image-cloud-amd64", "busybox-static", "systemd", "systemd-sysv", "udev", "dbus",
    "libpam-systemd", "dbus-user-session", "python3", "uidmap", "e2fsprogs", "kmod", "iproute2",
    "procps", "apparmor",
)  # fmt: skip
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
DISK_BYTES = 8 << 30
KEPT_IMAGES = 3
# Nothing that these do is wanted in a machine without a network that lives for minutes.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "getty@tty1.service", "serial-getty@ttyS0.service",
    "systemd-tmpfiles-clean.timer", "systemd-networkd.service", "systemd-timesyncd.service",
    "systemd-journal-flush.service", "systemd-update-utmp.service",
    "apparmor.service", "modprobe@drm.service", "modprobe@dm_mod.service",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
)  # fmt: skip
AGENT = "usr/local/lib/agentkernel-vm"
UNIT = f"""[Unit]
Description=Carries out commands from outside
After=dbus.service systemd-logind.service systemd-user-sessions.service

[Service]
ExecStart=/usr/bin/python3 -I /{AGENT}/start.py
Restart=no
# What a command leaves behind is looked for by the tests, not ended by systemd.
KillMode=process

[Install]
WantedBy=multi-user.target
"""
START = f"""import sys
sys.path.insert(0, "/{AGENT}")
from virtual.guest import agent
agent.main()
"""
INSIDE = ("__init__.py", "frames.py", "guest/agent.py")
FSTAB = "/dev/vda / ext4 noatime 0 0\n/dev/vdb /srv/agentkernel ext4 noatime,nofail 0 0\n"
USERS = {"tester": 1000, "delegated": 1001}


class ImageProblem(Exception):
    """The image can't be made; the text says why and what to do."""


@dataclass(frozen=True)
class Image:
    """What QEMU needs of it."""

    suite: str
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.folder / "kernel"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs"


def cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "agentkernel/vm"


def requirements() -> list[str]:
    with (CLONE / "pyproject.toml").open("rb") as handle:
        settings = tomllib.load(handle)
    # What the group includes is for tests that are not in the agreed set.
    tests = [name for name in settings["dependency-groups"]["test"] if isinstance(name, str)]
    return [*settings["project"]["dependencies"], *tests]


def key(suite: str) -> str:
    """Of everything that shapes the image, except the day's state of the archives."""
    digest = hashlib.sha256(json.dumps([suite, PACKAGES, requirements()]).encode())
    for name in ("image.py", "initramfs.py", *INSIDE):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def get(suite: str, *, rebuild: bool = False) -> Image:
    """The image, made first if need be."""
    cache = cache_folder()
    image = Image(suite, cache / f"{suite}-{key(suite)}")
    if image.folder.is_dir() and not rebuild:
        return image
    if os.geteuid() != 0:
        raise ImageProblem("making the image needs root: run `sudo tools/vm build` once")
    for tool in ("mmdebstrap", "mke2fs"):
        if shutil.which(tool) is None:
            raise ImageProblem(f"{tool} is missing: install it (mmdebstrap, e2fsprogs)")
    cache.mkdir(parents=True, exist_ok=True)
    print(f"vm: making {image.folder.name} (some minutes, once)", file=sys.stderr, flush=True)
    with _locked(cache), tempfile.TemporaryDirectory(prefix="making-", dir=cache) as scratch:
        if image.folder.is_dir() and not rebuild:
            return image  # made by somebody else meanwhile
        for left in cache.glob("making-*"):
            if left != Path(scratch):
                shutil.rmtree(left)  # of one that was killed: we hold the lock
        fresh = Path(scratch) / "image"
        fresh.mkdir()
        _make(suite, Path(scratch) / "root", fresh)
        if image.folder.is_dir():
            shutil.rmtree(image.folder)
        fresh.rename(image.folder)
        by_age = sorted(cache.glob(f"{suite}-*"), key=lambda path: path.stat().st_mtime)
        for old in by_age[:-KEPT_IMAGES]:
            shutil.rmtree(old)
    return image


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(suite: str, root: Path, out: Path) -> None:
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    _run([*command, suite, str(root), *_mirrors(suite)])
    _install_python_packages(suite, root)
    _furnish(root)
    release = next((root / "lib/modules").iterdir()).name
    shutil.copyfile(root / f"boot/vmlinuz-{release}", out / "kernel")
    (out / "initramfs").write_bytes(initramfs.build(root, release))
    for path in (root / "boot").iterdir():
        path.unlink()
    disk = out / "root.ext4"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    options = "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0"
    _run(["mke2fs", "-q", "-t", "ext4", "-E", options, "-d", str(root), str(disk)])
    (out / "about.json").write_text(json.dumps({"suite": suite, "kernel": release}))


def _mirrors(suite: str) -> list[str]:
    """The machine's own sources if they have the suite; mmdebstrap's default otherwise."""
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    return [
        str(path)
        for path in files
        if path.suffix in (".list", ".sources")
        and path.is_file()
        and f" {suite}" in path.read_text()
        and "/debian" in path.read_text()
    ]


def _install_python_packages(suite: str, root: Path) -> None:
    """Wheels for the machine's Python, unpacked from here: inside there is no network."""
    version = SUITES[suite]
    target = root / f"usr/local/lib/python{version}/dist-packages"
    command = [*_pip(), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    _run([*command, "--target", str(target), *requirements()])
    _run(["chroot", str(root), "python3", "-m", "compileall", "-q", f"/{target.relative_to(root)}"])


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    raise ImageProblem("this Python has no pip: run `.venv/bin/python tools/vm` after ./test")


def _furnish(root: Path) -> None:
    """Users, the agent that carries out commands, and no more services than needed."""
    (root / "etc/fstab").write_text(FSTAB)
    (root / "etc/hostname").write_text("agentkernel-vm\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost agentkernel-vm\n")
    (root / "etc/machine-id").write_text(hashlib.sha256(b"agentkernel-vm").hexdigest()[:32] + "\n")
    (root / "srv/agentkernel").mkdir()
    for name, uid in USERS.items():
        _run(["chroot", str(root), "useradd", "-m", "-u", str(uid), "-s", "/bin/bash", name])
    # As adduser gives them: 65,536 ids each.
    for file in ("etc/subuid", "etc/subgid"):
        lines = [f"{name}:{(uid - 998) * 100_000}:65536\n" for name, uid in USERS.items()]
        (root / file).write_text("".join(lines))
    # Lingering: the user's manager runs from the start, as for anybody who is logged in.
    linger = root / "var/lib/systemd/linger"
    linger.mkdir(parents=True, exist_ok=True)
    (linger / "delegated").touch()
    agent = root / AGENT
    (agent / "virtual/guest").mkdir(parents=True)
    for name in INSIDE:
        shutil.copyfile(HERE / name, agent / "virtual" / name)
    (agent / "start.py").write_text(START)
    units = root / "etc/systemd/system"
    (units / "agentkernel-vm.service").write_text(UNIT)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "agentkernel-vm.service").symlink_to("/etc/systemd/system/agentkernel-vm.service")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=1800, check=False
    )
    if done.returncode != 0:
        raise ImageProblem(f"{command[0]} failed with {done.returncode}: see its words above")
