"""Processes over WebSockets: frames to bytes and back, at the pace of whoever is slower.

What must hold: output is asked of the guest only when what came before is written to the socket, so
the guest's window is all that is ever held. Of stdin a window is read ahead and no more; a client
that goes by what it is told was taken never has more under way, so its signals always get past
input that the command does not take. Nothing is gathered: a byte leaves when the guest writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import typing
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from agentkernel.backends.base import Progress
from agentkernel.errors import InvalidInputError, SandboxUnavailableError
from agentkernel.guest.processes import AttachedProcess, Chunk, ExitStatus
from agentkernel.guest.protocol import Channel
from agentkernel.server import controls
from agentkernel.server.answers import status_fields
from agentkernel.server.app import Service, service_of
from agentkernel.server.bodies import Control
from agentkernel.server.callers import Scope, caller_of
from agentkernel.server.operations import Operation, Tag, declare
from agentkernel.server.problems import decode, encode, problem, read_query

STDIN_WINDOW: Final = 1 << 18
# What was taken is told when it is this much.
_TELL_TAKEN: Final = STDIN_WINDOW // 4
_HANG_UP_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2
_OUTPUTS: Final = (Channel.STDOUT, Channel.STDERR)

T = TypeVar("T")
StreamHandler = Callable[..., Coroutine[Any, Any, None]]


def websocket(
    path: str, handler: StreamHandler, *, needs: Scope, id: str, summary: str, tag: Tag
) -> WebSocketRoute:
    """A route whose stream ends with `exit`, or with an `error` frame; or the client is gone.

    As in `route`, the handler's signature says how it is asked: `query` is the query, and `first`
    the first message.
    """
    hints = typing.get_type_hints(handler)
    query, first = hints.get("query"), hints.get("first")
    operation = Operation(
        id=id,
        method="GET",
        path=path,
        summary=summary,
        tag=tag,
        needs=needs,
        query=query,
        body=first,
        answers={101: None},
        websocket=True,
    )

    async def carry(socket: WebSocket, frames: Frames) -> None:
        given: dict[str, Any] = {}
        if query is not None:
            given["query"] = read_query(socket, query)
        if first is not None:
            given["first"] = await first_message(socket, first)
        await handler(socket, frames, **given)

    async def endpoint(socket: WebSocket) -> None:
        service = service_of(socket)
        frames = Frames(socket)
        await socket.accept()
        try:
            caller_of(socket).check(needs)
            with service.stream():
                await _until_end(service, carry(socket, frames))
        except (WebSocketDisconnect, WebSocketDisconnected):
            return
        except Exception as exc:
            await frames.error(exc)
        await frames.close()

    return declare(WebSocketRoute(path, endpoint), operation)


async def _until_end(service: Service, work: Coroutine[Any, Any, None]) -> None:
    """Carries `work` out unless its time is over first: then it is cancelled, and that raised."""
    task = asyncio.ensure_future(work)
    end = asyncio.ensure_future(service.over())
    try:
        await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise end.result()
        task.result()
    finally:
        end.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def first_message(socket: WebSocket, kind: type[T]) -> T:
    """What the stream is to do: JSON, as text."""
    seconds = service_of(socket).bounds.first_message_seconds
    try:
        async with asyncio.timeout(seconds):
            message = await socket.receive()
    except TimeoutError:
        raise InvalidInputError(f"no message came within {seconds:g} s") from None
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
        self._dropped = 0
        self._started = asyncio.Event()
        self._hung_up: Callable[[], bool] = socket.scope.get("state", {}).get("hung_up", _never)

    async def prepare(self, make: Callable[[Progress], Coroutine[Any, Any, T]]) -> T:
        """Carries out what comes before the command and tells of its progress. A client that goes
        away meanwhile cancels it."""
        loop = asyncio.get_running_loop()
        texts: asyncio.Queue[str] = asyncio.Queue()

        def progress(text: str) -> None:
            """Called in the thread that makes the image."""
            loop.call_soon_threadsafe(texts.put_nowait, text)

        work = asyncio.ensure_future(make(progress))
        tasks = (
            work,
            asyncio.ensure_future(self._left()),
            asyncio.ensure_future(self._tell_progress(texts)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            left = not work.done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if left:
            raise WebSocketDisconnect(1006)
        while not texts.empty():
            await self._control(controls.Progress(text=texts.get_nowait()))
        return work.result()

    async def _left(self) -> None:
        while not self._hung_up():  # noqa: ASYNC110 (nobody tells: nothing is read meanwhile)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tell_progress(self, texts: asyncio.Queue[str]) -> None:
        while True:
            await self._control(controls.Progress(text=await texts.get()))

    async def notice(self, text: str) -> None:
        """Something that holds for the command and its user should know."""
        await self._control(controls.Notice(text=text))

    async def published(self, port: int, address: str, host_port: int) -> None:
        await self._control(controls.Published(port=port, address=address, host_port=host_port))

    async def carry(
        self,
        process: AttachedProcess,
        *,
        stdin: bool,
        offsets: Mapping[Channel, int] | None = None,
        until: Mapping[Channel, int] | None = None,
        output_bytes: int | None = None,
    ) -> bool:
        """Both directions until the process ends, whose `status` then is there; without one it was
        lost. False: it goes on, and its output was delivered up to `until`. `offsets`: where its
        output begins, if jumps in it are to be told. `output_bytes`: what of each of stdout and
        stderr is delivered; the rest is counted.

        Raises WebSocketDisconnect, and InvalidInputError for frames that are none.
        """
        source = _Stdin(process, self._hung_up)
        output = asyncio.ensure_future(self._output(process, offsets, until, output_bytes))
        tasks: list[asyncio.Future[Any]] = [
            output,
            asyncio.ensure_future(self._input(process, source if stdin else None)),
        ]
        if stdin:
            tasks += [
                asyncio.ensure_future(source.feed()),
                asyncio.ensure_future(self._tell_taken(source)),
            ]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            # A client that was heard to be gone matters less than how the command ended.
            (output if output.done() else tasks[1]).result()
            return output.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def exit(self, status: ExitStatus) -> None:
        dropped = status.dropped_bytes + self._dropped
        status = msgspec.structs.replace(status, dropped_bytes=dropped)
        await self._control(controls.Exit(**status_fields(status), truncated=dropped > 0))

    async def caught_up(self, process: AttachedProcess) -> None:
        """All that was there is delivered; the process goes on."""
        out, err = (process.offsets[channel] for channel in (Channel.STDOUT, Channel.STDERR))
        await self._control(controls.CaughtUp(stdout_offset=out, stderr_offset=err))

    async def error(self, error: BaseException) -> None:
        await self._last(controls.Failed(**problem(error)))

    async def close(self) -> None:
        await self._last(None)

    async def _last(self, body: controls.ServerControl | None) -> None:
        """A client that does not read these is not waited for: the connection is cut."""
        if self._deaf:
            return
        try:
            async with asyncio.timeout(service_of(self._socket).bounds.last_words_seconds):
                if body is None:
                    await self._socket.close()
                else:
                    await self._control(body)
        except (TimeoutError, WebSocketDisconnect, WebSocketDisconnected):
            self._deaf = True

    async def _control(self, body: controls.ServerControl) -> None:
        await self._socket.send_bytes(b"\3" + encode(body))

    # -- from the process -----------------------------------------------------------------------

    async def _output(
        self,
        process: AttachedProcess,
        offsets: Mapping[Channel, int] | None,
        until: Mapping[Channel, int] | None,
        output_bytes: int | None,
    ) -> bool:
        """See `carry`, whose answer this is."""
        expected = None if offsets is None else dict(offsets)
        room = None if output_bytes is None else dict.fromkeys(_OUTPUTS, output_bytes)
        with contextlib.suppress(SandboxUnavailableError):
            await process.started()
            if process.pid is not None:
                await self._control(
                    controls.Started(
                        pid=process.pid,
                        stdin_window=STDIN_WINDOW,
                        stdin_offset=process.input_bytes,
                    )
                )
                self._started.set()
            while True:
                if until and all(process.offsets[channel] >= until[channel] for channel in until):
                    return False
                chunk = await process.output()
                if chunk is None:
                    break
                if expected is not None:
                    if chunk.offset != expected[chunk.channel]:
                        await self._control(
                            controls.Offset(channel=_number(chunk.channel), offset=chunk.offset)
                        )
                    expected[chunk.channel] = chunk.offset + len(chunk.data)
                if room is None:
                    await self._socket.send_bytes(bytes((chunk.channel,)) + chunk.data)
                else:
                    await self._send_within(room, chunk)
        return True

    async def _send_within(self, room: dict[Channel, int], chunk: Chunk) -> None:
        """As much of it as there is room for; where the room ends is told once."""
        data, left = chunk.data, room[chunk.channel]
        if left < 0:
            self._dropped += len(data)
            return
        if data := data[:left]:
            await self._socket.send_bytes(bytes((chunk.channel,)) + data)
        room[chunk.channel] = left - len(data)
        if over := len(chunk.data) - len(data):
            self._dropped += over
            room[chunk.channel] = -1
            end = chunk.offset + len(data)
            await self._control(controls.Truncated(channel=_number(chunk.channel), offset=end))

    # -- from the client ------------------------------------------------------------------------

    async def _tell_taken(self, stdin: _Stdin) -> None:
        await self._started.wait()
        told = 0
        while True:
            taken = await stdin.taken(told + _TELL_TAKEN)
            await self._control(controls.Taken(bytes=taken))
            told = taken

    async def _input(self, process: AttachedProcess, stdin: _Stdin | None) -> None:
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


async def _obey(process: AttachedProcess, stdin: _Stdin | None, control: Control) -> None:
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

    def __init__(self, process: AttachedProcess, hung_up: Callable[[], bool]) -> None:
        self._process = process
        self._hung_up = hung_up
        self._pieces: deque[bytes | None] = deque()
        self._held = 0
        self._ended = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._taken = 0
        self._was_taken = asyncio.Event()

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
                self._taken += len(piece)
                self._room.set()
                self._was_taken.set()

    async def taken(self, least: int) -> int:
        """How many bytes are on their way to the process, once it is so many."""
        while self._taken < least:
            self._was_taken.clear()
            await self._was_taken.wait()
        return self._taken


def _number(channel: Channel) -> Literal[1, 2]:
    return 1 if channel is Channel.STDOUT else 2


def _never() -> bool:
    return False
