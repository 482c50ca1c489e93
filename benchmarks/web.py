"""Requests on a unix socket: ours, and the least that the same server can do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# So many connections: the server is never idle, and what counts is its work, not who is woken when.
AT_ONCE = 16
_HELLO = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"hello": "world"}'})
"""


@contextmanager
def bare_server(place: Path) -> Iterator[Path]:
    """uvicorn with an application that says hello; the path of its socket."""
    (place / "hello.py").write_text(_HELLO)
    path = place / "hello.sock"
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "hello:app", "--uds", str(path), "--app-dir", str(place),
         "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not path.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("uvicorn does not start")
            time.sleep(0.05)
        yield path
    finally:
        server.terminate()
        server.wait()


class Requests:
    """Connections that are kept, all of which ask at once; calling it makes many requests."""

    def __init__(self, path: Path, target: str, many: int) -> None:
        self._sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(AT_ONCE)]
        for connection in self._sockets:
            connection.connect(str(path))
        self._request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        self._many = many

    async def __call__(self) -> None:
        for _ in range(self._many // AT_ONCE):
            for connection in self._sockets:
                connection.sendall(self._request)
            for connection in self._sockets:
                answer = connection.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200"), answer
                while not answer.rstrip(b"\r\n0").endswith(b"}"):
                    answer += connection.recv(65536)

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()
