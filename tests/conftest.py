"""Fixtures that every kind of test shares: a state directory, sandboxes in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import settings

from agentkernel.backends.base import Sandbox
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

Run = Callable[..., Awaitable[ExecResult]]

# Found counterexamples are printed; a clone that can't be written to must pass too.
settings.register_profile("default", database=None, deadline=None)
settings.load_profile("default")


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
async def runs(state_dir: Path) -> AsyncIterator[Runs]:
    async with Runs(state_dir) as runs:
        yield runs
    assert not os.listdir(state_dir / "runs"), "a sandbox left its directory behind"


@pytest.fixture
async def sandbox(runs: Runs) -> Sandbox:
    """A sandbox of the host image with all defaults."""
    return await runs.create(SandboxSpec())


@pytest.fixture
def run(runs: Runs, sandbox: Sandbox) -> Run:
    """Runs a command in `sandbox`: a list is argv, a string a shell command."""

    async def run_(
        command: str | list[str], *, stdin: bytes = b"", user: str | None = None, **options: object
    ) -> ExecResult:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        chosen = ProcessOptions(user=user, **options)  # type: ignore[arg-type]
        return await runs.run(sandbox, argv, chosen, stdin=stdin)

    return run_
