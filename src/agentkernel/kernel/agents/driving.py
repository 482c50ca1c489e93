"""An acp session's turns: one at a time, begun by a prompt, told of by events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final

from agentkernel.agents.model import McpServer
from agentkernel.errors import AgentKernelError, ConflictError, GuestTimeoutError
from agentkernel.kernel.agents.driver import Driver
from agentkernel.kernel.agents.model import AgentEvent
from agentkernel.kernel.agents.recording import Recorder

HANDSHAKE_SECONDS: Final = 120.0


class Drive:
    """One session's."""

    def __init__(self, recorder: Recorder, driver: Driver) -> None:
        self._recorder = recorder
        self._driver = recorder.driver = driver
        self._turn: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._turn is not None and not self._turn.done()

    async def begin(self, *, cwd: str, mcp: Sequence[McpServer], load: str | None) -> None:
        """Raises AgentKernelError: the agent can't be used."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._driver.begin(cwd=cwd, mcp=mcp, load=load)
        except TimeoutError:
            raise GuestTimeoutError(
                f"the agent said nothing for {HANDSHAKE_SECONDS:g} s",
                hint="its events have what it wrote",
            ) from None

    async def take_up(self, *, conversation: str | None, log: Iterable[AgentEvent]) -> None:
        """After another daemon: the agent has been spoken to. A turn that was under way goes on
        inside, and its end is found in what the agent has said meanwhile."""
        asked, turn = unanswered(log)
        await self._driver.begin(cwd="", mcp=(), running=conversation or "", asked=asked)
        if turn:
            self._turn = asyncio.ensure_future(self._carry_out(self._driver.rest()))

    def prompt(self, text: str) -> None:
        """Raises ConflictError while another one is under way."""
        if self.busy:
            raise ConflictError(
                "the agent is working on a prompt", hint="wait for its end, or cancel it"
            )
        self._recorder.tell("prompt", {"text": text})
        self._turn = asyncio.ensure_future(self._carry_out(self._driver.prompt(text)))

    async def _carry_out(self, turn: Awaitable[dict[str, Any]]) -> None:
        began = time.monotonic()
        try:
            result = await turn
        except AgentKernelError as exc:
            self._recorder.tell("prompt", {"error": exc.message, "code": exc.code})
            return
        reason = result.get("stopReason")
        self._recorder.tell(
            "prompt",
            {
                "stop_reason": reason if isinstance(reason, str) else None,
                "seconds": round(time.monotonic() - began, 3),
                "result": result,
            },
        )

    async def cancel(self) -> None:
        await self._driver.cancel()

    async def answer(self, permission: str, option: str | None) -> None:
        """Raises NotFoundError, InvalidInputError."""
        await self._driver.answer(permission, option)

    async def close(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.cancel()
            await asyncio.wait((self._turn,))


def unanswered(log: Iterable[AgentEvent]) -> tuple[list[AgentEvent], bool]:
    """Permission questions that nobody has answered; and whether a turn has begun and not ended."""
    asked: dict[Any, AgentEvent] = {}
    turn = False
    for event in log:
        if event.kind == "permission":
            if "request" in event.body:
                asked[str(event.body.get("id"))] = event
            else:
                asked.pop(str(event.body.get("id")), None)
        elif event.kind == "prompt":
            turn = "text" in event.body
    return list(asked.values()), turn
