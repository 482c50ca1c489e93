"""The daemon as the client of an agent that speaks ACP; `driver` says what a session wants of it.

What must hold: a daemon that is killed leaves an agent that waits for answers. So the number of a
prompt says what it is, questions are in the session's log with their numbers, and calls that are
under way are in a file beside it: the next daemon knows what it is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from agentkernel import __version__
from agentkernel.agents.acp import wire
from agentkernel.agents.acp.permissions import CANCELLED, allowed, chosen, options_of
from agentkernel.agents.acp.services import CAPABILITIES, Inside, Services
from agentkernel.agents.acp.wire import Answer, Failure, Id, Request
from agentkernel.agents.mcp_servers import TOOLS_NAME
from agentkernel.agents.model import McpServer
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SandboxUnavailableError,
)
from agentkernel.ids import new_id
from agentkernel.kernel.agents.driver import Wire
from agentkernel.kernel.agents.model import AgentEvent

MAX_QUESTIONS: Final = 64
_MOST_TASKS: Final = 256
# Of an agent that asks and does not read; fewer than tasks, so that each has one.
_MOST_CALLS: Final = 128
_CANCEL_SECONDS: Final = 10.0
_MOST_KEPT: Final = 1 << 16
_PROMPT: Final = "prompt-"
_CALLS: Final = "calls.json"
_Q: Final = "permission"


@dataclass
class _Question:
    """A permission question that waits for its answer. `rpc`: how the agent calls it."""

    rpc: Id
    params: Any


class _Kept(msgspec.Struct, frozen=True):
    """What the next daemon has to know and no log tells."""

    cwd: str
    calls: list[tuple[int | str, str, Any]]


class AcpDriver:
    """One session's. `attended`: a person answers permission questions; else all are allowed, since
    the sandbox guards. `directory`: the session's own. `attached` is set once something can be
    sent."""

    def __init__(
        self,
        wire: Wire,
        inside: Inside,
        directory: Path,
        *,
        attached: asyncio.Event,
        attended: bool,
        agent: str,
    ) -> None:
        self._wire = wire
        self._inside = inside
        self._services = Services(inside)
        self._file = directory / _CALLS
        self._attached = attached
        self._attended = attended
        self._agent = agent
        self._cwd = ""
        self._session = ""
        self._replaying = False
        self._asked: dict[str, asyncio.Future[Any]] = {}
        # The answer to the turn that was under way when the daemon was started, if it came.
        self._rest: asyncio.Future[Any] | None = None
        self._questions: dict[str, _Question] = {}
        self._calls: dict[str, Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = False

    # -- what a session wants -------------------------------------------------------------------

    async def begin(
        self,
        *,
        cwd: str,
        mcp: Sequence[McpServer],
        load: str | None = None,
        running: str | None = None,
        asked: Sequence[AgentEvent] = (),
    ) -> None:
        if running is not None:
            self._session = running
            self._rest = asyncio.get_running_loop().create_future()
            self._take_up(asked)
            return
        self._services, self._cwd = Services(self._inside, cwd), cwd
        self._keep_calls()
        hello = await self._ask(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": CAPABILITIES,
                "clientInfo": {"name": "agentkernel", "version": __version__},
            },
        )
        if hello.get("protocolVersion") != 1:
            raise ConflictError("the agent speaks another version of the protocol")
        servers = [server_body(one) for one in mcp if _takes(hello, one)]
        given: dict[str, Any] = {"cwd": cwd, "mcpServers": servers}
        if load is not None:
            await self._load(load, given, hello)
            return
        answer = await self._ask("session/new", given)
        session = answer.get("sessionId")
        if not isinstance(session, str) or not 0 < len(session) <= 256:
            raise ConflictError("the agent began no session")
        self._session = session
        self._wire.found(session)

    async def _load(self, session: str, given: dict[str, Any], hello: dict[str, Any]) -> None:
        """What was said before is in the log already: it is not told again."""
        capabilities = hello.get("agentCapabilities")
        known = capabilities if isinstance(capabilities, dict) else {}
        more = known.get("sessionCapabilities")
        resume = isinstance(more, dict) and more.get("resume") is not None
        if not resume and not known.get("loadSession"):
            raise ConflictError("the agent can't go on with a session")
        self._session, self._replaying = session, True
        try:
            method = "session/resume" if resume else "session/load"
            await self._ask(method, {**given, "sessionId": session})
        finally:
            self._replaying = False
        self._wire.found(session)

    async def prompt(self, text: str) -> dict[str, Any]:
        block = {"type": "text", "text": text}
        params = {"sessionId": self._session, "prompt": [block]}
        return await self._ask("session/prompt", params, number=f"{_PROMPT}{new_id()}")

    async def rest(self) -> dict[str, Any]:
        """The result of the turn that a daemon before this one has begun."""
        assert self._rest is not None
        return _result(await self._rest, self._agent)

    async def cancel(self) -> None:
        await self._send(Request("session/cancel", {"sessionId": self._session}))
        for id in list(self._questions):
            await self._reply(id, CANCELLED, None)
        if self._rest is not None and not self._rest.done():
            # Whether the agent ever got that prompt the daemon that sent it knew, maybe.
            loop = asyncio.get_running_loop()
            loop.call_later(_CANCEL_SECONDS, self._give_up, self._rest)

    @staticmethod
    def _give_up(rest: asyncio.Future[Any]) -> None:
        if not rest.done():
            rest.set_exception(ConflictError("how the turn ended is not known"))
            rest.exception()

    async def answer(self, permission: str, option: str | None) -> None:
        question = self._questions.get(permission)
        if question is None:
            raise NotFoundError("there is no such question", hint="it may have been answered")
        if option is None:
            await self._reply(permission, CANCELLED, None)
            return
        known = options_of(question.params)
        if option not in known:
            raise InvalidInputError(
                f"{option[:64]!a} is no option of the question",
                hint=f"options are {', '.join(sorted(known))}",
            )
        await self._reply(permission, chosen(option), option)

    def lost(self) -> None:
        self._gone = True
        waiting = [*self._asked.values(), *([self._rest] if self._rest else [])]
        for future in waiting:
            if not future.done():
                future.set_exception(SandboxUnavailableError("the agent has ended"))
                future.exception()  # nobody may be waiting
        for task in list(self._tasks):
            task.cancel()
        self._inside.close()

    # -- what the agent says --------------------------------------------------------------------

    def feed(self, line: bytes) -> None:
        message = wire.decode(line)
        if isinstance(message, Answer):
            self._answered(message)
        elif message is None:
            return
        elif message.id is None:
            self._told(message)
        else:
            self._asks(message, message.id)

    def _answered(self, answer: Answer) -> None:
        number = str(answer.id)
        future = self._asked.pop(number, None)
        if future is None and number.startswith(_PROMPT):
            future = self._rest
        if future is not None and not future.done():
            future.set_result(answer)

    def _told(self, message: Request) -> None:
        if message.method != "session/update" or not isinstance(message.params, dict):
            return
        if not self._replaying:
            self._wire.tell("agent", message.params)

    def _asks(self, message: Request, id: Id) -> None:
        if self._services.knows(message.method):
            if len(self._calls) >= _MOST_CALLS:
                failure = Failure(wire.INTERNAL_ERROR, "earlier calls are not answered yet")
                self._spawn(self._send(Answer(id, error=failure)))
            elif str(id) not in self._calls:
                self._calls[str(id)] = message
                self._keep_calls()
                self._spawn(self._serve(message, id))
        elif message.method == "session/request_permission":
            self._permission(message, id)
        else:
            failure = Failure(wire.METHOD_NOT_FOUND, "there is no such method")
            self._spawn(self._send(Answer(id, error=failure)))

    async def _serve(self, message: Request, id: Id) -> None:
        answer = await self._services.call(message)
        await self._send(answer)
        self._calls.pop(str(id), None)
        self._keep_calls()

    def _permission(self, message: Request, id: Id) -> None:
        if any(known.rpc == id for known in self._questions.values()):
            return
        number = new_id()
        self._wire.tell(_Q, {"id": number, "request": message.params, "rpc": id})
        if not self._attended:
            answer = allowed(message.params)
            self._wire.tell(_Q, {"id": number, "answer": answer["outcome"], "by": "policy"})
            self._spawn(self._send(Answer(id, answer)))
        elif len(self._questions) >= MAX_QUESTIONS:
            self._wire.tell(_Q, {"id": number, "answer": CANCELLED["outcome"], "by": "policy"})
            self._spawn(self._send(Answer(id, CANCELLED)))
        else:
            self._questions[number] = _Question(id, message.params)

    async def _reply(self, number: str, answer: dict[str, Any], option: str | None) -> None:
        question = self._questions.pop(number, None)
        if question is None:
            return
        self._wire.tell(_Q, {"id": number, "answer": answer["outcome"], "option": option})
        await self._send(Answer(question.rpc, answer))

    # -- to the agent ---------------------------------------------------------------------------

    async def _ask(
        self, method: str, params: dict[str, Any], *, number: str | None = None
    ) -> dict[str, Any]:
        if self._gone:
            raise SandboxUnavailableError("the agent has ended")
        number = number or new_id()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            await self._wire.send(wire.encode(Request(method, params, number)).rstrip(b"\n"))
            return _result(await future, self._agent)
        finally:
            self._asked.pop(number, None)

    async def _send(self, message: wire.Message) -> None:
        with contextlib.suppress(AgentKernelError):  # it has ended, which `lost` tells
            await self._attached.wait()
            await self._wire.send(wire.encode(message).rstrip(b"\n"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= _MOST_TASKS:
            work.close()  # an agent that asks and does not read
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- across daemons -------------------------------------------------------------------------

    def _keep_calls(self) -> None:
        """Those of a size that a file can be written for at each change."""
        kept = [
            (call.id, call.method, call.params)
            for call in self._calls.values()
            if call.id is not None and len(msgspec.json.encode(call.params)) <= _MOST_KEPT
        ]
        with contextlib.suppress(OSError):
            new = self._file.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(_Kept(self._cwd, kept)))
            os.replace(new, self._file)

    def _take_up(self, asked: Sequence[AgentEvent]) -> None:
        for event in asked:
            rpc = event.body.get("rpc")
            if isinstance(rpc, int | str):
                self._questions[str(event.body.get("id"))] = _Question(
                    rpc, event.body.get("request")
                )
        with contextlib.suppress(OSError, msgspec.DecodeError):
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
            self._services, self._cwd = Services(self._inside, kept.cwd), kept.cwd
            for id, method, params in kept.calls:
                self._asks(Request(method, params, id), id)


def _takes(hello: dict[str, Any], server: McpServer) -> bool:
    """Whether the agent can be given it. The sandbox's own tools it may do without; of what the
    user asked for, that has to be said. Raises ConflictError."""
    capabilities = hello.get("agentCapabilities")
    known = capabilities.get("mcpCapabilities") if isinstance(capabilities, dict) else None
    if not server.url or (isinstance(known, dict) and known.get("http") is True):
        return True
    if server.name == TOOLS_NAME:
        return False
    raise ConflictError(
        f"the agent takes no MCP server by HTTP, as {server.name} is",
        hint="leave it out, or use one that is a command",
    )


def server_body(server: McpServer) -> dict[str, Any]:
    """An MCP server as a session is told of it."""
    if server.url:
        headers = [{"name": name, "value": value} for name, value in server.headers.items()]
        return {"type": "http", "name": server.name, "url": server.url, "headers": headers}
    variables = [{"name": name, "value": value} for name, value in server.env.items()]
    command, *words = server.command or [""]
    return {"name": server.name, "command": command, "args": words, "env": variables}


def _result(answer: Any, agent: str) -> dict[str, Any]:
    """Raises ConflictError for an answer that is an error."""
    assert isinstance(answer, Answer)
    if answer.error is not None:
        hint = None
        if answer.error.code == wire.AUTH_REQUIRED:
            hint = f"log in: agentkernel agent login {agent}"
        raise ConflictError(f"the agent says: {answer.error.message[:500]}", hint=hint)
    return answer.result if isinstance(answer.result, dict) else {}
