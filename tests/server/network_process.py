"""A daemon that listens on TCP, and callers that come over it with a token or without one."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import connect

from .daemon_process import SECONDS, Daemon, Frames


class NetworkDaemon(Daemon):
    """`url` is where it said that it listens."""

    def __init__(self, state_dir: Path, *arguments: str) -> None:
        super().__init__(state_dir)
        self.arguments = arguments
        self.url = ""

    def start(self) -> None:
        self._process = self.popen("--listen", "127.0.0.1:0", *self.arguments)
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert "ready" in line, self.log()
        self.url = line.partition(" and ")[2].partition(",")[0]

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port
        return port

    def token(self, name: str, **wanted: Any) -> str:
        status, made = self.request("POST", "/v1/tokens", {"name": name, **wanted})
        assert status == 201, made
        text = made["token"]
        assert isinstance(text, str)
        return text

    def caller(self, name: str, **wanted: Any) -> Caller:
        return Caller(self, self.token(name, **wanted))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self) -> int:
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as line:
            return int(line.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def remove_all(self) -> None:
        _, listed = self.request("GET", "/v1/sandboxes?limit=1000&owner=*")
        for sandbox in listed["sandboxes"]:
            self.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")


class Caller:
    """Somebody on the network."""

    def __init__(
        self, daemon: NetworkDaemon, token: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.daemon = daemon
        self.token = token
        self.tls = tls

    @property
    def host(self) -> str:
        return f"localhost:{self.daemon.port}"

    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def connection(self) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(
                "localhost", self.daemon.port, timeout=SECONDS, context=self.tls
            )
        return http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=SECONDS)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers with names in lower case, and the body's bytes."""
        connection = self.connection()
        try:
            data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
            connection.request(method, path, data, {**self.headers(), **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        status, told, content = self.ask(method, path, body, headers)
        assert told["agentkernel-version"]
        return status, json.loads(content) if "json" in told.get("content-type", "") else content

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.daemon.port), timeout=SECONDS)

    def stream(self, path: str, first: Any = None, **options: Any) -> Frames:
        options.setdefault("additional_headers", self.headers())
        frames = Frames(
            connect(
                f"ws://{self.host}{path}",
                ping_interval=None,
                max_size=None,
                compression=None,
                **options,
            )
        )
        if first is not None:
            frames.connection.send(json.dumps(first))
        return frames
