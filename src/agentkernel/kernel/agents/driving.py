"""An acp session's turns: one at a time, begun by a prompt, told of by events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from agentkernel.agents.model import McpServer
from agentkernel.errors import AgentKernelError, ConflictError, GuestTimeoutError
from agentkernel.kernel.agents.driver import Driver
from agentkernel.kernel.agents.model import AgentEvent
from agentkernel.kernel.agents.recording import Recorder

HANDSHAKE_SECONDS: Final = 120.0
DriverMaker = Callable[[Recorder], Driver]


class Drive:
    """One session's."""

    def __init__(self, recorder: Recorder, make: DriverMaker) -> None:
        self._recorder = recorder
        self._driver = recorder.driver = make(recorder)
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

    async def take_up(
        self, *, cwd: str, conversation: str | None, log: Iterable[AgentEvent]
    ) -> None:
        """After another daemon: the agent has been spoken to. A turn that was under way goes on
        inside, but how it ends is told to nobody."""
        asked, turn = unanswered(log)
        await self._driver.begin(cwd=cwd, mcp=(), running=conversation or "", asked=asked)
        if turn:
            self._recorder.tell("prompt", {"error": "the daemon was started anew meanwhile"})

    def prompt(self, text: str) -> None:
        """Raises ConflictError while another one is under way."""
        if self.busy:
            raise ConflictError(
                "the agent is working on a prompt", hint="wait for its end, or cancel it"
            )
        self._recorder.tell("prompt", {"text": text})
        self._turn = asyncio.ensure_future(self._carry_out(text))

    async def _carry_out(self, text: str) -> None:
        began = time.monotonic()
        try:
            result = await self._driver.prompt(text)
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
