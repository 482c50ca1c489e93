"""Fixtures that every kind of test shares: a kernel with a state directory of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import ExecResult, Kernel
from agentkernel.kernel.spec import SandboxSpec

Run = Callable[..., Awaitable[ExecResult]]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state directory for the run: the host image is made once."""
    path = tmp_path_factory.mktemp("state")
    os.environ["AGENTKERNEL_STATE_DIR"] = str(path)
    return path


@pytest.fixture
async def kernel(state_dir: Path) -> AsyncIterator[Kernel]:
    async with Kernel(state_dir) as kernel:
        yield kernel
    assert not os.listdir(state_dir / "runs"), "a sandbox left its directory behind"


@pytest.fixture
async def sandbox(kernel: Kernel) -> Sandbox:
    """A sandbox of the host image with all defaults."""
    return await kernel.create(SandboxSpec())


@pytest.fixture
def run(kernel: Kernel, sandbox: Sandbox) -> Run:
    """Runs a command in `sandbox`: a list is argv, a string a shell command."""

    async def run_(
        command: str | list[str], *, stdin: bytes = b"", user: str | None = None, **options: object
    ) -> ExecResult:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        chosen = ProcessOptions(user=user, **options)  # type: ignore[arg-type]
        return await kernel.run(sandbox, argv, chosen, stdin=stdin)

    return run_
