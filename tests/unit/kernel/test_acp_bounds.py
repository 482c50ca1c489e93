"""An agent that asks the daemon for more than it reads answers to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentkernel.agents.acp.services import Exit
from agentkernel.kernel.agents import acp_driver
from agentkernel.kernel.agents.acp_driver import AcpDriver

pytestmark = pytest.mark.anyio


class Wire:
    """One that takes nothing, as the agent does not read."""

    def tell(self, kind: str, body: dict[str, Any]) -> None: ...

    def found(self, session: str) -> None: ...

    async def send(self, line: bytes) -> None:
        await asyncio.Event().wait()


class Inside:
    async def wait(self, id: str) -> Exit:
        return Exit(0)

    def close(self) -> None: ...


async def test_an_agent_that_does_not_read_is_held_in_bounds(tmp_path: Path) -> None:
    attached = asyncio.Event()
    attached.set()
    wire: Any = Wire()
    inside: Any = Inside()
    driver = AcpDriver(wire, inside, tmp_path, attached=attached, attended=True, agent="x")
    params = {"terminalId": "t", "pad": "x" * 1000}
    for number in range(2000):
        request = {"jsonrpc": "2.0", "id": number, "method": "terminal/wait_for_exit"}
        driver.feed(json.dumps({**request, "params": params}).encode())
        if not number % 100:
            await asyncio.sleep(0)
    assert len(driver._calls) == acp_driver._MOST_CALLS
    assert len(driver._tasks) <= acp_driver._MOST_TASKS
    driver.lost()
