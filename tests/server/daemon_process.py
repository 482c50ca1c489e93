"""A daemon as a child process, and a client of nothing but the standard library and websockets."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, unix_connect

SECONDS = 30.0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self.path)


class Daemon:
    """The daemon of one state directory, started and ended at will."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
        self._process: subprocess.Popen[str] | None = None
        self._log = state_dir / "stderr"

    # A test's directory has a longer name than a socket's address may have.
    @property
    def socket_path(self) -> str:
        return f"/proc/self/fd/{self._directory}/api.sock"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agentkernel", "serve", "--foreground", *arguments],
                env={**os.environ, "AGENTKERNEL_STATE_DIR": str(self.state_dir)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def start(self) -> None:
        self._process = self.popen()
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert "ready" in line, self.log()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def terminate(self, number: int = signal.SIGTERM) -> int:
        assert self._process
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self._process and self._process.stdout
        try:
            return self._process.wait(SECONDS)
        finally:
            self._process.stdout.close()

    def kill(self) -> None:
        assert self.terminate(signal.SIGKILL) == -signal.SIGKILL

    def close(self) -> None:
        os.close(self._directory)

    def log(self) -> str:
        return self._log.read_text()

    def peak_memory(self) -> int:
        """The most it ever had resident, in bytes; `forget_peak` begins anew."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    # -- requests -------------------------------------------------------------------------------

    def connection(self) -> UnixConnection:
        return UnixConnection(self.socket_path)

    def raw(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(SECONDS)
        try:
            sock.connect(self.socket_path)
        except BaseException:
            sock.close()
            raise
        return sock

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and body; JSON unless the answer is something else."""
        connection = self.connection()
        try:
            data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
            connection.request(method, path, body=data, headers=headers or {})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.getheader("Agentkernel-Version")
            if "json" in (answer.getheader("Content-Type") or ""):
                return answer.status, json.loads(content)
            return answer.status, content
        finally:
            connection.close()

    def create(self, **body: Any) -> str:
        status, answer = self.request("POST", "/v1/sandboxes", body)
        assert status == 201, answer
        id = answer["id"]
        assert isinstance(id, str)
        return id

    def exec(self, id: str, shell: str, **body: Any) -> dict[str, Any]:
        status, answer = self.request("POST", f"/v1/sandboxes/{id}/exec", {"shell": shell, **body})
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def remove_all(self) -> None:
        for sandbox in self.request("GET", "/v1/sandboxes?limit=1000")[1]["sandboxes"]:
            self.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    def stream(self, path: str, first: Any = None, **options: Any) -> Frames:
        options.setdefault("max_size", None)
        options.setdefault("compression", None)
        frames = Frames(
            unix_connect(self.socket_path, f"ws://localhost{path}", ping_interval=None, **options)
        )
        if first is not None:
            frames.connection.send(json.dumps(first))
        return frames


class Frames:
    """One WebSocket with frames on it."""

    def __init__(self, connecting: AbstractContextManager[ClientConnection]) -> None:
        self._open = ExitStack()
        self.connection = self._open.enter_context(connecting)

    def next(self) -> tuple[int, Any]:
        """Channel and data; the data of a control frame is decoded."""
        message = self.connection.recv(SECONDS)
        assert isinstance(message, bytes)
        return message[0], json.loads(message[1:]) if message[0] == 3 else message[1:]

    def event(self, kind: str) -> dict[str, Any]:
        """The next event, which has to be of this kind; what is told aside may come before it."""
        while True:
            channel, body = self.next()
            assert channel == 3, body
            assert isinstance(body, dict)
            if body["event"] not in ("progress", "notice"):
                assert body["event"] == kind, body
                return body

    def until(self, text: bytes) -> bytes:
        """Output up to and with `text`."""
        seen = b""
        while text not in seen:
            channel, data = self.next()
            assert channel in (1, 2), data
            seen += data
        return seen

    def send(self, data: bytes) -> None:
        self.connection.send(b"\0" + data)

    def control(self, **body: Any) -> None:
        self.connection.send(b"\3" + json.dumps(body).encode())

    def rest(self) -> tuple[bytes, bytes, dict[str, Any]]:
        """All output, and how it ended."""
        output = {1: b"", 2: b""}
        while True:
            channel, data = self.next()
            if channel != 3:
                output[channel] += data
            elif data["event"] in ("exit", "error"):
                return output[1], output[2], data

    def close(self) -> None:
        self._open.close()

    def vanish(self) -> None:
        """The client's process is killed: no farewell."""
        with suppress(OSError):  # the daemon was faster
            self.connection.socket.shutdown(socket.SHUT_RDWR)
        self._open.close()


def eventually(check: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
