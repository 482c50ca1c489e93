"""Processes over WebSockets: frames to bytes and back, at the pace of whoever is slower.

What must hold: output is asked of the guest only when what came before is written to the socket, so
the guest's window is all that is ever held; of stdin a window is read ahead, so that a signal gets
past input that the command does not take, and no more. Nothing is gathered: a byte leaves when the
guest writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from agentkernel.errors import InvalidInputError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus, GuestProcess
from agentkernel.guest.protocol import Channel
from agentkernel.server.app import Service, service_of
from agentkernel.server.bodies import Control, status_body
from agentkernel.server.problems import decode, encode, ending, problem

STDIN_WINDOW: Final = 1 << 18
FIRST_MESSAGE_SECONDS: Final = 30.0
# How long a client that does not read may hold up the last words.
LAST_WORDS_SECONDS: Final = 2.0
_HANG_UP_SECONDS: Final = 1.0

T = TypeVar("T")
StreamHandler = Callable[[WebSocket, "Frames"], Coroutine[Any, Any, None]]


def websocket(handler: StreamHandler) -> Callable[[WebSocket], Awaitable[None]]:
    """An endpoint that ends with `exit`, or with an `error` frame; or the client is gone."""

    async def endpoint(socket: WebSocket) -> None:
        service = service_of(socket)
        frames = Frames(socket)
        await socket.accept()
        try:
            with service.stream():
                await _until_end(service, handler(socket, frames))
        except (WebSocketDisconnect, WebSocketDisconnected):
            return
        except Exception as exc:
            await frames.error(exc)
        await frames.close()

    return endpoint


async def _until_end(service: Service, work: Coroutine[Any, Any, None]) -> None:
    """Carries `work` out unless the daemon ends first; then it is cancelled, and DaemonError."""
    task = asyncio.ensure_future(work)
    end = asyncio.ensure_future(service.stopping.wait())
    try:
        await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ending()
        task.result()
    finally:
        end.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def first_message(socket: WebSocket, kind: type[T]) -> T:
    """What the stream is to do: JSON, as text."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        raise InvalidInputError(f"no message came within {FIRST_MESSAGE_SECONDS:g} s") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text")
    if text is None:
        raise InvalidInputError("the first message is JSON, as text")
    return decode(text, kind)


class Frames:
    """The frames of one WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._deaf = False

    async def carry(
        self,
        process: GuestProcess,
        *,
        stdin: bool,
        offsets: Mapping[Channel, int] | None = None,
    ) -> None:
        """Both directions until the process ends, whose `status` then is there; without one it was
        lost. `offsets`: where its output begins, if jumps in it are to be told.

        Raises WebSocketDisconnect, and InvalidInputError for frames that are none.
        """
        source = _Stdin(process, self._socket)
        output = asyncio.ensure_future(self._output(process, offsets))
        tasks = [
            output,
            asyncio.ensure_future(self._input(process, source if stdin else None)),
            asyncio.ensure_future(source.feed()),
        ]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            # A client that was heard to be gone matters less than how the command ended.
            (output if output.done() else tasks[1]).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def exit(self, status: ExitStatus) -> None:
        await self._control({"event": "exit", **status_body(status)})

    async def error(self, error: BaseException) -> None:
        await self._last({"event": "error", **problem(error)})

    async def close(self) -> None:
        await self._last(None)

    async def _last(self, body: dict[str, Any] | None) -> None:
        """A client that does not read these is not waited for: the connection is cut."""
        if self._deaf:
            return
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                if body is None:
                    await self._socket.close()
                else:
                    await self._control(body)
        except (TimeoutError, WebSocketDisconnect, WebSocketDisconnected):
            self._deaf = True

    async def _control(self, body: dict[str, Any]) -> None:
        await self._socket.send_bytes(b"\3" + encode(body))

    # -- from the process -----------------------------------------------------------------------

    async def _output(self, process: GuestProcess, offsets: Mapping[Channel, int] | None) -> None:
        expected = None if offsets is None else dict(offsets)
        with contextlib.suppress(SandboxUnavailableError):
            await process.started()
            if process.pid is not None:
                await self._control({"event": "started", "pid": process.pid})
            while (chunk := await process.output()) is not None:
                if expected is not None:
                    if chunk.offset != expected[chunk.channel]:
                        await self._control(
                            {
                                "event": "offset",
                                "channel": int(chunk.channel),
                                "offset": chunk.offset,
                            }
                        )
                    expected[chunk.channel] = chunk.offset + len(chunk.data)
                await self._socket.send_bytes(bytes((chunk.channel,)) + chunk.data)

    # -- from the client ------------------------------------------------------------------------

    async def _input(self, process: GuestProcess, stdin: _Stdin | None) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            data = message.get("bytes")
            if not data:
                raise InvalidInputError("a frame is a binary message whose first byte is a channel")
            if data[0] == Channel.CONTROL:
                await _obey(process, stdin, decode(data[1:], Control))
            elif data[0] != Channel.STDIN:
                raise InvalidInputError(f"{data[0]} is not a channel of a client")
            elif stdin is None:
                raise InvalidInputError(
                    "the command has no stdin", hint='ask for it: "stdin": true'
                )
            else:
                await stdin.put(data[1:])


async def _obey(process: GuestProcess, stdin: _Stdin | None, control: Control) -> None:
    if control.signal is not None:
        process.signal(control.signal)
    if control.kill:
        process.kill()
    if control.rows is not None and control.columns is not None:
        process.resize(control.rows, control.columns)
    if control.eof and stdin is not None:
        await stdin.put(None)


class _Stdin:
    """A window of input on its way to a process. None is its end."""

    def __init__(self, process: GuestProcess, socket: WebSocket) -> None:
        self._process = process
        self._hung_up: Callable[[], bool] = socket.scope.get("state", {}).get("hung_up", _never)
        self._pieces: deque[bytes | None] = deque()
        self._held = 0
        self._ended = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, data: bytes | None) -> None:
        """Returns when there is room for more. Meanwhile nothing is read from the socket, so that
        its other end is gone has to be looked for."""
        if self._ended and data is not None:
            raise InvalidInputError("stdin was ended before")
        self._ended = data is None
        self._pieces.append(data)
        self._held += len(data or b"")
        self._filled.set()
        while self._held > STDIN_WINDOW:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HANG_UP_SECONDS):
                    await self._room.wait()
            if self._hung_up():
                raise WebSocketDisconnect(1006)

    async def feed(self) -> None:
        with contextlib.suppress(SandboxUnavailableError):
            while True:
                while not self._pieces:
                    self._filled.clear()
                    await self._filled.wait()
                piece = self._pieces.popleft()
                if piece is None:
                    self._process.close_stdin()
                    continue
                await self._process.write(piece)
                self._held -= len(piece)
                self._room.set()


def _never() -> bool:
    return False
