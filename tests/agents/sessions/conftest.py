"""A kernel whose user has an agent of their own: one that does what it is told, quickly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.kernel.agents.model import AgentEvent, AgentRequest, AgentSession
from agentkernel.kernel.kernel import Kernel

DEADLINE_S = 30.0
HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def fake_agent(no_config: None) -> None:
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "fake.toml", place)


@pytest.fixture
def own_state(state_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """A state of the test's own that shares the images. What a test left running is ended."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    yield path
    for left in (path / "sandboxes").glob("*"):
        if pid := SandboxDirectory(left).process():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def kernel(own_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


async def start(kernel: Kernel, task: str | None = None, **fields: object) -> AgentSession:
    return await kernel.agents.sessions.start(
        AgentRequest(agent="fake", task=task, **fields)  # type: ignore[arg-type]
    )


async def events(kernel: Kernel, id: str, *, after: int = 0) -> list[AgentEvent]:
    """To the session's end."""
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in kernel.agents.sessions.events(id, after=after)]
