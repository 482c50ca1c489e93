"""Which directories outside /usr make PATH work, and what of them stays outside."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from agentkernel.images.toolchains import Found, find

from .fake_files import MARKER, link, program, put

MACHINE = ("/usr", "/bin", "/sbin", "/lib")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the usual secrets in it."""
    root = tmp_path / "home/alice"
    for name in (".ssh/id_rsa", ".aws/credentials", ".gnupg/key", ".netrc", ".npmrc"):
        put(root, name, MARKER, 0o600)
    put(root, ".config/gh/hosts.yml", MARKER)
    put(root, "documents/diary", MARKER)
    return root


def look(home: Path, *entries: str | Path, guest_home: str = "/root", **variables: str) -> Found:
    path = ":".join(str(entry) for entry in entries)
    return find(path, str(home), MACHINE, environment=variables, guest_home=guest_home)


def reads(found: Found, path: str | Path) -> bool:
    """Whether a guest could read `path` through the trees, links resolved as the host does."""
    real = os.path.realpath(path)
    for tree in found.trees:
        root = os.path.realpath(tree.path)
        if real == root or real.startswith(root + "/"):
            hidden = [os.path.realpath(item) for item in tree.hidden]
            if not any(real == item or real.startswith(item + "/") for item in hidden):
                return True
    return False


def assert_no_marker(found: Found) -> None:
    for tree in found.trees:
        for folder, _, names in os.walk(tree.path):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and MARKER in Path(path).read_text(errors="replace"):
                    assert not reads(found, path), path


def shown(found: Found, home: Path) -> list[str]:
    return sorted(os.path.relpath(tree.path, home) for tree in found.trees)


def test_machine_entries_keep_their_order_and_need_no_trees(home: Path) -> None:
    found = look(home, "/usr/bin", "/bin", "/usr/bin", "relative", "", "/usr/nowhere", "/usr/sbin")
    assert found.path == ["/usr/bin", "/bin", "/usr/sbin"]
    assert found.trees == []
    assert found.notes == []


def test_order_is_kept_across_kinds(home: Path) -> None:
    program(home, ".cargo/bin/cargo")
    program(home, ".pyenv/shims/python3")
    entries = [str(home / ".pyenv/shims"), "/usr/bin", str(home / ".cargo/bin"), "/bin"]
    found = look(home, *entries)
    assert found.path == entries


def test_toolchains_can_be_turned_off(home: Path) -> None:
    program(home, ".pyenv/shims/python3")
    path = f"{home}/.pyenv/shims:/usr/bin"
    found = find(path, str(home), MACHINE, environment={"PYENV_VERSION": "3"}, toolchains=False)
    assert (found.path, found.trees, found.environment) == (["/usr/bin"], [], {})


# --- known layouts: PATH entry, what is shown, secrets beside it

LAYOUTS = {
    "pyenv": (".pyenv/shims", [".pyenv"], [".pyenv/.git/config", ".pyenv/versions/3.1/pip.conf"]),
    "rbenv": (".rbenv/shims", [".rbenv"], [".rbenv/.git/config"]),
    "nvm": (
        ".nvm/versions/node/v20/bin",
        [".nvm/versions/node/v20"],
        [".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc", ".nvm/alias/secret"],
    ),
    "nvm-xdg": (
        ".config/nvm/versions/node/v20/bin",
        [".config/nvm/versions/node/v20"],
        [".config/nvm/versions/node/v20/etc/npmrc"],
    ),
    "fnm": (
        ".local/share/fnm/node-versions/v20/installation/bin",
        [".local/share/fnm/node-versions/v20/installation"],
        [".local/share/fnm/node-versions/v20/installation/etc/npmrc"],
    ),
    "volta": (".volta/bin", [".volta"], [".volta/tools/image/node/20/etc/npmrc"]),
    "asdf": (".asdf/shims", [".asdf"], [".asdf/.git/config", ".asdf/plugins/x/.git/config"]),
    "mise": (
        ".local/share/mise/installs/node/20/bin",
        [".local/share/mise"],
        [".local/share/mise/installs/node/20/etc/npmrc", ".config/mise/config.toml"],
    ),
    "cargo": (
        ".cargo/bin",
        [".cargo/bin"],
        [".cargo/credentials.toml", ".cargo/config.toml", ".cargo/registry/x"],
    ),
    "go": ("go/bin", ["go/bin"], ["go/pkg/mod/private/code.go"]),
    "deno": (".deno/bin", [".deno/bin"], [".deno/.env"]),
    "bun": (".bun/bin", [".bun/bin"], [".bun/install/cache/x"]),
    "pnpm": (".local/share/pnpm", [".local/share/pnpm"], [".local/share/pnpm/store/x"]),
    "local": (".local/bin", [".local/bin"], [".local/share/keyrings/x", ".local/bin/.env"]),
    "sdkman": (
        ".sdkman/candidates/java/17/bin",
        [".sdkman/candidates/java/17"],
        [".sdkman/etc/config", ".sdkman/candidates/java/11/secret"],
    ),
    "brew": (".linuxbrew/bin", [".linuxbrew"], [".linuxbrew/var/db/x", ".linuxbrew/.git/config"]),
    "conda": (
        "miniconda3/bin",
        ["miniconda3"],
        ["miniconda3/.condarc", "miniconda3/pkgs/cache/x", "miniconda3/envs/e/.condarc"],
    ),
    "venv": ("proj/.venv/bin", ["proj/.venv"], ["proj/.venv/pip.conf", "proj/.env", "proj/app.py"]),
    "prefix": ("tools/node-20/bin", ["tools/node-20"], ["tools/node-20/etc/npmrc", "tools/x"]),
    "dot-directory": (".fly/bin", [".fly/bin"], [".fly/config.yml"]),
    "data": ("work/bin", ["work/bin"], ["work/customers.csv"]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_smallest_part_is_shown_without_credentials(home: Path, name: str) -> None:
    entry, trees, secrets = LAYOUTS[name]
    program(home, f"{entry}/tool")
    for secret in secrets:
        put(home, secret, MARKER)
    if name == "conda":
        (home / "miniconda3/conda-meta").mkdir()
    if name == "venv":
        put(home, "proj/.venv/pyvenv.cfg", "home = /usr/bin\n")
        put(home, "proj/.git/config", MARKER)
    if name == "prefix":
        (home / "tools/node-20/lib").mkdir()
    found = look(home, home / entry)
    assert found.path == [str(home / entry)]
    assert shown(found, home) == trees
    assert reads(found, home / entry / "tool")
    assert_no_marker(found)
    for secret in secrets:
        assert not reads(found, home / secret), secret
    assert all(tree.reason for tree in found.trees)


def test_rustup_comes_with_cargo(home: Path) -> None:
    program(home, ".cargo/bin/rustup")
    link(home, ".cargo/bin/cargo", "rustup")
    put(home, ".rustup/settings.toml")
    found = look(home, home / ".cargo/bin")
    assert shown(found, home) == [".cargo/bin", ".rustup"]
    assert found.environment == {"RUSTUP_HOME": str(home / ".rustup")}


def test_installers_of_a_root_with_the_same_home_write_elsewhere(home: Path) -> None:
    program(home, ".cargo/bin/cargo")
    program(home, "go/bin/tool")
    program(home, ".local/bin/tool")
    found = look(home, home / ".cargo/bin", home / "go/bin", home / ".local/bin")
    assert found.environment == {}


def test_relocated_roots_are_found_by_their_variables(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "data"
    program(elsewhere, "pyenv/shims/python3")
    put(elsewhere, "secret", MARKER)
    found = look(
        home, elsewhere / "pyenv/shims", PYENV_ROOT=str(elsewhere / "pyenv"), PYENV_VERSION="3.12.1"
    )
    if str(tmp_path).startswith("/tmp/"):
        # /tmp is no place for toolchains, whatever a variable says.
        assert found.trees == []
        assert len(found.notes) == 1
    else:
        assert [tree.path for tree in found.trees] == [str(elsewhere / "pyenv")]
        assert found.environment["PYENV_VERSION"] == "3.12.1"


def test_uv_and_pipx_programs_bring_their_environments_and_interpreters(home: Path) -> None:
    uv = ".local/share/uv"
    program(home, f"{uv}/python/cpython-3.12.5/bin/python3.12")
    link(home, f"{uv}/python/cpython-3.12", "cpython-3.12.5")
    put(home, f"{uv}/python/cpython-3.12.5/pip.conf", MARKER)
    put(home, f"{uv}/credentials/token", MARKER)
    for place in (f"{uv}/tools/ruff", ".local/share/pipx/venvs/black"):
        name = os.path.basename(place)
        program(home, f"{place}/bin/{name}")
        put(home, f"{place}/pyvenv.cfg", f"home = {home}/{uv}/python/cpython-3.12/bin\n")
        link(home, f".local/bin/{name}", str(home / place / "bin" / name))
    link(home, ".local/bin/python3.12", f"../../{uv}/python/cpython-3.12/bin/python3.12")
    link(home, ".local/bin/diary", str(home / "documents/diary"))
    found = look(home, home / ".local/bin")
    assert shown(found, home) == [
        ".local/bin",
        ".local/share/pipx/venvs/black",
        f"{uv}/python",
        f"{uv}/tools/ruff",
    ]
    assert reads(found, home / ".local/bin/python3.12")
    assert not reads(found, home / ".local/bin/diary")
    assert_no_marker(found)


def test_fnm_shells_are_links_to_versions(home: Path, tmp_path: Path) -> None:
    version = home / ".local/share/fnm/node-versions/v20/installation"
    program(version, "bin/node")
    link(home, ".local/state/fnm_multishells/1_2", str(version))
    found = look(home, home / ".local/state/fnm_multishells/1_2/bin", guest_home="/home/user")
    assert found.path == [str(version / "bin")]
    assert [tree.path for tree in found.trees] == [str(version)]
    assert found.environment == {"NPM_CONFIG_PREFIX": "/home/user/.local"}


def test_sdkman_current_and_java_home_become_the_version(home: Path) -> None:
    program(home, ".sdkman/candidates/java/17/bin/java")
    link(home, ".sdkman/candidates/java/current", "17")
    current = home / ".sdkman/candidates/java/current"
    found = look(home, current / "bin", JAVA_HOME=str(current), GOROOT=str(home))
    assert found.path == [str(home / ".sdkman/candidates/java/17/bin")]
    assert found.environment == {"JAVA_HOME": str(home / ".sdkman/candidates/java/17")}


def test_a_virtual_environment_brings_its_base(home: Path) -> None:
    program(home, ".pyenv/versions/3.12/bin/python3")
    put(home, "proj/.venv/pyvenv.cfg", f"home = {home}/.pyenv/versions/3.12/bin\n")
    program(home, "proj/.venv/bin/tool")
    venv = str(home / "proj/.venv")
    found = look(home, f"{venv}/bin", VIRTUAL_ENV=venv)
    assert shown(found, home) == [".pyenv", "proj/.venv"]
    assert found.path == [f"{venv}/bin"]
    assert found.environment == {"PYENV_ROOT": str(home / ".pyenv"), "VIRTUAL_ENV": venv}


def test_bun_globals_come_with_their_links(home: Path) -> None:
    program(home, ".bun/install/global/node_modules/tool/cli.js")
    put(home, ".bun/install/cache/x", MARKER)
    link(home, ".bun/bin/tool", "../install/global/node_modules/tool/cli.js")
    found = look(home, home / ".bun/bin")
    assert shown(found, home) == [".bun/bin", ".bun/install/global"]


def test_a_tree_within_a_tree_is_shown_once_and_keeps_its_secrets(home: Path) -> None:
    program(home, "miniconda3/bin/python")
    program(home, "miniconda3/envs/e/bin/python")
    for prefix in ("miniconda3", "miniconda3/envs/e"):
        (home / prefix / "conda-meta").mkdir()
        put(home, f"{prefix}/.npmrc", MARKER)
    found = look(home, home / "miniconda3/envs/e/bin", home / "miniconda3/bin")
    assert shown(found, home) == ["miniconda3"]
    assert len(found.path) == 2
    assert_no_marker(found)


def test_links_in_usr_local_bring_known_toolchains(home: Path, tmp_path: Path) -> None:
    program(home, ".nvm/versions/node/v20/bin/node")
    link(tmp_path, "usr/local/bin/node", str(home / ".nvm/versions/node/v20/bin/node"))
    link(tmp_path, "usr/local/bin/diary", str(home / "documents/diary"))
    found = find("/usr/local/bin", str(home), ["/usr"], machine=str(tmp_path))
    assert shown(found, home) == [".nvm/versions/node/v20"]


def test_asdf_global_versions_go_before_the_shims(home: Path) -> None:
    program(home, ".asdf/shims/node")
    program(home, ".asdf/installs/nodejs/20.1/bin/node")
    put(home, ".tool-versions", "nodejs 20.1 # comment\nevil ../../../.. x\npython\nx \0\n")
    found = look(home, home / ".asdf/shims", "/usr/bin")
    assert found.path == [
        str(home / ".asdf/installs/nodejs/20.1/bin"),
        str(home / ".asdf/shims"),
        "/usr/bin",
    ]


# --- what is never shown


def test_links_cannot_make_a_layout_show_the_home(home: Path) -> None:
    (home / ".pyenv").symlink_to(home)
    (home / ".rbenv").symlink_to("/")
    (home / ".volta").symlink_to(home / ".ssh")
    (home / ".asdf").symlink_to(home / ".config")
    (home / ".nodenv").symlink_to(home / ".config/gh")
    for name in ("shims", "bin"):
        program(home, f"{name}/tool")
        program(home, f".ssh/{name}/tool")
        program(home, f".config/{name}/tool")
    program(home, ".config/gh/shims/tool")
    entries = [home / root / "shims" for root in (".pyenv", ".rbenv", ".asdf", ".nodenv")]
    found = look(home, *entries, home / ".volta/bin")
    assert found.trees == []
    assert found.path == []
    assert len(found.notes) >= 3


def test_variables_cannot_make_a_layout_show_the_home(home: Path) -> None:
    program(home, "bin/tool")
    parent = str(home.parent)
    found = look(home, home / "bin", PYENV_ROOT=str(home), VOLTA_HOME="/", CARGO_HOME=parent)
    assert found.trees == []
    assert found.path == []


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("bin", "personal scripts"),
        (".config/composer/vendor/bin", "credentials"),
        (".docker/bin", "credentials"),
        ("proj/scripts", "project"),
        ("proj/node_modules/.bin", "project"),
        ("", "holds your home"),
    ],
)
def test_left_out_with_a_note(home: Path, entry: str, why: str) -> None:
    program(home, f"{entry}/tool" if entry else "tool")
    put(home, "proj/.git/config", MARKER)
    found = look(home, home / entry, "/usr/bin")
    assert found.trees == []
    assert found.path == ["/usr/bin"]
    assert len(found.notes) == 1
    assert why in found.notes[0]


def test_places_that_are_slow_or_not_for_toolchains_are_not_looked_at(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    real = os.path.realpath

    def watched(path: str) -> str:
        looked.append(path)
        return real(path)

    monkeypatch.setattr(os.path, "realpath", watched)
    found = look(home, "/mnt/c/Windows/system32", "/snap/bin", "/tmp/x/bin", "/proc/self/cwd")
    assert found.trees == []
    assert len(found.notes) == 4
    assert not [path for path in looked if str(path).startswith(("/mnt", "/snap", "/proc"))]


def test_entries_that_do_not_exist_are_dropped_silently(home: Path) -> None:
    found = look(home, home / ".pyenv/shims", "/opt/nowhere/bin")
    assert (found.path, found.trees, found.notes) == ([], [], [])


def test_the_home_may_have_two_names(home: Path, tmp_path: Path) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(home)
    program(home, ".nvm/versions/node/v20/bin/node")
    found = look(alias, alias / ".nvm/versions/node/v20/bin")
    assert [tree.path for tree in found.trees] == [f"{alias}/.nvm/versions/node/v20"]
    assert found.path == [f"{alias}/.nvm/versions/node/v20/bin"]


def test_versions_named_in_the_environment_are_passed_only_if_plain(home: Path) -> None:
    program(home, ".pyenv/shims/python3")
    entry = home / ".pyenv/shims"
    assert look(home, entry, PYENV_VERSION="3.12.1:3.11").environment["PYENV_VERSION"]
    assert "PYENV_VERSION" not in look(home, entry, PYENV_VERSION="$(id)").environment
    assert "PYENV_VERSION" not in look(home, entry, PYENV_VERSION="x" * 65).environment


# --- this machine


def test_python3_is_found_in_the_same_place(tmp_path: Path) -> None:
    path = os.environ.get("PATH", "")
    found = find(path, os.path.expanduser("~"), MACHINE, environment=os.environ)
    outside = subprocess.run(
        ["sh", "-c", "command -v python3"], capture_output=True, text=True, timeout=20, check=False
    ).stdout.strip()
    if not outside:
        pytest.skip("no python3 on PATH")
    visible = [tree.path for tree in found.trees] + list(MACHINE)
    if not any(outside.startswith(prefix + "/") for prefix in visible):
        pytest.skip(f"{outside} is in no toolchain: {found.notes}")
    first = next(entry for entry in found.path if os.access(f"{entry}/python3", os.X_OK))
    assert f"{first}/python3" == outside


def test_an_ordinary_path_takes_little_time(home: Path) -> None:
    for entry in (".pyenv/shims", ".cargo/bin", ".nvm/versions/node/v20/bin", ".local/bin"):
        for number in range(30):
            program(home, f"{entry}/tool{number}")
    entries = [home / ".pyenv/shims", home / ".cargo/bin", home / ".nvm/versions/node/v20/bin"]
    entries += [home / ".local/bin", Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin")]
    times = []
    for _ in range(30):
        start = time.perf_counter()
        look(home, *entries)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.002, f"{min(times) * 1000:.2f} ms"
