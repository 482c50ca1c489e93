"""Sandboxes that many attacks share, and things planted outside for them to find."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .controls import box_without
from .probes import Box

PLANTED_VARIABLE = "AK_PLANTED"


@dataclass(frozen=True)
class Planted:
    """What lies outside with the same secret in it. Nothing inside may ever show the secret."""

    secret: str
    files: tuple[Path, ...]
    directory_fd: int
    file_fd: int
    abstract: str
    socket_path: Path
    tcp_port: int


@pytest.fixture(scope="session")
def security_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("security-state")
    path.chmod(0o700)
    return path


@pytest.fixture(scope="session")
def planted(security_state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """Planted before any sandbox exists, so that everything could have been inherited."""
    secret = f"planted-{secrets.token_hex(16)}"
    places = [tmp_path_factory.mktemp("planted"), Path("/tmp"), Path.home(), security_state]
    files = []
    for place in places:
        file = place / f".{secret[:20]}.txt"
        try:
            file.write_text(secret)
        except OSError:
            continue
        files.append(file)
    os.environ[PLANTED_VARIABLE] = secret
    directory_fd = os.open(files[0].parent, os.O_RDONLY | os.O_DIRECTORY)
    file_fd = os.open(files[0], os.O_RDWR)
    for fd in (directory_fd, file_fd):
        os.set_inheritable(fd, True)
    abstract = f"ak-{secret[:24]}"
    socket_path = Path("/tmp") / f"{abstract}.sock"
    listeners = []
    for address in (f"\0{abstract}", str(socket_path)):
        listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listeners[-1].bind(address)
    listeners.append(socket.create_server(("127.0.0.1", 0)))
    for listener in listeners:
        listener.listen(64)
        listener.set_inheritable(True)
    yield Planted(
        secret=secret,
        files=tuple(files),
        directory_fd=directory_fd,
        file_fd=file_fd,
        abstract=abstract,
        socket_path=socket_path,
        tcp_port=listeners[-1].getsockname()[1],
    )
    del os.environ[PLANTED_VARIABLE]
    for listener in listeners:
        listener.close()
    for fd in (directory_fd, file_fd):
        os.close(fd)
    for file in (*files, socket_path):
        file.unlink(missing_ok=True)


@pytest.fixture(scope="session")
async def box_kernel(
    anyio_backend: str, security_state: Path, planted: Planted
) -> AsyncIterator[Runs]:
    async with Runs(security_state) as kernel:
        yield kernel
    left = os.listdir(security_state / "runs")
    assert not left, f"sandboxes left their directories behind: {left}"


@pytest.fixture(scope="session")
async def boxes(box_kernel: Runs) -> AsyncIterator[dict[str, Box]]:
    """One sandbox for each profile. Attacks that leave something behind use their own."""
    async with AsyncExitStack() as stack:
        yield {
            profile: await stack.enter_async_context(
                box_without(box_kernel, spec=SandboxSpec(profile=profile))
            )
            for profile in ("moderate", "permissive", "restrictive")
        }


@pytest.fixture
def box(boxes: dict[str, Box]) -> Box:
    """The default sandbox."""
    return boxes["moderate"]


@pytest.fixture(scope="session")
async def unfiltered(box_kernel: Runs) -> AsyncIterator[Box]:
    """The control of attacks that the system call filter stops: the same sandbox without it."""
    async with box_without(box_kernel, "seccomp") as box:
        yield box


@pytest.fixture(scope="session")
async def other(box_kernel: Runs) -> AsyncIterator[Box]:
    """A second, unrelated sandbox of the same owner."""
    async with box_without(box_kernel) as box:
        yield box
