"""A login is being refreshed when its owner is killed: the next one goes on with the tokens that
the provider gave last, as far as they were kept."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentkernel import faults
from agentkernel.errors import LoginEndedError, StateError
from agentkernel.kernel.kernel import Kernel

from ..agents.scripted import ScriptedModels
from ..agents.scripted.tokens import Tokens
from ..agents.test_logins import access, claude_file, operator, record_of
from .cases import LOGIN_CASES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModels]:
    server = ScriptedModels(tmp_path_factory.mktemp("models"))
    yield server
    server.close()


@pytest.fixture
def state(tmp_path: Path, server: ScriptedModels) -> Path:
    """A login whose access token has ended."""
    server.tokens = Tokens()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)

    async def log_in() -> None:
        async with Kernel(state, operator=operator(server)) as kernel:
            given = claude_file(server.tokens.issue("anthropic"), seconds=-5)
            await kernel.agents.logins.take("claude", given, owner="local")

    asyncio.run(log_in())
    return state


async def refresh(state: Path, server: ScriptedModels) -> tuple[str, float | None]:
    """The access token afterwards, and its end."""
    async with Kernel(state, operator=operator(server)) as kernel:
        await kernel.agents.logins.refresh("claude", owner="local")
        return await access(kernel), record_of(kernel).expires_at


def killed_at(point: str, state: Path, server: ScriptedModels) -> int:
    """How a process ended that was refreshing."""
    pid = os.fork()
    if not pid:
        try:
            faults.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
            asyncio.run(refresh(state, server))
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(("point", "goes_on"), LOGIN_CASES)
def test_killed_there(point: str, goes_on: bool, state: Path, server: ScriptedModels) -> None:
    assert killed_at(point, state, server) == -signal.SIGKILL
    assert len(server.tokens.asked) == 1
    if not goes_on:
        # What the provider gave was kept by nobody: it says so, and the login says what to do.
        with pytest.raises(LoginEndedError, match="invalid_grant"):
            asyncio.run(refresh(state, server))
        return
    token, expires_at = asyncio.run(refresh(state, server))
    assert token == server.tokens.access[-1]
    assert expires_at is not None
    assert expires_at > time.time()
    assert len(server.tokens.asked) == 2


def test_control_a_provider_that_does_not_rotate_forgives_any_crash(
    state: Path, server: ScriptedModels
) -> None:
    server.tokens.rotate = False
    assert killed_at("login.answered", state, server) == -signal.SIGKILL
    token, _ = asyncio.run(refresh(state, server))
    assert token == server.tokens.access[-1]


def test_a_disk_that_is_full_loses_no_refresh_token(
    state: Path, server: ScriptedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record could not be written, the tokens could: the next try goes on from there."""

    async def try_it() -> None:
        async with Kernel(state, operator=operator(server)) as kernel:
            records = kernel.agents.logins._records

            def full(*_: object) -> None:
                raise StateError("no space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(records, "_write", full)
                with pytest.raises(StateError):
                    await kernel.agents.logins.refresh("claude", owner="local")
            assert await access(kernel) == server.tokens.access[-1]
            status = await kernel.agents.logins.refresh("claude", owner="local")
            assert status.state == "ok"
            assert msgspec.to_builtins(status)["expires_at"] > time.time()

    asyncio.run(try_it())
    assert len(server.tokens.asked) == 2
