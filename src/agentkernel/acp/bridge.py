"""Between an editor and an agent that is in a sandbox: each message goes on, rewritten, or is
answered here.

What must hold: the agent reaches nothing of the editor's machine. Of what it asks only what is in
`TO_EDITOR` goes on; files and terminals are served inside, and anything else is refused. Numbers of
requests are our own on both sides, so nobody answers what they were not asked, and an answer that
comes twice, or for an editor that is gone, goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from agentkernel.acp.applying import Apply, Settling
from agentkernel.acp.handshake import (
    LOGIN,
    agent_answer,
    client_capabilities,
    login_method,
    not_logged_in,
    session_params,
    with_servers,
)
from agentkernel.acp.opening import LoginNeededError, Opened, Opener
from agentkernel.acp.stdio import Stdio, log
from agentkernel.acp.terminals import Terminals
from agentkernel.agents.acp import wire
from agentkernel.agents.acp.permissions import CANCELLED
from agentkernel.agents.acp.rewriting import Rewriter
from agentkernel.agents.acp.services import RefusedError, Services, failure_of
from agentkernel.agents.acp.wire import Answer, Failure, Id, Request
from agentkernel.errors import AgentKernelError
from agentkernel.ids import new_id

TO_EDITOR: Final = frozenset(
    ("session/update", "session/request_permission", "elicitation/create", "elicitation/complete")
)
MAX_ASKED: Final = 256
"""Requests of one side that the other has not answered yet."""
_SESSIONS: Final = ("session/new", "session/load", "session/resume", "session/fork")
_CANCEL: Final = "$/cancel_request"
_LAST_SECONDS: Final = 5.0


@dataclass
class _Asked:
    """A request that was passed on: how its asker calls it."""

    id: Id
    method: str
    session: str


@dataclass
class _Running:
    """What there is once the agent runs."""

    opened: Opened
    services: Services
    terminals: Terminals
    rewriter: Rewriter
    settling: Settling | None
    reading: asyncio.Task[None] | None = None


@dataclass
class Bridge:
    """One editor's. `run` returns when the editor has gone, or the agent has ended: then False."""

    editor: Stdio
    opener: Opener
    apply: Apply = "ask"
    _running: _Running | None = None
    _initialize: Any = None
    _of_editor: dict[str, _Asked] = field(default_factory=dict)
    _of_agent: dict[str, _Asked] = field(default_factory=dict)
    # Our own requests, apart by who may answer: an agent knows how our numbers look.
    _own_to_editor: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _own_to_agent: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _waiting: asyncio.Queue[Request] = field(default_factory=lambda: asyncio.Queue(MAX_ASKED))
    _mark: str = field(default_factory=new_id)
    _count: int = 0
    _garbage: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> bool:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._read_editor()),
            asyncio.ensure_future(self._obey_editor()),
            asyncio.ensure_future(self._ended.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if tasks[0] in done:
                # What it asked last may have its answer still: it may be a pipe, and no editor.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self._waiting.join()
            return not self._ended.is_set()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._leave()

    async def _read_editor(self) -> None:
        async for message in self.editor.messages():
            if isinstance(message, Answer):
                await self._answered_by_editor(message)
            else:
                # An editor that has so many under way waits; its answers come first in its own
                # order anyway.
                await self._waiting.put(message)

    async def _obey_editor(self) -> None:
        """In the order they came: a cancel never gets past what it is about."""
        while True:
            message = await self._waiting.get()
            try:
                if message.id is None:
                    await self._told_by_editor(message)
                else:
                    await self._asked_by_editor(message, message.id)
            finally:
                self._waiting.task_done()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- from the editor ------------------------------------------------------------------------

    async def _asked_by_editor(self, request: Request, id: Id) -> None:
        try:
            await self._pass_on(request, id)
        except RefusedError as refused:
            await self._fail(id, Failure(refused.code, str(refused)))
        except LoginNeededError as error:
            data = {"authMethods": [login_method(self.opener.agent)]}
            await self._fail(id, Failure(wire.AUTH_REQUIRED, failure_of(error).message, data))
        except AgentKernelError as error:
            log(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
            await self._fail(id, failure_of(error))

    async def _pass_on(self, request: Request, id: Id) -> None:
        params = request.params
        if request.method == "initialize":
            self._initialize = client_capabilities(params)
            try:
                running = await self._start()
            except LoginNeededError as error:
                log(error.message)
                protocol = self._initialize.get("protocolVersion")
                answer = Answer(id, not_logged_in(self.opener.agent, protocol))
                await self.editor.send(answer)
                return
            await self._send_agent(running, request.method, self._initialize, id)
            return
        fresh = self._running is None
        running = await self._start()
        if fresh:
            # It could not be started when the editor introduced itself: it is introduced now.
            await self._introduce(running)
        if request.method == "authenticate" and _text(params, "methodId") == LOGIN:
            await self.editor.send(Answer(id, {}))  # it runs, so there is a login by now
            return
        if request.method in _SESSIONS:
            notes: list[str] = []
            params = session_params(params, running.opened.paths, notes)
            for note in notes:
                log(note)
        params = running.rewriter.request_to_agent(request.method, params)
        if request.method in _SESSIONS:
            params = with_servers(params, running.opened.servers)
        await self._send_agent(running, request.method, params, id)

    async def _told_by_editor(self, request: Request) -> None:
        if self._running is None:
            return
        params = request.params
        if request.method == _CANCEL and isinstance(params, dict):
            own = _number_of(self._of_editor, params.get("requestId"))
            if own is None:
                return
            params = {**params, "requestId": own}
        params = self._running.rewriter.request_to_agent(request.method, params)
        await self._running.opened.link.send(Request(request.method, params))

    async def _answered_by_editor(self, answer: Answer) -> None:
        number = str(answer.id)
        if future := self._own_to_editor.pop(number, None):
            if not future.done():
                future.set_result(None if answer.error else answer.result)
        elif (asked := self._of_agent.pop(number, None)) and self._running:
            await self._running.opened.link.send(Answer(asked.id, answer.result, answer.error))

    async def _fail(self, id: Id, failure: Failure) -> None:
        await self.editor.send(Answer(id, error=failure))

    # -- the agent ------------------------------------------------------------------------------

    async def _start(self) -> _Running:
        if self._running is None:
            opened = await self.opener.open()
            terminals = Terminals(self._tell_editor)
            services = Services(opened.inside, opened.paths.guest)
            settling = None
            if opened.workspace:
                settling = Settling(
                    opened.sandbox,
                    opened.paths,
                    self.apply,
                    ask=self._ask_editor,
                    tell=self._tell_editor,
                )
            rewriter = Rewriter(opened.paths, terminals.text)
            self._running = _Running(opened, services, terminals, rewriter, settling)
            self._running.reading = asyncio.ensure_future(self._read_agent(self._running))
        return self._running

    async def _introduce(self, running: _Running) -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number = self._number()
        self._own_to_agent[number] = future
        params = self._initialize or client_capabilities(None)
        await running.opened.link.send(Request("initialize", params, number))
        await future

    async def _send_agent(self, running: _Running, method: str, params: Any, id: Id) -> None:
        if len(self._of_editor) >= MAX_ASKED:
            raise RefusedError(wire.INTERNAL_ERROR, "the agent has not answered earlier requests")
        number = self._number()
        self._of_editor[number] = _Asked(id, method, _text(params, "sessionId"))
        await running.opened.link.send(Request(method, params, number))

    async def _read_agent(self, running: _Running) -> None:
        why = "the agent has ended"
        try:
            async for message in running.opened.link.messages():
                await self._from_agent(running, message)
            if (result := running.opened.link.result) is not None:
                why = f"the agent has ended: {result.outcome}, exit code {result.exit_code}"
        except AgentKernelError as error:
            why = f"the agent can't be reached any more: {error.message}"
        except Exception as error:
            why = f"internal error: {type(error).__name__}"
        log(why)
        for asked in list(self._of_editor.values()):
            await self._fail(asked.id, Failure(wire.INTERNAL_ERROR, why))
        self._of_editor.clear()
        for future in (*self._own_to_editor.values(), *self._own_to_agent.values()):
            if not future.done():
                future.set_result(None)
        self._ended.set()

    async def _from_agent(self, running: _Running, message: wire.Message | None) -> None:
        if message is None:
            self._garbage += 1
            if self._garbage in (1, 10, 100) or self._garbage % 1000 == 0:
                log(f"{self._garbage} line(s) of the agent are no messages")
        elif isinstance(message, Answer):
            await self._answered_by_agent(running, message)
        elif message.id is None:
            if message.method in TO_EDITOR:
                params = await self._for_editor(running, message)
                await self.editor.send(Request(message.method, params))
        elif running.services.knows(message.method):
            if len(self._tasks) >= MAX_ASKED:  # it asks, and does not read
                failure = Failure(wire.INTERNAL_ERROR, "earlier calls are not answered yet")
                await running.opened.link.send(Answer(message.id, error=failure))
            else:
                self._spawn(self._serve(running, message))
        elif message.method not in TO_EDITOR:
            failure = Failure(wire.METHOD_NOT_FOUND, "there is no such method in the sandbox")
            await running.opened.link.send(Answer(message.id, error=failure))
        elif len(self._of_agent) >= MAX_ASKED:
            failure = Failure(wire.INTERNAL_ERROR, "the editor has not answered earlier requests")
            await running.opened.link.send(Answer(message.id, error=failure))
        else:
            number = self._number()
            session = _text(message.params, "sessionId")
            self._of_agent[number] = _Asked(message.id, message.method, session)
            params = await self._for_editor(running, message)
            await self.editor.send(Request(message.method, params, number))

    async def _for_editor(self, running: _Running, message: Request) -> Any:
        await running.terminals.look(running.services, message)
        return running.rewriter.request_to_editor(message.method, message.params)

    async def _serve(self, running: _Running, request: Request) -> None:
        if request.method == "terminal/release":
            await running.terminals.released(running.services, request)
        answer = await running.services.call(request)
        await running.opened.link.send(answer)

    async def _answered_by_agent(self, running: _Running, answer: Answer) -> None:
        number = str(answer.id)
        if future := self._own_to_agent.pop(number, None):
            if not future.done():
                future.set_result(None if answer.error else answer.result)
            return
        asked = self._of_editor.pop(number, None)
        if asked is None:
            return
        result, error = answer.result, answer.error
        if error is None and asked.method == "initialize":
            result = agent_answer(result, self.opener.agent)
        elif error is not None and error.code == wire.AUTH_REQUIRED:
            hint = f"{error.message}; in a terminal: agentkernel agent login {self.opener.agent}"
            error = Failure(error.code, hint, error.data)
        result = running.rewriter.answer_to_editor(asked.method, result)
        if asked.method == "session/prompt" and running.settling and not _cancelled(result):
            # The turn's end waits for the user; other sessions do not.
            self._spawn(self._end_turn(running.settling, asked, Answer(asked.id, result, error)))
            return
        await self.editor.send(Answer(asked.id, result, error))

    async def _end_turn(self, settling: Settling, asked: _Asked, answer: Answer) -> None:
        try:
            await settling.settle(asked.session)
        finally:
            await self.editor.send(answer)

    # -- to the editor --------------------------------------------------------------------------

    async def _tell_editor(self, method: str, params: dict[str, Any]) -> None:
        await self.editor.send(Request(method, params))

    async def _ask_editor(self, method: str, params: dict[str, Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number = self._number()
        self._own_to_editor[number] = future
        await self.editor.send(Request(method, params, number))
        return await future

    def _number(self) -> str:
        """Of nobody else: an agent that stays is answered by several bridges in its life."""
        self._count += 1
        return f"{self._mark}-{self._count}"

    # -- the end --------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Questions that nobody can answer any more are cancelled; a turn goes on without us."""
        for task in list(self._tasks):
            task.cancel()
        if (running := self._running) is not None:
            link = running.opened.link
            for asked in self._of_agent.values():
                if asked.method == "session/request_permission":
                    await link.send(Answer(asked.id, CANCELLED))
                else:
                    failure = Failure(wire.INTERNAL_ERROR, "the editor has gone")
                    await link.send(Answer(asked.id, error=failure))
            if not self._ended.is_set():
                await link.flush(_LAST_SECONDS)
            if running.reading is not None:
                running.reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running.reading
            await link.close()
            running.opened.inside.close()
        turns = any(asked.method == "session/prompt" for asked in self._of_editor.values())
        await self.opener.leave(idle=not turns)
        await self.editor.finish()


def _text(params: Any, name: str) -> str:
    value = params.get(name) if isinstance(params, dict) else None
    return value if isinstance(value, str) else ""


def _cancelled(result: Any) -> bool:
    return _text(result, "stopReason") == "cancelled"


def _number_of(asked: dict[str, _Asked], id: Any) -> str | None:
    return next((number for number, known in asked.items() if known.id == id), None)
