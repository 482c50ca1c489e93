"""The channel to one agentd: one socket, many streams, bounded memory on our side.

Life: `GuestChannel.connect` → `open` and `call` → `close`, or the guest goes away and every stream
raises. Nothing here retries: whoever owns the sandbox decides what a lost channel means.

What must hold: a stream buffers at most its window of output, because the guest may only send what
was granted; a guest that sends more, or floods control messages, loses the channel.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Any, NamedTuple, cast

from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    GuestProtocolError,
    GuestTimeoutError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
    SandboxUnavailableError,
    UnsupportedError,
)
from agentkernel.guest import protocol
from agentkernel.guest.protocol import AgentHello, Channel, Frame, FrameType

SOCKET_NAME = "s"
_MAX_CONTROL_BACKLOG = 256
_REQUEST_ERRORS: dict[str, type[AgentKernelError]] = {
    "bad_request": InvalidInputError,
    "no_such_op": UnsupportedError,
    "no_such_process": NotFoundError,
    "busy": ResourceExhaustedError,
    "exists": ConflictError,
    "replaced": ConflictError,
}


class Output(NamedTuple):
    """Bytes a process wrote. Call `Stream.consumed` when they are out of our hands."""

    channel: Channel
    data: bytes


class Control(NamedTuple):
    body: dict[str, Any]


class End(NamedTuple):
    body: dict[str, Any]


Message = Output | Control | End


def connect_socket(directory: str) -> socket.socket:
    """A non-blocking socket connected to `directory`/s.

    Through the directory's descriptor, so that a long path does not meet the 108-byte limit. A
    dead sandbox refuses at once; a stopped one accepts (the backlog does), which the handshake's
    deadline finds out.
    """
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
    except OSError as exc:
        sock.close()
        raise SandboxUnavailableError(f"the sandbox does not answer: {exc.strerror}") from None
    finally:
        os.close(fd)
    return sock


class Stream:
    """One logical stream. Iterate it for messages; it ends after `End` or raises."""

    def __init__(self, channel: GuestChannel, number: int, window: int, send_credit: int) -> None:
        self.number = number
        self._channel = channel
        self._window = window
        self._granted = {Channel.STDOUT: window, Channel.STDERR: window}
        self._unacknowledged = {Channel.STDOUT: 0, Channel.STDERR: 0}
        self._send_credit = send_credit
        # Control messages wait undecoded: decoded, bytes of MessagePack may take a hundred times.
        self._messages: deque[Message | bytes] = deque()
        self._control_backlog = 0
        self._failure: AgentKernelError | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._credit_wakeup: asyncio.Future[None] | None = None
        self.ended = False

    # -- called by the channel ------------------------------------------------------------------

    def _deliver(self, message: Message | bytes) -> None:
        if isinstance(message, Output):
            if not message.data:
                # Costs no credit, so nothing would bound how many of them are held.
                raise GuestProtocolError("agentd sent output without a byte")
            granted = self._granted[message.channel] - len(message.data)
            if granted < 0:
                raise GuestProtocolError("agentd sent more than it was granted")
            self._granted[message.channel] = granted
        elif isinstance(message, bytes):
            if len(message) > protocol.MAX_CONTROL:
                raise GuestProtocolError("agentd sent a control message that is too large")
            # Decoded here to see that it is a map; and what an attached process can take of input
            # counts from now on, whenever its owner gets to read this.
            body = protocol.parse_map(message)
            if body.get("ev") == "attached":
                credit = body.get("credit")
                self._credit(credit if isinstance(credit, int) and credit > 0 else 0)
            self._control_backlog += 1
            if self._control_backlog > _MAX_CONTROL_BACKLOG:
                raise GuestProtocolError("agentd floods control messages")
        else:
            self.ended = True
        self._messages.append(message)
        _wake(self._wakeup)

    def _fail(self, error: AgentKernelError) -> None:
        self.ended = True
        self._failure = error
        _wake(self._wakeup)
        _wake(self._credit_wakeup)

    def _credit(self, amount: int) -> None:
        self._send_credit += amount
        if self._send_credit > 1 << 31:
            raise GuestProtocolError("agentd grants absurd credit")
        _wake(self._credit_wakeup)

    # -- called by the owner --------------------------------------------------------------------

    async def peek(self) -> Message:
        """The next message, which stays the next."""
        while not self._messages:
            if self._failure:
                raise self._failure
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        message = self._messages[0]
        if not isinstance(message, bytes):
            return message
        decoded = self._messages[0] = Control(protocol.parse_map(message))
        return decoded

    async def next(self) -> Message:
        message = await self.peek()
        self._messages.popleft()
        if isinstance(message, Control):
            self._control_backlog -= 1
        return message

    def consumed(self, channel: Channel, amount: int) -> None:
        """Says that `amount` bytes are out of our hands; grants as much again, in batches."""
        pending = self._unacknowledged[channel] + amount
        if pending * 4 >= self._window and not self.ended:
            self._granted[channel] += pending
            self._channel.write(protocol.credit_frame(self.number, channel, pending))
            pending = 0
        self._unacknowledged[channel] = pending

    async def send(self, data: bytes) -> None:
        """Sends to channel 0 as credit and the socket allow. A stream that ended swallows it."""
        view = memoryview(data)
        while view and not self.ended:
            if not self._send_credit:
                self._credit_wakeup = asyncio.get_running_loop().create_future()
                await self._credit_wakeup
                continue
            part = view[: min(self._send_credit, 1 << 16)]
            self._send_credit -= len(part)
            self._channel.write(protocol.data_frame(self.number, Channel.STDIN, bytes(part)))
            view = view[len(part) :]
            await self._channel.drain()
        if self._failure:
            raise self._failure

    def control(self, **body: Any) -> None:
        if not self.ended:
            self._channel.write(protocol.control_frame(self.number, body))

    def fail(self, error: AgentKernelError) -> None:
        """Lets go of the stream, and has whoever waits for it raise `error`."""
        self.release()
        self._fail(error)

    def release(self) -> None:
        """Lets go of the stream: a job goes on, anything else may be ended by agentd."""
        if not self.ended:
            self.ended = True
            self._channel.write(protocol.map_frame(self.number, FrameType.END, {}))
        self._channel.forget(self.number)


class GuestChannel(asyncio.Protocol):
    """See the module. Made by `connect` only."""

    def __init__(self, token: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._token = token
        self._nonce = os.urandom(protocol.NONCE_BYTES)
        self._parser = protocol.FrameParser()
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._last_stream = -1
        self._writable: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[AgentHello] = loop.create_future()
        self.closed: asyncio.Future[AgentKernelError] = loop.create_future()
        self.agent: AgentHello

    @classmethod
    async def connect(cls, directory: str, token: bytes, *, seconds: float = 5.0) -> GuestChannel:
        """Connects to the agentd whose socket is in `directory` and has it prove itself."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(
            lambda: cls(token), sock=connect_socket(directory)
        )
        try:
            async with asyncio.timeout(seconds):
                channel.agent = await channel._greeting
        except TimeoutError:
            channel.close()
            raise GuestTimeoutError(
                f"agentd did not answer within {seconds:g} s",
                hint="the sandbox may be stopped or starved; stop and start it",
            ) from None
        except AgentKernelError:
            channel.close()
            raise
        return channel

    async def call(self, op: str, *, seconds: float = 10.0, **arguments: Any) -> dict[str, Any]:
        """One question, one answer."""
        stream = self.open(op, **arguments)
        try:
            async with asyncio.timeout(seconds):
                while not isinstance(message := await stream.next(), End):
                    pass
            return message.body
        except TimeoutError:
            raise GuestTimeoutError(f"agentd did not answer {op} within {seconds:g} s") from None
        finally:
            stream.release()

    def open(self, op: str, *, window: int = protocol.DEFAULT_WINDOW, **arguments: Any) -> Stream:
        if self.closed.done():
            raise self.closed.result()
        self._last_stream += 2
        number = self._last_stream
        # An attached process says itself how much it can take; a new one can take this much.
        send_credit = 0 if op == "attach" else protocol.STDIN_CREDIT
        stream = Stream(self, number, window, send_credit)
        self._streams[number] = stream
        body = {"op": op, "window": window, **arguments}
        opening = protocol.map_frame(number, FrameType.OPEN, body)
        if len(opening) > protocol.MAX_LENGTH:
            self.forget(number)
            raise InvalidInputError(
                "the request is too large for the guest channel",
                hint="arguments and environment together may have 1 MiB",
            )
        self.write(opening)
        return stream

    def forget(self, number: int) -> None:
        self._streams.pop(number, None)

    def write(self, data: bytes) -> None:
        if self._transport and not self.closed.done():
            self._transport.write(data)

    async def drain(self) -> None:
        if self._writable:
            await self._writable

    def close(self) -> None:
        self._lose(SandboxUnavailableError("the channel was closed"))

    # -- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        self._transport.write(protocol.host_hello(self._nonce))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._parser.feed(data):
                self._receive(frame)
        except GuestProtocolError as exc:
            self._lose(exc)

    def eof_received(self) -> None:
        self._lose(SandboxUnavailableError("the sandbox has ended"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(SandboxUnavailableError("the sandbox has ended"))

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writable)
        self._writable = None

    # -- frames ---------------------------------------------------------------------------------

    def _receive(self, frame: Frame) -> None:
        if self.closed.done():
            return
        if not self._greeting.done():
            hello = protocol.check_agent_hello(frame, self._token, self._nonce)
            self.write(protocol.host_proof(self._token, hello.nonce, self._nonce))
            self._greeting.set_result(hello)
            return
        if frame.stream == 0 or frame.stream > self._last_stream or not frame.stream % 2:
            raise GuestProtocolError(f"agentd used stream {frame.stream}, which was never opened")
        stream = self._streams.get(frame.stream)
        if stream is None or stream.ended:
            return  # it crossed our END
        match frame.type:
            case FrameType.DATA:
                channel, data = protocol.parse_data(frame.payload)
                if channel is Channel.CONTROL:
                    stream._deliver(data)
                else:
                    stream._deliver(Output(channel, data))
            case FrameType.CREDIT:
                _, amount = protocol.parse_credit(frame.payload)
                stream._credit(amount)
            case FrameType.END:
                stream._deliver(End(protocol.parse_map(frame.payload)))
            case FrameType.ERROR:
                stream._fail(_request_error(protocol.parse_map(frame.payload)))
            case _:
                raise GuestProtocolError(f"agentd sent {frame.type.name} on a stream")

    def _lose(self, error: AgentKernelError) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        if not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()  # retrieved: connect may already have given up
        for stream in self._streams.values():
            if not stream.ended:
                stream._fail(error)
        _wake(self._writable)
        self._writable = None
        if self._transport:
            self._transport.abort()


def _request_error(body: dict[str, Any]) -> AgentKernelError:
    code, message = str(body.get("code", "?"))[:64], str(body.get("message", ""))[:500]
    kind = _REQUEST_ERRORS.get(code, SandboxUnavailableError)
    details = {"agent_code": code}
    if isinstance(path := body.get("path"), bytes):
        details["agent_path"] = path[:4096].decode("utf-8", "backslashreplace")
    return kind(f"agentd: {message or code}", **details)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future and not future.done():
        future.set_result(None)
