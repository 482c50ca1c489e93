"""The real agentd, compiled from the tree, in namespaces of its own for every test."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import emulation
from .harness import Guest, Host, namespaces_work

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if emulation.architecture():
        emulation.skip_what_it_cannot(items)


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A directory whose files everybody may execute, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="agentd-programs-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def binary(programs: Path) -> Path:
    """agentd; AGENTD_UNDER_TEST names another one, such as a build with sanitizers, and
    AGENTD_EMULATED an architecture to build and emulate it for."""
    if named := os.environ.get("AGENTD_UNDER_TEST"):
        return Path(named).resolve()
    spec = importlib.util.spec_from_file_location("agentd_build", ROOT / "tools/agentd_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agentd_build"] = module
    spec.loader.exec_module(module)
    if arch := emulation.architecture():
        return emulation.program(module.build, programs, arch)
    out = programs / "agentd"
    module.build(out)
    return out


Compile = Callable[[str, str], str]


@pytest.fixture(scope="session")
def compile_(programs: Path) -> Compile:
    """Makes a static program of a name and a C source."""
    compiler = shutil.which("musl-gcc") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the attackers")

    def build(name: str, source: str) -> str:
        path = programs / name
        if not path.exists():
            (programs / f"{name}.c").write_text(source)
            subprocess.run(
                [compiler, "-O1", "-static", "-o", path, f"{path}.c"], check=True, timeout=50
            )
        return str(path)

    return build


@pytest.fixture(scope="session")
def sockets() -> Iterator[Path]:
    """A directory with a short path: a socket's name has 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="agentd-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def namespaces() -> None:
    if not namespaces_work():
        pytest.skip("this user may not make user namespaces")


Boot = Callable[..., Guest]


@pytest.fixture
def boot(binary: Path, sockets: Path, namespaces: None) -> Iterator[Boot]:
    """Starts guests with the boot configuration a test wants."""
    guests: list[Guest] = []

    def start(**configuration: object) -> Guest:
        if configuration.get("ids") == "range" and os.getuid() != 0:
            pytest.skip("only root has a range of ids")
        guest = Guest(binary, sockets, **configuration)  # type: ignore[arg-type]
        guests.append(guest)
        return guest

    yield start
    for guest in guests:
        guest.stop()


@pytest.fixture
def guest(boot: Boot) -> Guest:
    return boot()


@pytest.fixture
def host(guest: Guest) -> Iterator[Host]:
    host = guest.connect()
    yield host
    host.close()
