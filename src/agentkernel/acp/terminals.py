"""The agent's terminals, which are inside, as the editor sees them: as text.

A tool call that shows a terminal shows what it has printed so far, and once more when the agent
lets go of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agentkernel.agents.acp.services import MAX_TERMINALS, Services
from agentkernel.agents.acp.wire import Request

_MOST: Final = 256
Tell = Callable[[str, dict[str, Any]], Awaitable[None]]


class Terminals:
    """`tell`: a notification to the editor."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._texts: dict[str, str] = {}
        self._shown_by: dict[str, tuple[str, str]] = {}

    def text(self, id: str) -> str:
        """What stands in place of a terminal in the message that was looked at last: once, as a
        short message could name it often."""
        return _block(self._texts.pop(id, ""))

    async def look(self, services: Services, message: Request) -> None:
        """Before a message is rewritten: which terminals it shows, and what they show now."""
        self._texts.clear()
        for session, call, id in _terminals(message):
            if id in self._texts or len(self._texts) >= MAX_TERMINALS:
                continue
            self._texts[id] = await services.shown(id)
            if len(self._shown_by) < _MOST:
                self._shown_by[id] = (session, call)

    async def released(self, services: Services, request: Request) -> None:
        """Before it is: its output, whole, for the tool call that shows it."""
        id = request.params.get("terminalId") if isinstance(request.params, dict) else None
        shown = self._shown_by.pop(id, None) if isinstance(id, str) else None
        if shown is None or not isinstance(id, str):
            return
        text = {"type": "text", "text": _block(await services.shown(id))}
        await self._tell(
            "session/update",
            {
                "sessionId": shown[0],
                "update": {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": shown[1],
                    "content": [{"type": "content", "content": text}],
                },
            },
        )


def _terminals(message: Request) -> list[tuple[str, str, str]]:
    """Session, tool call and terminal of each that a message shows."""
    params = message.params
    if not isinstance(params, dict):
        return []
    call = params.get("update") if message.method == "session/update" else params.get("toolCall")
    content = call.get("content") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(content, list):
        return []
    return [
        (str(params.get("sessionId")), str(call.get("toolCallId")), item["terminalId"])
        for item in content
        if isinstance(item, dict)
        and item.get("type") == "terminal"
        and isinstance(item.get("terminalId"), str)
    ]


def _block(text: str) -> str:
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
