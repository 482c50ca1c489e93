"""Terminals in an agent's messages, as the editor sees them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agentkernel.acp.terminals import Terminals
from agentkernel.agents.acp import wire
from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.rewriting import Rewriter
from agentkernel.agents.acp.services import MAX_TERMINALS
from agentkernel.agents.acp.wire import Request

pytestmark = pytest.mark.anyio
SHOWN = "x" * 10_000


class Services:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def shown(self, id: str) -> str:
        self.asked.append(id)
        return SHOWN


async def told(terminals: Terminals, services: Services, ids: list[str]) -> bytes:
    content = [{"type": "terminal", "terminalId": id} for id in ids]
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "content": content}
    message = Request("session/update", {"sessionId": "s", "update": update})
    await terminals.look(cast(Any, services), message)
    rewriter = Rewriter(PathMap("/a", "/b"), terminals.text)
    return wire.encode(
        Request(message.method, rewriter.request_to_editor(message.method, message.params))
    )


async def test_a_short_message_does_not_become_a_long_one() -> None:
    async def tell(method: str, params: dict[str, Any]) -> None: ...

    terminals, services = Terminals(tell), Services()
    one = await told(terminals, services, ["t"])
    assert one.count(SHOWN.encode()) == 1
    often = await told(terminals, services, ["t"] * 1000)
    assert often.count(SHOWN.encode()) == 1
    services.asked.clear()
    many = await told(terminals, services, [f"t{number}" for number in range(1000)])
    assert many.count(SHOWN.encode()) == MAX_TERMINALS == len(services.asked)


def test_a_block_ends_where_it_is_to_end() -> None:
    async def tell(method: str, params: dict[str, Any]) -> None: ...

    terminals = Terminals(tell)
    for text, fence in (("", 3), ("a `b` ``c``", 3), ("```", 4), ("```\n`````\n````", 6)):
        terminals._texts["t"] = text
        ticks = "`" * fence
        assert terminals.text("t") == f"{ticks}\n{text}\n{ticks}"
    terminals._texts["t"] = "`" * (1 << 20)  # at once, however many there are
    assert len(terminals.text("t")) == 3 * (1 << 20) + 4
