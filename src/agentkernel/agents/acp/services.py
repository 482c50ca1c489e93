"""What an agent asks of its client's machine, done in its sandbox: files and terminals.

An agent that has them from the editor would change the project's files behind the copy-on-write,
and run commands on the host. So whoever stands between says that it has both and carries them out
where the agent is: by calls of `Inside`, all of which run in the sandbox with the agent's rights.
A terminal is a job, and its id the job's: so it outlives whoever serves it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from agentkernel.agents.acp import wire
from agentkernel.agents.acp.wire import Answer, Failure, Request
from agentkernel.errors import AgentKernelError, GuestFileError, GuestFileNotFoundError

log = logging.getLogger("agentkernel.acp")
T = TypeVar("T")

MAX_READ: Final = 8 << 20
"""Of a file, with all of which one line has to have room."""
MAX_OUTPUT: Final = 1 << 20
MAX_TERMINALS: Final = 32
MAX_COMMAND: Final = 1 << 17
"""Of a terminal's command, with its words and variables."""
MAX_CALLS: Final = 64
"""Calls of one agent under way at once."""
_MOST_PATH: Final = 4096
_LINE: Final = 'exec 2>&1; eval "$0"'
_PROGRAM: Final = 'exec "$0" "$@" 2>&1'

CAPABILITIES: Final[dict[str, Any]] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
}
"""Of the clientCapabilities that an agent is told."""


class Exit(NamedTuple):
    """How a terminal's command ended; both None: it could not be started or was lost."""

    code: int | None = None
    signal: int | None = None


class Output(NamedTuple):
    """The newest of what a terminal has shown; `cut`: there was more."""

    data: bytes
    cut: bool
    exit: Exit | None


class Inside(Protocol):
    """The sandbox. All raise AgentKernelError, and NotFoundError for a terminal that is none of
    this sandbox's."""

    async def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file."""

    async def write(self, path: str, data: bytes) -> None: ...

    async def start(
        self, argv: list[str], *, env: dict[str, str], cwd: str | None, keep: int
    ) -> str:
        """A terminal's id. `keep`: bytes of its output that are kept, the newest."""

    async def output(self, id: str) -> Output: ...

    async def wait(self, id: str) -> Exit: ...

    async def kill(self, id: str) -> None: ...

    async def release(self, id: str) -> None:
        """Killed, and not shown any more."""

    def close(self) -> None:
        """Nobody asks any more; what runs goes on."""


class RefusedError(Exception):
    """The call's answer is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Services:
    """The calls of one agent. `cwd`: where a command begins that does not say where."""

    def __init__(self, inside: Inside, cwd: str | None = None) -> None:
        self._inside = inside
        self._cwd = cwd
        self._limits: dict[str, int] = {}
        self._under_way = 0
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }

    def knows(self, method: str) -> bool:
        return method in self._methods

    async def call(self, request: Request) -> Answer:
        """Always an answer."""
        assert request.id is not None
        if self._under_way >= MAX_CALLS:
            failure = Failure(wire.INTERNAL_ERROR, f"more than {MAX_CALLS} calls at once")
            return Answer(request.id, error=failure)
        self._under_way += 1
        try:
            params = request.params
            if not isinstance(params, dict):
                raise RefusedError(wire.INVALID_PARAMS, "params is not an object")
            return Answer(request.id, await self._methods[request.method](params))
        except RefusedError as refused:
            return Answer(request.id, error=Failure(refused.code, str(refused)))
        except AgentKernelError as error:
            return Answer(request.id, error=failure_of(error))
        except Exception as error:
            # An agent that waits for its answer for ever is worse than one that is told nothing.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("internal error: %s\n%s", type(error).__name__, places)
            return Answer(request.id, error=Failure(wire.INTERNAL_ERROR, "the call failed"))
        finally:
            self._under_way -= 1

    # -- files ----------------------------------------------------------------------------------

    async def _read(self, params: dict[str, Any]) -> dict[str, Any]:
        path = _path(params, "path")
        line, limit = _count(params, "line"), _count(params, "limit")
        data = await self._inside.read(path, MAX_READ + 1)
        if len(data) > MAX_READ:
            raise RefusedError(
                wire.INVALID_PARAMS,
                f"{path} has more than {MAX_READ >> 20} MiB; read a part of it with a command",
            )
        text = data.decode("utf-8", "replace")
        if line is None and limit is None:
            return {"content": text}
        lines = text.splitlines(keepends=True)
        start = max(0, (line or 1) - 1)
        end = len(lines) if limit is None else start + limit
        return {"content": "".join(lines[start:end])}

    async def _write(self, params: dict[str, Any]) -> dict[str, Any]:
        path, content = _path(params, "path"), params.get("content")
        if not isinstance(content, str):
            raise RefusedError(wire.INVALID_PARAMS, "content is not a text")
        await self._inside.write(path, content.encode("utf-8", "replace"))
        return {}

    # -- terminals ------------------------------------------------------------------------------

    async def _create(self, params: dict[str, Any]) -> dict[str, Any]:
        command, words = params.get("command"), params.get("args") or []
        if not isinstance(command, str) or not command or "\0" in command:
            raise RefusedError(wire.INVALID_PARAMS, "command is not a text")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise RefusedError(wire.INVALID_PARAMS, "args are not texts")
        environment = _environment(params)
        # What a kernel would refuse is not kept as a job either.
        if sum(map(len, (command, *words, *environment, *environment.values()))) > MAX_COMMAND:
            raise RefusedError(wire.INVALID_PARAMS, "the command is too long")
        cwd = self._cwd if params.get("cwd") is None else _path(params, "cwd")
        limit = _count(params, "outputByteLimit")
        keep = MAX_OUTPUT if limit is None else min(limit, MAX_OUTPUT)
        self._check_room()
        id = await self._inside.start(
            shell_words(command, words), env=environment, cwd=cwd, keep=max(keep, 1)
        )
        self._limits[id] = keep
        return {"terminalId": id}

    async def _output(self, params: dict[str, Any]) -> dict[str, Any]:
        id = _terminal(params)
        output = await self._of(id, self._inside.output)
        keep = self._limits.get(id, MAX_OUTPUT)
        data = output.data[-keep:] if keep else b""
        body: dict[str, Any] = {
            "output": _whole(data).decode("utf-8", "replace"),
            "truncated": output.cut or len(data) < len(output.data),
        }
        if output.exit is not None:
            body["exitStatus"] = _exit_status(output.exit)
        return body

    async def _wait(self, params: dict[str, Any]) -> dict[str, Any]:
        return _exit_status(await self._of(_terminal(params), self._inside.wait))

    async def _kill(self, params: dict[str, Any]) -> dict[str, Any]:
        await self._of(_terminal(params), self._inside.kill)
        return {}

    async def _release(self, params: dict[str, Any]) -> dict[str, Any]:
        id = _terminal(params)
        await self._of(id, self._inside.release)
        self._limits.pop(id, None)
        return {}

    def _check_room(self) -> None:
        if len(self._limits) >= MAX_TERMINALS:
            raise RefusedError(
                wire.INTERNAL_ERROR,
                f"there are {MAX_TERMINALS} terminals; release those that are not needed any more",
            )

    async def _of(self, id: str, call: Callable[[str], Awaitable[T]]) -> T:
        """One that somebody before us has started counts from now on, and so does one that was
        released and is asked for again: what is known of each takes room."""
        is_new = id not in self._limits
        if is_new:
            self._check_room()
            self._limits[id] = MAX_OUTPUT
        try:
            return await call(id)
        except AgentKernelError:
            if is_new:
                self._limits.pop(id, None)
            raise

    async def shown(self, id: str) -> str:
        """A terminal's output as text, for whoever can't show a terminal; empty if there is
        none."""
        try:
            async with asyncio.timeout(5.0):
                body = await self._output({"terminalId": id})
        except (AgentKernelError, RefusedError, TimeoutError):
            return ""
        return str(body["output"])


def shell_words(command: str, words: list[str]) -> list[str]:
    """A terminal shows both of a command's streams in the order in which they were written. A
    command without words that could not be a program's name is a shell's line, as editors take
    it."""
    if not words and any(letter in command for letter in " \t\n|&;<>()$`\"'*?#~="):
        return ["/bin/sh", "-c", _LINE, command]
    return ["/bin/sh", "-c", _PROGRAM, command, *words]


def is_terminal(argv: list[str]) -> bool:
    """Whether a job was started as one, and not the agent itself, say."""
    return argv[:2] == ["/bin/sh", "-c"] and argv[2:3] in ([_LINE], [_PROGRAM])


def failure_of(error: AgentKernelError) -> Failure:
    """An error of ours as JSON-RPC has it; what to do about it is part of what people read."""
    code = wire.INTERNAL_ERROR
    if isinstance(error, GuestFileNotFoundError):
        code = wire.NOT_FOUND
    elif isinstance(error, GuestFileError):
        code = wire.INVALID_PARAMS
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    return Failure(code, message, {"agentkernel": error.to_dict()})


def _path(params: dict[str, Any], name: str) -> str:
    path = params.get(name)
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise RefusedError(wire.INVALID_PARAMS, f"{name} is not an absolute path")
    if len(path) > _MOST_PATH:
        raise RefusedError(wire.INVALID_PARAMS, f"{name} is too long")
    return path


def _count(params: dict[str, Any], name: str) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise RefusedError(wire.INVALID_PARAMS, f"{name} is not a number")
    return value


def _terminal(params: dict[str, Any]) -> str:
    id = params.get("terminalId")
    if not isinstance(id, str) or not id.isalnum() or len(id) > 64:
        raise RefusedError(wire.INVALID_PARAMS, "terminalId is not one of a terminal")
    return id


def _environment(params: dict[str, Any]) -> dict[str, str]:
    entries = params.get("env") or []
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else []:
        name, value = (
            (entry.get("name"), entry.get("value")) if isinstance(entry, dict) else ("", "")
        )
        if not isinstance(name, str) or not name or "=" in name or not isinstance(value, str):
            raise RefusedError(wire.INVALID_PARAMS, "env is not a list of names and values")
        if "\0" in name + value:
            raise RefusedError(wire.INVALID_PARAMS, "env has a NUL")
        found[name] = value
    return found


def _exit_status(exit: Exit) -> dict[str, Any]:
    name = None
    if exit.signal is not None:
        known = {number.value: number.name for number in signal.Signals}
        name = known.get(exit.signal, f"SIG{exit.signal}")
    return {"exitCode": exit.code, "signal": name}


def _whole(data: bytes) -> bytes:
    """Without the end of a character whose beginning was cut off."""
    for start in range(min(4, len(data))):
        if data[start] & 0xC0 != 0x80:
            return data[start:]
    return data
