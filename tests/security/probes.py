"""Attack code and how it is run: Python sent to a sandbox's own interpreter, one JSON answer back.

A probe does harmful things on purpose. Its first act is to make sure that it is inside a sandbox
(PID 1 is agentd, and the word that only `run_probe` passes is there) or that a control said so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.guest.processes import GuestProcess, Outcome, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.commands import ExecResult, start_command
from agentkernel.kernel.runs import Runs
from agentkernel.security.seccomp.syscalls import table

MARK = "AK_PROBE"
INSIDE, CONTROL = "inside", "private-control"
MACHINE = os.uname().machine

PRELUDE = """
import ctypes, errno, json, mmap, os, signal, socket, struct, sys, time
def _guard():
    mark = os.environ.pop('AK_PROBE', '')
    if mark == 'inside':
        with open('/proc/1/cmdline') as f: first = f.read()
        if first.rstrip('\\0') == 'agentd': return
    if mark == 'private-control': return
    sys.exit('a probe refuses to run outside of a sandbox')
_guard()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NR = json.loads(%(numbers)r)
def name_of(number): return errno.errorcode.get(number, str(number)) if number else 'ok'
def call(name, *args):
    ctypes.set_errno(0)
    number = NR[name] if isinstance(name, str) else name
    words = [ctypes.c_long(a) if isinstance(a, int) else
             ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *words)
    return result, (name_of(ctypes.get_errno()) if result == -1 else 'ok')
def err(name, *args): return call(name, *args)[1]
def attempt(function, *args):
    'ok, or the name of the error'
    try:
        function(*args)
        return 'ok'
    except OSError as e: return name_of(e.errno)
def can_open(path, flags):
    try: os.close(os.open(path, flags))
    except OSError as e: return name_of(e.errno)
    return 'ok'
def read(path, limit=1 << 20):
    'Content, or None when it cannot be had'
    try: fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError: return None
    try:
        parts = b''
        while len(parts) < limit:
            more = os.read(fd, 65536)
            if not more: break
            parts += more
        return parts
    except OSError: return None
    finally: os.close(fd)
def text(path): return (read(path) or b'').decode('utf-8', 'replace')
def status(pid='self'):
    return dict(l.split(':', 1) for l in text('/proc/%%s/status' %% pid).splitlines() if ':' in l)
def pids(): return [int(p) for p in os.listdir('/proc') if p.isdigit()]
def wait_for(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end: time.sleep(0.01)
    return value
def in_child(function, *args):
    'What a function returns in a fork: {"value": …}, or {"signal": n} when it died of one'
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(w, json.dumps(function(*args)).encode())
        finally: os._exit(0)
    os.close(w)
    with os.fdopen(r, 'rb') as f: data = f.read()
    _, state = os.waitpid(pid, 0)
    if os.WIFSIGNALED(state): return {'signal': os.WTERMSIG(state)}
    return {'value': json.loads(data) if data else None}
def answer(**values): print(json.dumps(values))
V = json.loads(%(values)r)
"""


def script(source: str, values: dict[str, Any]) -> bytes:
    """A complete probe: prelude, the values it is given as `V`, and the attack itself."""
    numbers = json.dumps(dict(table(MACHINE)))
    return (PRELUDE % {"numbers": numbers, "values": json.dumps(values)} + source).encode()


async def interpreter(kernel: Runs, sandbox: Sandbox) -> str:
    """The path of a python3 in the sandbox: one that every user reaches if there is one.

    What PATH says first may be in root's home, or a shim of a version manager that costs time.
    """
    show = "-I -c 'import ctypes, sys; print(sys.executable)' 2> /dev/null"
    tries = f"for p in /usr/bin/python3 /usr/local/bin/python3 python3; do $p {show} && exit; done"
    found = await kernel.run(sandbox, ["sh", "-c", f"{tries}; exit 1"])
    if found.status.exit_code != 0:
        pytest.skip(f"the image has no python3 that runs: {found.status} {found.stderr[:200]!r}")
    return found.stdout.decode().strip()


class Box:
    """A sandbox to attack."""

    def __init__(self, kernel: Runs, sandbox: Sandbox, python: str) -> None:
        self.kernel = kernel
        self.sandbox = sandbox
        self.python = python

    @property
    def ids(self) -> str:
        """`range`, `subuid` or `single`: what ids this sandbox has."""
        return str(self.sandbox.maps.mode)  # type: ignore[attr-defined]

    @property
    def agent_user(self) -> str:
        """The user whose processes have agentd's own uid: the strongest position inside."""
        number = self.sandbox.maps.agent_id  # type: ignore[attr-defined]
        return f"{number}:{number}"

    def enforces(self, what: str) -> str:
        """What `effective` says enforces a limit; empty if nothing does."""
        by = next(line.enforced_by for line in self.sandbox.effective if line.what == what)
        return "" if by.startswith("not enforced") else by

    async def run(
        self, argv: list[str], *, stdin: bytes = b"", output_bytes: int = 4 << 20, **options: Any
    ) -> ExecResult:
        chosen = ProcessOptions(**options)
        return await self.kernel.run(
            self.sandbox, argv, chosen, stdin=stdin, output_bytes=output_bytes
        )

    async def probe(self, source: str, *, user: str | None = None, **values: Any) -> dict[str, Any]:
        """Runs attack code inside; what it passed to `answer`."""
        result = await self.run(
            [self.python, "-I", "-"],
            stdin=script(source, values),
            user=user,
            env={MARK: INSIDE},
            timeout_seconds=30.0,
        )
        assert result.status.outcome is Outcome.EXITED, (result.status, result.stderr[-2000:])
        return parse(result.stdout, result.stderr)

    async def answers(self) -> None:
        """The sandbox is alive and runs commands."""
        await self.sandbox.channel.call("ping", seconds=5.0)
        result = await self.run(["true"], timeout_seconds=10.0)
        assert result.status.exit_code == 0, result.status


def parse(stdout: bytes, stderr: bytes) -> dict[str, Any]:
    try:
        body = json.loads(stdout.splitlines()[-1])
    except (IndexError, ValueError):
        pytest.fail(f"the probe gave no answer: {stdout[-500:]!r} {stderr[-2000:]!r}")
    assert isinstance(body, dict)
    return body


def outside(source: str, *, prefix: tuple[str, ...] = (), **values: Any) -> dict[str, Any]:
    """Runs a *harmless* probe on the host itself, as the control of one that ran inside."""
    return _here([*prefix, sys.executable, "-I", "-"], source, values)


def in_private_namespaces(source: str, *flags: str, **values: Any) -> dict[str, Any]:
    """Runs a probe as root of new user, mount, pid, network and other namespaces: nobody else's.

    Skips where this machine does not let a plain `unshare` do that.
    """
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("no unshare(1) for the control")
    command = [program, "--user", "--map-root-user", "--mount", *flags]
    tried = subprocess.run([*command, "true"], capture_output=True, timeout=20)
    if tried.returncode:
        pytest.skip(f"no private namespaces for the control: {tried.stderr.decode()[:200]}")
    return _here([*command, sys.executable, "-I", "-"], source, values)


def _here(command: list[str], source: str, values: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        command,
        input=script(source, values),
        capture_output=True,
        env={"PATH": os.environ.get("PATH", os.defpath), MARK: CONTROL},
        timeout=30,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return parse(done.stdout, done.stderr)


def compile_static(source: str, target: Path) -> Path:
    """A static program of its own for images that hold nothing; skips without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no cc to compile the probe with")
    done = subprocess.run(
        [compiler, "-static", "-Os", "-x", "c", "-", "-o", str(target)],
        input=source.encode(),
        capture_output=True,
        timeout=60,
    )
    if done.returncode:
        pytest.skip(f"cc makes no static program here: {done.stderr.decode()[:200]}")
    return target


def host_text(path: str) -> str:
    """A file of the host, empty if it can't be read: for comparison with what a guest sees."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def on_host(*paths: str) -> list[str]:
    """Those of the paths that the host has."""
    return [path for path in paths if os.path.lexists(path)]


async def start(box: Box, source: str, **values: Any) -> tuple[GuestProcess, bytes]:
    """Starts a probe that prints once and stays; the process and what it printed."""
    process = start_command(
        box.sandbox, [box.python, "-I", "-"], ProcessOptions(env={MARK: INSIDE}, stdin=True)
    )
    await process.write(script(source, values))
    process.close_stdin()
    async with asyncio.timeout(20):
        part = await process.output()
    assert part is not None and part[0] is Channel.STDOUT, (part, process.status)
    return process, part[1]


async def end(process: GuestProcess) -> None:
    """Kills the whole tree of a process and waits for its end."""
    process.kill()
    async with asyncio.timeout(20):
        while await process.output() is not None:
            pass


async def eventually(
    condition: Callable[[], Awaitable[bool] | bool], what: str, *, seconds: float = 10.0
) -> None:
    """Waits for a condition with a deadline."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value if isinstance(value, bool) else await value:
            return
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)
