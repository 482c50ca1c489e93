"""A registry that does as a test says, however wrong: HTTP by hand, in the test's own process.

async with Scripted() as server:
    server.serve(IMAGE, "app", "1")              # as a good registry would
    server.on("/v2/app/blobs/…", endless)        # and then as it should not
    ... pull f"{server.address}/app:1"
server.requests                                  # all that arrived, with headers
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from tests.images.registry_tool import MadeImage


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def authorization(self) -> str | None:
        return self.headers.get("authorization")

    @property
    def start(self) -> int:
        """Of the range that is asked for."""
        return int(self.headers.get("range", "bytes=0-")[len("bytes=") : -1])


@dataclass(frozen=True)
class Answer:
    """`length` None: the true one; "": none, the body ends with the connection. `cut`: the
    connection is closed after so many bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: str | None = None
    cut: int | None = None


Stream = Callable[[asyncio.StreamWriter], Awaitable[None]]
Handler = Callable[[Request], Answer | Stream]


class Scripted:
    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._tls = tls
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def on(self, path: str, handler: Handler | Answer) -> None:
        """By the path, without what follows a question mark."""
        self._handlers[path] = handler if callable(handler) else lambda request: handler

    def asked(self, path: str) -> list[Request]:
        return [each for each in self.requests if each.path.partition("?")[0] == path]

    def serve(self, image: MadeImage, repository: str, tag: str) -> None:
        documents = {image.digest: (image.media_type, image.manifest), **image.manifests}
        documents[tag] = documents[image.digest]
        for name, (kind, content) in documents.items():
            self.on(
                f"/v2/{repository}/manifests/{name}", Answer(200, content, {"Content-Type": kind})
            )
        for digest, content in image.blobs.items():
            self.on(f"/v2/{repository}/blobs/{digest}", ranged(content))

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
                while await self._one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another request may come."""
        if (first := await reader.readexactly(1)) == b"\x16":
            return False  # a client tries TLS
        head = first.decode() + (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.rstrip().split("\r\n")
        method, path, _ = line.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body)
        self.requests.append(request)
        if method == "CONNECT":
            await self._tunnel(path, reader, writer)
            return False
        handler = self._handlers.get(path.partition("?")[0])
        answer = handler(request) if handler else Answer(404)
        if not isinstance(answer, Answer):
            await answer(writer)
            return False
        return await self._send(answer, writer)

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {answer.status} X"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        length = str(len(answer.body)) if answer.length is None else answer.length
        if length:
            lines.append(f"Content-Length: {length}")
        body = answer.body if answer.cut is None else answer.body[: answer.cut]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        if answer.cut is None and length == str(len(answer.body)):
            return True
        writer.close()
        await writer.wait_closed()
        return False

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """As a proxy: whatever the name, to the port on this machine."""
        port = int(target.rpartition(":")[2])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 X\r\n\r\n")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()

        try:
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        finally:
            far_writer.transport.abort()


def ranged(content: bytes) -> Handler:
    """A blob from a registry that knows ranges."""

    def answer(request: Request) -> Answer:
        start = request.start
        if not start:
            return Answer(200, content)
        return Answer(206, content[start:], {"Content-Range": range_of(start, content)})

    return answer


def range_of(start: int, content: bytes) -> str:
    return f"bytes {start}-{len(content) - 1}/{len(content)}"


def chunked(blocks: Iterable[bytes], *, pause: float = 0.0) -> Stream:
    """A body without a length, for as long as `blocks` goes on."""

    async def stream(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        for block in blocks:
            writer.write(b"%x\r\n%s\r\n" % (len(block), block))
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return stream


def in_turn(*answers: Answer | Handler) -> Handler:
    """One after the other; the last for all that come later."""
    left = list(answers)

    def answer(request: Request) -> Answer | Stream:
        now = left.pop(0) if len(left) > 1 else left[0]
        return now(request) if callable(now) else now

    return answer


def problem(message: str) -> bytes:
    return json.dumps({"errors": [{"code": "UNKNOWN", "message": message}]}).encode()
