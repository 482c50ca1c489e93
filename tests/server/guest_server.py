"""A server inside a sandbox, for tests of previews: what it was sent, and what a bad one answers.

Runs alone, on the standard library: `python3 -c SOURCE PORT…`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import sys
import threading
from typing import Any

go = threading.Event()


def answer(sock: socket.socket, body: bytes, *lines: bytes, status: bytes = b"200 OK") -> None:
    head = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *lines, b"", body]
    sock.sendall(b"\r\n".join(head))


def body_of(file: Any, headers: list[tuple[str, str]]) -> bytes:
    told = {name.lower(): value for name, value in headers}
    if "content-length" in told:
        return bytes(file.read(int(told["content-length"])))
    body = b""
    if told.get("transfer-encoding") == "chunked":
        while size := int(file.readline(), 16):
            body += file.read(size)
            file.readline()
        file.readline()
    return body


def echo_frames(sock: socket.socket, file: Any) -> None:
    """A WebSocket that says everything back, until it hears of the end."""
    while head := file.read(2):
        size = head[1] & 127
        if size == 126:
            size = int.from_bytes(file.read(2), "big")
        elif size == 127:
            size = int.from_bytes(file.read(8), "big")
        mask = file.read(4)
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(file.read(size)))
        extra = b""
        if len(data) > 65535:
            extra = len(data).to_bytes(8, "big")
        elif len(data) > 125:
            extra = len(data).to_bytes(2, "big")
        length = {0: len(data), 2: 126, 8: 127}[len(extra)]
        sock.sendall(bytes((head[0], length)) + extra + data)
        if head[0] & 15 == 8:
            return


BAD = {
    "twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nhello",
    "both": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n0\r\n\r\n",
    "noise": b"\x00\x01\x02 this is no HTTP\r\n\r\n",
    "two": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond",
    "short": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot all",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "nothing": b"",
    "surprise": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n"
    b"Connection: Upgrade\r\n\r\nraw",
}


def serve(sock: socket.socket) -> None:
    file = sock.makefile("rb")
    method, target, _ = file.readline().decode("latin-1").split()
    headers = []
    while line := file.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    path = target.partition("?")[0]
    what = path.rpartition("/")[2]
    told = {name.lower(): value for name, value in headers}
    if path == "/ws":
        key = told["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key).digest())
        lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
        lines += [b"Sec-WebSocket-Accept: " + accept, b"", b""]
        sock.sendall(b"\r\n".join(lines))
        echo_frames(sock, file)
    elif path == "/upload":
        body = body_of(file, headers)
        told_back = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        answer(sock, json.dumps(told_back).encode())
    elif path == "/big":
        answer(sock, b"y" * (64 << 20))
    elif path == "/cookie":
        port = b"%d" % sock.getsockname()[1]
        answer(
            sock, b"set",
            b"Set-Cookie: session=" + port + b"; Domain=localhost; Path=/; Max-Age=100",
            b"Set-Cookie: ak_preview=stolen; Path=/",
            b"Strict-Transport-Security: max-age=1000; includeSubDomains",
            b"Clear-Site-Data: \"*\"", b"Service-Worker-Allowed: /",
        )  # fmt: skip
    elif path == "/redirect":
        answer(sock, b"", b"Location: /elsewhere", status=b"302 Found")
    elif path == "/sse":
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n")
        go.wait(30)
        sock.sendall(b"data: two\n\n")
    elif path == "/go":
        go.set()
        answer(sock, b"")
    elif path.startswith("/bad/") and what in BAD:
        sock.sendall(BAD[what])
    elif path == "/bad/flood":
        sock.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            sock.sendall(b"X-Flood: " + b"z" * 8000 + b"\r\n")
    elif path == "/bad/interim":
        while True:
            sock.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    elif path == "/bad/silent":
        threading.Event().wait()
    else:
        told_all = {"method": method, "target": target, "headers": headers}
        answer(sock, json.dumps(told_all).encode(), b"Content-Type: application/json")
    sock.shutdown(socket.SHUT_WR)
    sock.close()


def careful(sock: socket.socket) -> None:
    try:
        serve(sock)
    except OSError:
        sock.close()


def listen(port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=careful, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        threading.Thread(target=listen, args=(int(argument),)).start()
