"""A web server, plain or with TLS, that keeps every byte and answers as a test needs it.

It reads requests itself, and leniently: what a strict server would refuse has to be seen too.

    /reflect/HOW   the request as a body, in one of REFLECTIONS
    /redirect/HEX  302 to the address that is written in hex
    /bytes/N       N bytes; /drip/N the same, in chunks of one byte
    /hold          no answer until `release` is called
    /upgrade       101, then every byte comes back
    /status/N      that status
"""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from .listening import SECONDS, Listener, Visit

_SMALL = 64 << 10


@dataclass
class Request:
    """`raw` is the head as it came; header names are in lower case, repeated ones joined by a
    comma."""

    method: str
    target: str
    raw: bytes
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sni: str | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass
class Answer:
    """`pieces`: the body in chunks of these; else it has a length."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] | None = None
    trailers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Answer]


def _chunks(text: bytes, size: int) -> Answer:
    return Answer(pieces=[text[i : i + size] for i in range(0, len(text), size)])


def _in_header(text: bytes) -> Answer:
    line = text.replace(b"\r\n", b"|").decode("latin-1")
    return Answer(headers={"x-reflected": line, "set-cookie": f"seen={line}"})


REFLECTIONS: dict[str, Callable[[bytes], Answer]] = {
    "raw": lambda text: Answer(body=text),
    "gzip": lambda text: Answer(body=gzip.compress(text), headers={"content-encoding": "gzip"}),
    "deflate": lambda text: Answer(
        body=zlib.compress(text), headers={"content-encoding": "deflate"}
    ),
    "gzip-chunks": lambda text: Answer(
        pieces=[gzip.compress(text)[i : i + 7] for i in range(0, len(gzip.compress(text)), 7)],
        headers={"content-encoding": "gzip"},
    ),
    "base64": lambda text: Answer(body=base64.b64encode(text)),
    "base64-1": lambda text: Answer(body=base64.b64encode(b"-" + text)),
    "base64-2": lambda text: Answer(body=base64.b64encode(b"--" + text)),
    "chunks": lambda text: _chunks(text, 3),
    "bytewise": lambda text: _chunks(text, 1),
    "header": _in_header,
    "trailer": lambda text: Answer(
        pieces=[b"trailers follow"],
        trailers={"x-reflected": text.replace(b"\r\n", b"|").decode("latin-1")},
    ),
    "error": lambda text: Answer(status=500, body=text),
}


class Web(Listener):
    """`contexts`: TLS by the name that is asked for, "" for every other; None for plain HTTP."""

    def __init__(self, contexts: dict[str, ssl.SSLContext] | None = None) -> None:
        self.requests: list[Request] = []
        self.handlers: dict[str, Handler] = {}
        self.holding = 0
        self._released = threading.Event()
        self._contexts = contexts
        super().__init__()

    def release(self) -> None:
        """Answers all that is held, and what will be."""
        self._released.set()

    def since(self) -> Callable[[], list[Request]]:
        begun = len(self.requests)
        return lambda: self.requests[begun:]

    # -- one connection -------------------------------------------------------------------------

    def serve(self, connection: socket.socket, visit: Visit) -> None:
        if self._contexts is not None:
            connection = self._secure(connection, visit, self._contexts)
        reader = _Reader(connection, visit)
        try:
            while (request := reader.request()) is not None:
                request.sni = visit.sni
                self.requests.append(request)
                if request.headers.get("expect", "").lower() == "100-continue":
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.body = reader.body(request.headers)
                if request.path == "/upgrade":
                    self._echo(connection, reader)
                    return
                connection.sendall(_encode(self._answer(request), request.method))
                if "close" in request.headers.get("connection", "").lower():
                    return
        finally:
            if isinstance(connection, ssl.SSLSocket):
                connection.close()

    def _secure(
        self, connection: socket.socket, visit: Visit, contexts: dict[str, ssl.SSLContext]
    ) -> ssl.SSLSocket:
        def chosen(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            visit.sni = name
            sock.context = contexts.get(name or "", contexts[""])

        first = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        first.set_alpn_protocols(["http/1.1"])
        first.sni_callback = chosen
        try:
            return first.wrap_socket(connection, server_side=True)
        except OSError as exc:
            visit.fault = f"handshake: {exc}"
            raise

    def _answer(self, request: Request) -> Answer:
        for prefix, handler in self.handlers.items():
            if request.path.startswith(prefix):
                return handler(request)
        _, kind, *rest = [*request.path.split("/"), ""]
        if kind == "reflect":
            return REFLECTIONS[rest[0]](request.raw + request.body)
        if kind == "redirect":
            return Answer(302, headers={"location": bytes.fromhex(rest[0]).decode()})
        if kind == "bytes":
            return Answer(body=b"x" * int(rest[0]))
        if kind == "drip":
            return _chunks(b"x" * int(rest[0]), 1)
        if kind == "status":
            return Answer(int(rest[0]), body=b"as asked\n")
        if kind == "hold":
            self.holding += 1
            self._released.wait(SECONDS)
            return Answer(body=b"released\n")
        return Answer(body=f"hello {request.headers.get('host', '')}\n".encode())

    def _echo(self, connection: socket.socket, reader: _Reader) -> None:
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        data = reader.rest()
        while data or (data := reader.more()):
            connection.sendall(data)
            data = b""


class _Reader:
    """Requests from a connection; all that comes is kept in its visit."""

    def __init__(self, connection: socket.socket, visit: Visit) -> None:
        self._connection = connection
        self._visit = visit
        self._buffer = b""

    def more(self) -> bytes:
        data = self._connection.recv(_SMALL)
        self._visit.received += data
        return data

    def rest(self) -> bytes:
        data, self._buffer = self._buffer, b""
        return data

    def request(self) -> Request | None:
        while b"\r\n\r\n" not in self._buffer:
            if not (data := self.more()):
                return None
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, *_ = [*first.split(" "), "", ""]
        request = Request(method, target, head + b"\r\n\r\n")
        for line in lines:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            before = request.headers.get(key)
            request.headers[key] = value.strip() if before is None else f"{before},{value.strip()}"
        return request

    def body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            parts = b""
            while size := int(self._line().split(b";")[0], 16):
                parts += self._take(size)
                self._take(2)
            while self._line():
                pass
            return parts
        return self._take(int(headers.get("content-length", "0").split(",")[0]))

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._need()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        parts = bytearray(self._buffer)
        while len(parts) < size:
            if not (data := self.more()):
                raise ValueError("the request ended early")
            parts += data
        self._buffer = bytes(parts[size:])
        return bytes(parts[:size])

    def _need(self) -> None:
        if not (data := self.more()):
            raise ValueError("the request ended early")
        self._buffer += data


def _encode(answer: Answer, method: str) -> bytes:
    headers = {"server": "world", **answer.headers}
    if answer.pieces is None:
        headers["content-length"] = str(len(answer.body))
    else:
        headers["transfer-encoding"] = "chunked"
    if answer.trailers:
        headers["trailer"] = ", ".join(answer.trailers)
    lines = [f"HTTP/1.1 {answer.status} Said", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    if method == "HEAD":
        return head
    if answer.pieces is None:
        return head + answer.body
    parts = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in answer.pieces if piece]
    trailers = "".join(f"{k}: {v}\r\n" for k, v in answer.trailers.items()).encode("latin-1")
    return b"".join([head, *parts, b"0\r\n", trailers, b"\r\n"])
