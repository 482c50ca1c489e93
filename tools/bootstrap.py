"""Make a clone of this repository usable with nothing but a python3 on PATH.

    python3 tools/bootstrap.py [--group test|lint]... [--cache DIRECTORY]

`./agentkernel` and `./test` call this when something they need is missing or older than its
source. Every step looks first whether it has anything to do, so running it again is cheap:

1. an environment, laid out by hand: `-m venv` needs parts that distributions leave out;
2. pip, from wherever this machine has it (pip_source.py);
3. the dependencies that pyproject.toml names; the project itself is a line in a .pth file;
4. agentd, compiled for this machine (agentd_build.py);
5. a stamp for each group, which the shell scripts trust. It is written last, and dated when the
   work began, so that a source edited meanwhile counts as newer.

Everything lives in the clone: `.venv` and `src/agentkernel/_agentd`. Where the clone is not
writable for this user, or its environment is someone else's, the directory given by `--cache`
holds both. All words go to stderr.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this line is for the Pythons that are too old
    sys.exit("agentkernel: needs Python 3.11 or newer, this one is " + sys.version.split()[0])

import argparse
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import agentd_build
import pip_source

ROOT = Path(__file__).resolve().parent.parent
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
LOCK = "agentkernel.lock"  # also the mark that an environment was made here
PIP_TIMEOUT = 900
FAILURE = 125  # the exit status that means "agentkernel itself", never the command

# Settings that would send packages elsewhere than into the environment.
UNWANTED = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONHOME")


class BootstrapFailure(Exception):
    """Something the user has to see, with a hint."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\nhint: {hint}")


say = agentd_build.say


class Place:
    """Where the environment and agentd go."""

    def __init__(self, venv: Path, agentd: Path) -> None:
        self.venv = venv
        self.agentd = agentd
        self.python = venv / "bin" / "python"
        self.packages = venv / "lib" / PYTHON / "site-packages"

    def is_ours(self) -> bool:
        """Whether this user may work here: all of it writable, and no environment of others."""
        for wanted in (self.venv, self.agentd.parent):
            existing = wanted
            while not existing.exists():
                existing = existing.parent
            if not os.access(existing, os.W_OK | os.X_OK):
                return False
        foreign = self.venv.is_dir() and not (self.venv / LOCK).exists()
        return not (foreign and any(self.venv.iterdir()))


def choose_place(cache: Path | None) -> Place:
    """The clone if this user owns it in effect, else the cache."""
    machine = platform.machine()
    clone = Place(ROOT / ".venv", ROOT / "src/agentkernel/_agentd" / machine / "agentd")
    if clone.is_ours():
        os.umask(0o022)  # whoever may read the clone may run what is made in it
        return clone
    if cache is None:
        raise BootstrapFailure(
            f"{ROOT} is not writable, or holds a .venv that was not made here",
            "run ./agentkernel, which keeps an environment in your cache directory",
        )
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    if cache.stat().st_uid != os.geteuid():
        raise BootstrapFailure(
            f"{cache} belongs to another user", "set HOME or XDG_CACHE_HOME to a directory of yours"
        )
    say(f"{ROOT} can't be used as it is by this user: working in {cache}")
    return Place(cache / "venv", cache / "agentd" / machine / "agentd")


@contextlib.contextmanager
def locked(venv: Path) -> Iterator[None]:
    """One bootstrap at a time: the others wait, then find everything done."""
    venv.mkdir(parents=True, exist_ok=True)
    with (venv / LOCK).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another bootstrap of this clone")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def base_python() -> Path:
    """This interpreter's own executable, by its versioned name if it has one beside it.

    `python3` may become another version at the next upgrade of the system; then the link to
    `python3.11` dangles, which is noticed, where a changed version would break in odd ways.
    """
    base = Path(getattr(sys, "_base_executable", None) or sys.executable)
    versioned = base.with_name(PYTHON)
    return versioned if versioned.exists() and versioned.samefile(base) else base


def make_environment(place: Place) -> None:
    """What `-m venv --without-pip` makes: a link, three lines of text and a directory."""
    base = base_python()
    config = place.venv / "pyvenv.cfg"
    home = f"home = {base.parent}\n"
    same = config.is_file() and config.read_text().startswith(home) and place.packages.is_dir()
    if same and _runs(place.python):
        return
    say(f"making an environment in {place.venv} with {base}")
    for entry in place.venv.iterdir():
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    place.packages.mkdir(parents=True)
    (place.venv / "lib64").symlink_to("lib")  # where some distributions put compiled modules
    (place.venv / "bin").mkdir()
    place.python.symlink_to(base)
    (place.venv / "bin" / "python3").symlink_to("python")
    rest = f"include-system-site-packages = false\nversion = {platform.python_version()}\n"
    config.write_text(home + rest)
    if not _runs(place.python):
        raise BootstrapFailure(
            f"{base} does not work as the base of an environment",
            "put another Python 3.11 or newer first on PATH, or name it in AGENTKERNEL_PYTHON",
        )


def _runs(python: Path) -> bool:
    """Whether the environment's Python starts and knows that it is in an environment."""
    check = "import sys; sys.exit(sys.prefix == sys.base_prefix)"
    try:
        return subprocess.run([python, "-I", "-c", check], timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def ensure_pip(place: Place) -> None:
    if (place.packages / "pip" / "__main__.py").is_file():
        return
    with tempfile.TemporaryDirectory(prefix="agentkernel-pip-") as scratch:
        wheel = pip_source.bundled_wheel()
        package = None if wheel else pip_source.base_package()
        if package is not None:
            # Not complete without its metadata, but able to install, which is all it is for.
            shutil.copytree(package, place.packages / "pip")
            return
        if wheel is None:
            say("Python came without pip: fetching it")
            wheel = _fetched_pip(Path(scratch))
        _pip([place.python, "-I", wheel / "pip"], ["--no-index", "--no-deps", str(wheel)])


def _fetched_pip(scratch: Path) -> Path:
    tried = ["pip's configuration names no index"]
    for source in (pip_source.from_links, pip_source.from_apt):
        try:
            if wheel := source(scratch):
                return wheel
        except pip_source.PipMissing as error:
            tried.append(str(error))
    raise BootstrapFailure(
        f"no pip could be found or fetched: {'; '.join(tried)}",
        _explain(" ".join(tried))
        or "install python3-pip or python3-venv, or set PIP_INDEX_URL to your package index",
    )


def requirements(groups: list[str]) -> list[str]:
    """The runtime dependencies and those of the groups, with what the groups include."""
    with (ROOT / "pyproject.toml").open("rb") as handle:
        project = tomllib.load(handle)
    wanted: list[str] = list(project["project"].get("dependencies", []))
    tables = project.get("dependency-groups", {})

    def add(group: str) -> None:
        if group not in tables:
            raise BootstrapFailure(f"no dependency group {group!r}", f"known: {', '.join(tables)}")
        for entry in tables[group]:
            if isinstance(entry, str):
                wanted.append(entry)
            else:
                add(entry["include-group"])

    for group in groups:
        add(group)
    return list(dict.fromkeys(wanted))


def install(place: Place, wanted: list[str]) -> None:
    """Install what is not recorded as installed; the record is ours, and starting pip is slow."""
    (place.packages / "agentkernel-clone.pth").write_text(f"{ROOT / 'src'}\n")
    record = place.venv / "installed.json"
    done = json.loads(record.read_text()) if record.is_file() else []
    missing = [requirement for requirement in wanted if requirement not in done]
    if not missing:
        return
    say(f"installing {', '.join(missing)}")
    _pip([place.python, "-I", "-m", "pip"], [*done, *missing])
    record.write_text(json.dumps([*done, *missing]))


def _pip(installer: list[str | Path], arguments: list[str]) -> None:
    """Run `pip install`; its stdout is not ours to give away."""
    options = ["install", "--quiet", "--no-input", "--disable-pip-version-check"]
    options += ["--no-warn-script-location", "--prefer-binary"]
    environment = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    environment["PIP_USER"] = "0"
    try:
        done = subprocess.run(
            [*installer, *options, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PIP_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BootstrapFailure("pip did not finish", "is the network up? run it again") from None
    if done.returncode != 0:
        text = done.stdout.decode(errors="replace").strip()
        hint = _explain(text) or "see pip's own words above; running this again is safe"
        raise BootstrapFailure(f"pip failed:\n{text[-2000:]}", hint)


def _explain(text: str) -> str | None:
    """The usual causes, in words that say what to do."""
    if "CERTIFICATE_VERIFY_FAILED" in text or "invalid path:" in text:
        return (
            "no CA certificate fits: install ca-certificates, or name your bundle in PIP_CERT "
            "and SSL_CERT_FILE"
        )
    offline = (
        "name resolution",
        "Name or service not known",
        "Could not resolve",
        "NewConnectionError",
        "Network is unreachable",
        "timed out",
        "(from versions: none)",  # all that pip says when it may not retry
    )
    if any(words in text for words in offline):
        return (
            "the package index can't be reached: check the network and proxy settings, or name a "
            "mirror in PIP_INDEX_URL or a directory of wheels in PIP_FIND_LINKS"
        )
    if "No space left" in text:
        return "the disk is full"
    return None


def build_agentd(place: Place) -> None:
    """With the environment's Python: it has pip, should the compiler have to be fetched."""
    if os.environ.get("AGENTKERNEL_AGENTD"):
        return
    script = str(ROOT / "tools/agentd_build.py")
    command = [str(place.python), "-I", script, "--out", str(place.agentd)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False, timeout=1800
    )
    if done.returncode != 0:
        raise BootstrapFailure("agentd was not built", "the lines above say why")


def write_stamps(place: Place, groups: list[str], started: float) -> None:
    """One per group and `run` for the plain one: the clone and agentd's path, a line each."""
    for group in ("run", *groups):
        fresh = place.venv / f"stamp.{group}.new"
        fresh.write_text(f"{ROOT}\n{os.environ.get('AGENTKERNEL_AGENTD') or place.agentd}\n")
        os.utime(fresh, (started, started))
        fresh.replace(place.venv / f"stamp.{group}")


def bootstrap(groups: list[str], cache: Path | None) -> None:
    place = choose_place(cache)
    with locked(place.venv):
        started = time.time()
        try:
            make_environment(place)
            ensure_pip(place)
            install(place, requirements(groups))
            build_agentd(place)
        except BaseException:
            for stamp in place.venv.glob("stamp.*"):
                stamp.unlink()
            raise
        write_stamps(place, groups, started)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prepare this clone for use.")
    parser.add_argument("--group", action="append", default=[], help="a dependency group to add")
    parser.add_argument("--cache", type=Path, help="where to work if the clone can't be used")
    options = parser.parse_args()
    try:
        bootstrap(options.group, options.cache)
    except BootstrapFailure as failure:
        say(str(failure))
        return FAILURE
    except OSError as error:
        say(f"{error}\nhint: is there space, and may you write there? running it again is safe")
        return FAILURE
    except KeyboardInterrupt:
        say("interrupted; running it again is safe")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
