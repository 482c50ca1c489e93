"""Requests to the daemon over a pool of connections; WebSockets over connections of their own."""

from __future__ import annotations

import json as jsons
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing

from agentkernel.client import frames, wire
from agentkernel.client._async.websocket import AsyncWebSocket
from agentkernel.client.asyncio_stream import AsyncStream, in_thread
from agentkernel.client.daemon import chosen_daemon
from agentkernel.errors import DaemonError, DaemonTimeoutError
from agentkernel.places import state_path

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

CALL_SECONDS = 60.0
# Making a sandbox may have to make its image first.
LONG_CALL_SECONDS = 600.0
# Within a transfer, for the next bytes to come or to be taken: longer than the daemon itself waits.
PIECE_SECONDS = 120.0
# Of an event stream: the daemon says every 15 s that it is still there.
EVENT_SECONDS = 60.0
_EVENTS = {"Accept": "text/event-stream"}
_POOL = 8
# Less than the time after which the daemon closes an idle connection.
_IDLE_SECONDS = 3.0
_AGAIN = ("GET", "HEAD")
# A daemon that was killed may accept for a moment still.
_ATTEMPTS = 40
_PAUSE = 0.05


class Unheard(Exception):
    """The request was not read to its end, so it was not carried out: it can be repeated."""


class AsyncConnection:
    """One connection: a request, its answer, the next request."""

    def __init__(self, stream: AsyncStream) -> None:
        self.stream = stream
        self.used_at = time.monotonic()
        # With it, what counts is the time since the last bytes, not a deadline.
        self.patience: float | None = None
        self._buffer = bytearray()

    async def send(self, data: bytes, deadline: float | None) -> wire.Head:
        """Raises Unheard if the other end was gone before it had read all of the request."""
        try:
            await self.stream.write(data, deadline)
        except DaemonTimeoutError:
            raise
        except DaemonError:
            raise Unheard from None
        return await self.head(deadline)

    async def head(self, deadline: float | None) -> wire.Head:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > wire.MAX_HEAD:
                raise wire.broken("a head that does not end")
            await self._more(deadline)
        head = wire.parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return head

    async def body(self, head: wire.Head, deadline: float | None) -> AsyncIterator[bytes]:
        """The body in pieces as they come."""
        length = head.length
        if head.chunked:
            while (size := wire.chunk_size(await self._line(deadline))) > 0:
                async for piece in self._exactly(size, deadline):
                    yield piece
                await self._line(deadline)
            while await self._line(deadline):
                pass
        elif length is not None:
            async for piece in self._exactly(length, deadline):
                yield piece
        else:
            yield self.rest()
            while data := await self.stream.read(deadline):
                yield data
            self.stream.close()

    def rest(self) -> bytes:
        """What came after the head, for another protocol to go on with."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def _exactly(self, size: int, deadline: float | None) -> AsyncIterator[bytes]:
        while size > 0:
            if not self._buffer:
                await self._more(deadline)
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            size -= len(piece)
            yield piece

    async def _line(self, deadline: float | None) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > wire.MAX_CHUNK_LINE:
                raise wire.broken("a line that does not end")
            await self._more(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    async def _more(self, deadline: float | None) -> None:
        if self.patience is not None:
            deadline = time.monotonic() + self.patience
        data = await self.stream.read(deadline)
        if not data:
            if self.stream.was_reset and not self._buffer:
                raise Unheard
            raise DaemonError(
                "the daemon closed the connection before it had answered",
                hint="look at the state before repeating the call",
            )
        self._buffer += data


class AsyncTransport:
    """Talks to the daemon of a state directory, which it starts when none answers, unless told not
    to; or to the one at an address, as AGENTKERNEL_URL and AGENTKERNEL_TOKEN say it, too.

    `owner`: whose sandboxes there are for it, as a program's that acts on somebody else's word
    (`mcp:claude-code`); without it what AGENTKERNEL_OWNER says, else the user's own. `client`: what
    the audit log calls it. `users_spec`: what it asks of new sandboxes is the user's own word, not
    the owner's.
    """

    def __init__(
        self,
        state_dir: str | None = None,
        *,
        start: bool = True,
        url: str | None = None,
        token: str | None = None,
        owner: str | None = None,
        client: str | None = None,
        users_spec: bool = False,
    ) -> None:
        self.daemon = chosen_daemon(state_dir, url, token)
        self.daemon_version: str | None = None
        self._headers = wire.caller_headers(owner, client, users_spec)
        self._start = start
        self._pool: list[AsyncConnection] = []
        self._pid = os.getpid()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        """A request with a JSON body and a JSON answer."""
        chosen = dict(headers or {})
        data = None
        if json is not None:
            data = jsons.dumps(json).encode()
            chosen["Content-Type"] = "application/json"
        answer = await self.fetch(
            method, path, query=query, body=data, headers=chosen, seconds=seconds
        )
        return wire.parse_json(answer) if answer else None

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> bytes:
        """A request and the bytes of its answer."""
        data = self._request(method, wire.target(path, query), headers, body)
        again = method in _AGAIN or "Idempotency-Key" in (headers or {})
        deadline = None if seconds is None else time.monotonic() + seconds
        for _ in range(_ATTEMPTS):
            connection, fresh = await self._connection(deadline)
            try:
                head = await connection.send(data, deadline)
                pieces = [piece async for piece in connection.body(head, deadline)]
            except BaseException as exc:
                connection.stream.close()
                if isinstance(exc, Unheard):
                    await in_thread(time.sleep, _PAUSE)
                    continue
                # A daemon that went away between two calls is not this call's fault.
                if again and not fresh and type(exc) is DaemonError:
                    continue
                raise
            self._put_back(connection, head)
            self.daemon_version = head.headers.get(wire.VERSION_HEADER, self.daemon_version)
            if head.status >= 400:
                wire.raise_problem(head, b"".join(pieces))
            return b"".join(pieces)
        raise _unheard()

    async def lines(
        self, path: str, *, query: Mapping[str, Any] | None = None
    ) -> AsyncIterator[str]:
        """The lines of an answer that may never end."""
        rest = b""
        async with aclosing(self.pieces(path, query=query)) as pieces:
            async for piece in pieces:
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace").rstrip("\r")

    async def events(
        self,
        path: str,
        *,
        method: str = "GET",
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The events of a stream, by name; an `error` is raised, a `ping` is not told."""
        chosen, data = {**_EVENTS, **(headers or {})}, None
        if json is not None:
            chosen["Content-Type"], data = "application/json", jsons.dumps(json).encode()
        async with aclosing(
            self.pieces(
                path,
                method=method,
                query=query,
                body=data,
                headers=chosen,
                patience=EVENT_SECONDS,
            )
        ) as pieces:
            lines = wire.EventLines()
            async for piece in pieces:
                for event in lines.feed(piece):
                    yield event

    async def pieces(
        self,
        path: str,
        *,
        method: str = "GET",
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of an answer as they come; DaemonError if it breaks off before its end.

        `patience`: the longest to wait for some, else DaemonTimeoutError.
        """
        deadline = time.monotonic() + CALL_SECONDS
        connection, _ = await self._connection(deadline)
        try:
            data = self._request(method, wire.target(path, query), headers, body)
            head = await connection.send(data, deadline)
            async for piece in self._answer(connection, head, deadline, patience):
                yield piece
        except Unheard:
            raise _unheard() from None
        finally:
            connection.stream.close()

    async def _answer(
        self,
        connection: AsyncConnection,
        head: wire.Head,
        deadline: float,
        patience: float | None,
    ) -> AsyncGenerator[bytes, None]:
        if head.status >= 400:
            pieces = [piece async for piece in connection.body(head, deadline)]
            wire.raise_problem(head, b"".join(pieces))
        connection.patience = patience
        async for piece in connection.body(head, None):
            yield piece

    async def upload(
        self, path: str, body: AsyncIterable[bytes], *, query: Mapping[str, Any] | None = None
    ) -> Any:
        """A PUT whose body is sent as it comes, and its JSON answer. It is not repeated."""
        connection = AsyncConnection(await self._connect(time.monotonic() + CALL_SECONDS))
        try:
            await self._send(connection, path, query, {}, body)
            deadline = time.monotonic() + PIECE_SECONDS
            head = await connection.head(deadline)
            answer = b"".join([piece async for piece in connection.body(head, deadline)])
        except Unheard:
            raise _unheard() from None
        finally:
            connection.stream.close()
        if head.status >= 400:
            wire.raise_problem(head, answer)
        return jsons.loads(answer)

    async def upload_events(
        self, path: str, body: AsyncIterable[bytes], *, query: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The same whose answer are events, once all was sent."""
        connection = AsyncConnection(await self._connect(time.monotonic() + CALL_SECONDS))
        lines = wire.EventLines()
        try:
            await self._send(connection, path, query, _EVENTS, body)
            deadline = time.monotonic() + PIECE_SECONDS
            head = await connection.head(deadline)
            async for piece in self._answer(connection, head, deadline, EVENT_SECONDS):
                for event in lines.feed(piece):
                    yield event
        except Unheard:
            raise _unheard() from None
        finally:
            connection.stream.close()

    async def _send(
        self,
        connection: AsyncConnection,
        path: str,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        body: AsyncIterable[bytes],
    ) -> None:
        stream = connection.stream
        chosen = {"Content-Type": "application/octet-stream", **headers}
        data = self._request("PUT", wire.target(path, query), chosen, chunked=True)
        await stream.write(data, time.monotonic() + CALL_SECONDS)
        async for piece in body:
            if not stream.usable():  # an answer before the end says that there is no use
                return
            if piece:
                await stream.write(wire.chunk(piece), time.monotonic() + PIECE_SECONDS)
        await stream.write(wire.chunk(b""), time.monotonic() + PIECE_SECONDS)

    async def websocket(
        self, path: str, *, query: Mapping[str, Any] | None = None
    ) -> AsyncWebSocket:
        deadline = time.monotonic() + CALL_SECONDS
        data = self._request("GET", wire.target(path, query), frames.UPGRADE)
        for _ in range(_ATTEMPTS):
            connection = AsyncConnection(await self._connect(deadline))
            try:
                head = await connection.send(data, deadline)
                self.daemon_version = head.headers.get(wire.VERSION_HEADER, self.daemon_version)
                if head.status >= 400:
                    pieces = [piece async for piece in connection.body(head, deadline)]
                    wire.raise_problem(head, b"".join(pieces))
                if head.status != 101 or not frames.accepted(head.headers):
                    raise wire.broken("it opened no stream")
            except Unheard:
                connection.stream.close()
                await in_thread(time.sleep, _PAUSE)
                continue
            except BaseException:
                connection.stream.close()
                raise
            return AsyncWebSocket(connection.stream, frames.Decoder(connection.rest()))
        raise _unheard()

    def close(self) -> None:
        """Closes the idle connections. Idempotent; a later call opens new ones."""
        while self._pool:
            self._pool.pop().stream.close()

    def _request(
        self,
        method: str,
        where: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        chunked: bool = False,
    ) -> bytes:
        chosen = {**self.daemon.headers, **self._headers, **(headers or {})}
        return wire.request(method, where, chosen, body, chunked=chunked)

    async def _connection(self, deadline: float | None) -> tuple[AsyncConnection, bool]:
        """An idle connection, or a fresh one."""
        if self._pid != os.getpid():  # a forked child must not answer on its parent's connections
            self._pool, self._pid = [], os.getpid()
        while self._pool:
            connection = self._pool.pop()
            old = time.monotonic() - connection.used_at > _IDLE_SECONDS
            if not old and connection.stream.usable():
                return connection, False
            connection.stream.close()
        if deadline is None:
            deadline = time.monotonic() + CALL_SECONDS
        return AsyncConnection(await self._connect(deadline)), True

    async def _connect(self, deadline: float) -> AsyncStream:
        stream = await AsyncStream.connect(self.daemon, deadline)
        if stream is None and self._start:
            await in_thread(self.daemon.start)
            stream = await AsyncStream.connect(self.daemon, deadline)
        if stream is None:
            raise DaemonError(
                f"no daemon answers in {self.daemon.state_dir}",
                hint="`agentkernel daemon restart` starts one",
            )
        return stream

    def _put_back(self, connection: AsyncConnection, head: wire.Head) -> None:
        if head.keeps_alive and len(self._pool) < _POOL:
            connection.used_at = time.monotonic()
            self._pool.append(connection)
        else:
            connection.stream.close()


def _unheard() -> DaemonError:
    return DaemonError("the daemon takes connections and does not read from them")


_shared: dict[tuple[str | None, ...], AsyncTransport] = {}


def shared_transport() -> AsyncTransport:
    """The transport to the daemon that the environment means, one for the whole process."""
    names = ("AGENTKERNEL_URL", "AGENTKERNEL_TOKEN", "AGENTKERNEL_CA")
    key = (state_path(), *(os.environ.get(name) for name in names))
    if key not in _shared:
        _shared[key] = AsyncTransport()
    return _shared[key]
