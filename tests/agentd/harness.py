"""The host's end of the guest protocol, as plain and as strict as a test needs it.

`Guest` runs the real agentd as PID 1 of private namespaces; `Host` is one connection to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

HELLO, OPEN, DATA, CREDIT, END, ERROR = range(1, 7)
IN, OUT, ERR, CONTROL = range(4)

MAX_FRAME = 1 << 20
INPUT_WINDOW = 262_144
WINDOW = 262_144
DEADLINE = 20.0
RANGE_BASE = 1_410_000_000
RANGE_SIZE = 65_536

DOCKER_CAPS = 0xA80425FB
ENVIRONMENT = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"]


class Frame(NamedTuple):
    stream: int
    type: int
    payload: bytes


class Closed(Exception):
    """agentd has closed the connection."""


class Refused(Exception):
    """An ERROR frame."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def new_id() -> str:
    return secrets.token_hex(10)


@dataclass
class Stream:
    """What has come on one stream."""

    id: int
    credit: bool = True  # grant what was consumed, at once
    out: bytearray = field(default_factory=bytearray, repr=False)
    err: bytearray = field(default_factory=bytearray, repr=False)
    out_count: int = 0
    err_count: int = 0
    keep: bool = True  # the bytes, not only their number
    events: list[dict[str, Any]] = field(default_factory=list)
    input_credit: int = 0
    end: dict[str, Any] | None = None
    error: Refused | None = None

    @property
    def over(self) -> bool:
        return self.end is not None or self.error is not None

    def event(self, name: str) -> dict[str, Any] | None:
        return next((event for event in self.events if event["ev"] == name), None)


class Host:
    """One authenticated connection; reads frames only while something waits for them."""

    def __init__(self, path: Path, token: bytes, *, handshake: bool = True) -> None:
        self.token = token
        self.streams: dict[int, Stream] = {}
        self.next_stream = 1
        self.step = 0  # not 0: send pieces of so many bytes
        self.hello: dict[str, Any] = {}
        self._buffer = bytearray()
        self._let_go: set[int] = set()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)
        try:
            self.socket.connect(str(path))
            if handshake:
                self.shake_hands()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.socket.close()

    # frames

    def send(self, stream: int, type: int, payload: bytes) -> None:
        frame = struct.pack("<IIB", len(payload) + 5, stream, type) + payload
        step = self.step or len(frame)
        for start in range(0, len(frame), step):
            self.socket.sendall(frame[start : start + step])

    def send_map(self, stream: int, type: int, value: Any) -> None:
        self.send(stream, type, msgspec.msgpack.encode(value))

    def _take(self) -> Frame | None:
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from("<I", self._buffer)
        assert 5 <= length <= MAX_FRAME, f"a frame of {length} bytes"
        if len(self._buffer) < 4 + length:
            return None
        stream, type = struct.unpack_from("<IB", self._buffer, 4)
        payload = bytes(memoryview(self._buffer)[9 : 4 + length])
        del self._buffer[: 4 + length]
        return Frame(stream, type, payload)

    def receive(self, timeout: float = DEADLINE) -> Frame | None:
        """The next frame, or None when none came in time."""
        deadline = time.monotonic() + timeout
        while (frame := self._take()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                data = b""
            if not data:
                raise Closed
            self._buffer += data
        return frame

    # handshake

    def send_hello(self, generations: tuple[int, int] = (1, 1)) -> bytes:
        nonce = secrets.token_bytes(16)
        self.send_map(0, HELLO, {"gen": list(generations), "nonce": nonce})
        return nonce

    def shake_hands(self) -> None:
        nonce = self.send_hello()
        frame = self.receive()
        assert frame is not None and frame.stream == 0
        answer = msgspec.msgpack.decode(frame.payload)
        if frame.type == ERROR:
            raise Refused(answer["code"], answer["message"])
        assert frame.type == HELLO
        self.hello = answer
        proof = self.proof(b"agentkernel agent", nonce, answer["nonce"])
        assert hmac.compare_digest(proof, answer["proof"]), "this is not our agent"
        mine = self.proof(b"agentkernel host", answer["nonce"], nonce)
        self.send_map(0, HELLO, {"proof": mine})

    def proof(self, who: bytes, first: bytes, second: bytes) -> bytes:
        return hmac.digest(self.token, who + first + second, hashlib.sha256)

    # streams

    def open(self, op: str, *, credit: bool = True, keep: bool = True, **args: Any) -> Stream:
        stream = Stream(self.next_stream, credit=credit, keep=keep)
        self.next_stream += 2
        self.streams[stream.id] = stream
        self.send_map(stream.id, OPEN, {"op": op, **args})
        return stream

    def pump(self, until: Callable[[], bool], timeout: float = DEADLINE) -> bool:
        """Take frames until something holds; False when it did not in time."""
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            frame = self.receive(left)
            if frame is not None:
                self._dispatch(frame)
        return True

    def let_go(self, stream: Stream) -> None:
        """END from the host; what is on its way is not looked at."""
        self.send(stream.id, END, b"\x80")
        del self.streams[stream.id]
        self._let_go.add(stream.id)

    def _dispatch(self, frame: Frame) -> None:
        if frame.stream in self._let_go:
            return
        stream = self.streams[frame.stream]
        assert not stream.over, f"a frame after the end: {frame}"
        if frame.type == DATA:
            self._data(stream, frame.payload[0], frame.payload[1:])
        elif frame.type == CREDIT:
            channel, count = struct.unpack("<BI", frame.payload)
            assert channel == IN
            stream.input_credit += count
        elif frame.type == END:
            stream.end = msgspec.msgpack.decode(frame.payload)
        elif frame.type == ERROR:
            error = msgspec.msgpack.decode(frame.payload)
            stream.error = Refused(error["code"], error["message"])
        else:
            raise AssertionError(f"an unexpected frame: {frame}")

    def _data(self, stream: Stream, channel: int, data: bytes) -> None:
        if channel == CONTROL:
            event = msgspec.msgpack.decode(data)
            # Where in the output it came, for those that tell of gaps.
            stream.events.append({**event, "_out": stream.out_count})
            if event["ev"] in ("started", "connected"):
                stream.input_credit = INPUT_WINDOW
            elif event["ev"] == "attached":
                stream.input_credit = event["credit"]
            return
        if channel == OUT:
            stream.out_count += len(data)
        else:
            assert channel == ERR
            stream.err_count += len(data)
        if stream.keep:
            (stream.out if channel == OUT else stream.err).extend(data)
        if stream.credit:
            self.grant(stream, channel, len(data))

    def grant(self, stream: Stream, channel: int, count: int) -> None:
        self.send(stream.id, CREDIT, struct.pack("<BI", channel, count))

    def control(self, stream: Stream, **what: Any) -> None:
        self.send(stream.id, DATA, bytes([CONTROL]) + msgspec.msgpack.encode(what))

    def write(self, stream: Stream, data: bytes, *, eof: bool = False) -> None:
        """Input under flow control; takes what comes meanwhile."""
        view = memoryview(data)
        while view:
            assert self.pump(lambda: stream.input_credit > 0 or stream.over), "no input credit"
            if stream.over:
                return
            piece = view[: min(stream.input_credit, 65_536)]
            stream.input_credit -= len(piece)
            self.send(stream.id, DATA, bytes([IN]) + bytes(piece))
            view = view[len(piece) :]
            while select.select([self.socket], [], [], 0)[0] or len(self._buffer) >= 9:
                frame = self.receive(0)
                if frame is None:
                    break
                self._dispatch(frame)
        if eof:
            self.control(stream, eof=True)

    def finish(self, stream: Stream, timeout: float = DEADLINE) -> dict[str, Any]:
        """The END of a stream."""
        assert self.pump(lambda: stream.over, timeout), f"no end of {stream}"
        if stream.error is not None:
            raise stream.error
        assert stream.end is not None
        return stream.end

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        return self.finish(self.open(op, **args))

    # processes

    def exec(self, argv: list[str] | str, **args: Any) -> Stream:
        """Start; a string is a shell script."""
        command = ["/bin/sh", "-c", argv] if isinstance(argv, str) else argv
        options: dict[str, Any] = {"id": new_id(), "env": ENVIRONMENT, **args}
        return self.open("exec", argv=command, **options)

    def started(self, stream: Stream) -> int:
        assert self.pump(lambda: stream.event("started") is not None or stream.over)
        event = stream.event("started")
        assert event is not None, stream
        pid = event["pid"]
        assert isinstance(pid, int)
        return pid

    def run(self, argv: list[str] | str, *, stdin: bytes | None = None, **args: Any) -> Stream:
        """Start, feed, and wait for the end."""
        stream = self.exec(argv, stdin=stdin is not None, **args)
        if stdin is not None:
            self.write(stream, stdin, eof=True)
        self.finish(stream)
        return stream

    def output(self, argv: list[str] | str, **args: Any) -> str:
        """The output of a command that has to succeed."""
        stream = self.run(argv, **args)
        assert stream.end is not None
        assert (stream.end["outcome"], stream.end.get("code")) == ("exited", 0), (
            stream.end,
            bytes(stream.err),
        )
        return stream.out.decode()


# Puts the descriptors where agentd looks for them, and executes the rest of its arguments. For root
# it first becomes root of a user namespace whose maps the parent writes (whoever executes something
# before it is mapped loses the capabilities for that), so that a guest is never the machine's root.
_ENTER = """
import ctypes, os, sys
listener, boot, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
high = [os.dup2(fd, 100 + i) for i, fd in enumerate((listener, boot))]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.closerange(5, 256)
if mode != "own":
    os.setgroups([])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(1, b"u")
    os.read(0, 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
null = os.open("/dev/null", os.O_RDWR)
os.dup2(null, 0)
os.dup2(null, 1)
os.execv(sys.argv[4], sys.argv[4:])
"""

# What a sandbox has of its own besides /proc.
_START = """
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts || exit 99
ip link set lo up 2>/dev/null
exec "$@"
"""


class Guest:
    """agentd as PID 1 of a private user, pid, mount and network namespace.

    In it is one id, 0, or with `ids="range"` (which takes root) 65,536 of them. Outside, these are
    the user who runs the tests or, for root, ids that nobody has: the file system of the machine
    can be seen by a guest, and nothing of it belongs to it.
    """

    def __init__(
        self,
        binary: Path,
        directory: Path,
        *,
        ids: str = "single",
        command: list[str] | None = None,
        **boot: Any,
    ) -> None:
        for tool in ("unshare", "mount"):
            if not shutil.which(tool):
                pytest.skip(f"{tool} is not installed")
        self.token = secrets.token_bytes(32)
        self.hosts: list[Host] = []
        self.path = directory / f"{secrets.token_hex(4)}.sock"
        if ids == "single":
            boot.setdefault("single_uid", 0)
        boot.setdefault("caps", DOCKER_CAPS)
        configuration = msgspec.msgpack.encode({"token": self.token, **boot})
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(self.path))
            listener.listen(16)
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            os.write(writer, configuration)
            os.close(writer)
            self.process = self._start(ids, command or [str(binary)], listener.fileno(), reader)

    def _start(self, ids: str, command: list[str], *fds: int) -> subprocess.Popen[bytes]:
        unshare = [shutil.which("unshare") or "unshare", "--pid", "--fork", "--mount", "--net"]
        unshare += ["--mount-proc", "--kill-child"]
        mode = ids if os.getuid() == 0 else "own"
        if mode == "own":
            unshare += ["--user", "--map-root-user"]
        full = [sys.executable, "-IS", "-c", _ENTER, *map(str, fds), mode]
        full += [*unshare, "--", "sh", "-c", _START, "sh", *command]
        process = subprocess.Popen(
            full,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=fds,
            env={"PATH": os.environ["PATH"], "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "")},
        )
        assert process.stdin is not None and process.stdout is not None
        if mode != "own":
            assert process.stdout.read(1) == b"u"
            size = RANGE_SIZE if mode == "range" else 1
            if mode == "single":
                Path(f"/proc/{process.pid}/setgroups").write_text("deny")
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text(f"0 {RANGE_BASE} {size}")
        process.stdin.close()
        process.stdout.close()
        return process

    @property
    def pid(self) -> int:
        """agentd's pid outside."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(task.read_text().split()[0])

    def status(self, name: str) -> int:
        """A number of agentd's /proc status, in kB if it has a unit."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise KeyError(name)

    def connect(self, *, token: bytes | None = None, handshake: bool = True) -> Host:
        host = Host(self.path, token or self.token, handshake=handshake)
        self.hosts.append(host)
        return host

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        for host in self.hosts:
            host.close()
        # Killing unshare is not enough: what it asked for at its death is forgotten by the kernel
        # when its child changes ids.
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(timeout=DEADLINE)


def namespaces_work() -> bool:
    """May this user make the namespaces the tests need?"""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--net"]
    done = subprocess.run(
        [*command, "--mount-proc", "true"], capture_output=True, timeout=30, check=False
    )
    return done.returncode == 0


def wait_for(condition: Callable[[], bool], timeout: float = DEADLINE) -> bool:
    """Poll for something that no frame tells."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def connected(guest: Guest) -> Iterator[Host]:
    host = guest.connect()
    try:
        yield host
    finally:
        host.close()
