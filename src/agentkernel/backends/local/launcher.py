"""Runs the C launcher and learns what became of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import dataclass
from subprocess import DEVNULL, Popen

from agentkernel import faults
from agentkernel.backends.local.shortages import host_error, is_shortage
from agentkernel.errors import LaunchError
from agentkernel.guest.channel import SOCKET_NAME

LAUNCH_DEADLINE_S = 20.0
# A guest may have made millions of files, on a slow disk. What is not removed then, the next one
# who asks goes on with.
MEASURE_DEADLINE_S = 300.0
REMOVE_DEADLINE_S = 600.0


@dataclass(frozen=True)
class LaunchFailure(Exception):
    """The launcher's own words: which stage failed, with which errno, on what."""

    stage: str
    errno: int
    detail: str


def listen_in(directory: str) -> socket.socket:
    """A listening socket that exists for the host as `directory`/s.

    Bound through a descriptor: the guest, which inherits the socket, then learns nothing of the
    path by getsockname, and a long path does not meet the 108-byte limit.
    """
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
        sock.listen(16)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(fd)
    return sock


async def launch(
    agentd: str,
    plan: bytes,
    listener: socket.socket,
    record: int,
    network: socket.socket | None = None,
) -> int:
    """Starts the sandbox; returns the host pid of its PID 1, which is our child.

    `record` is a descriptor that gets that pid and its start time before anything of the guest
    runs; `network` gets the sockets of a plan with a network, before that too. Raises
    LaunchFailure; then nothing of the sandbox is left.
    """
    words = (str(os.getpid()),)
    descriptors = (listener.fileno(), record, *([network.fileno()] if network else []))
    pid = await _run(agentd, "launch", plan, *descriptors, words=words, seconds=LAUNCH_DEADLINE_S)
    if not pid:
        raise LaunchFailure("launcher", 0, "ended without a word")
    return pid


async def remove_upper(agentd: str, plan: bytes) -> None:
    """Removes the plan's only source, whatever a guest made of it. Raises LaunchFailure."""
    await _run(agentd, "remove", plan, seconds=REMOVE_DEADLINE_S)


async def measure_sources(agentd: str, plan: bytes) -> list[tuple[int, int, int]]:
    """Bytes, entries, and 1 if that is all, of each source of the plan. Raises LaunchFailure."""
    results = os.memfd_create("results", os.MFD_CLOEXEC)
    try:
        await _run(agentd, "measure", plan, results, seconds=MEASURE_DEADLINE_S)
        size = os.lseek(results, 0, os.SEEK_CUR)
        found = [line.split() for line in os.pread(results, size, 0).splitlines()]
    finally:
        os.close(results)
    return [(int(size), int(entries), int(whole)) for size, entries, whole in found]


async def _run(
    agentd: str,
    verb: str,
    plan: bytes,
    *descriptors: int,
    seconds: float,
    words: tuple[str, ...] = (),
) -> int:
    plan_fd = os.memfd_create("plan", os.MFD_CLOEXEC)
    try:
        os.write(plan_fd, plan)
        os.lseek(plan_fd, 0, os.SEEK_SET)
        return await run_verb(
            agentd, verb, *descriptors, before=(plan_fd,), words=words, seconds=seconds
        )
    finally:
        os.close(plan_fd)


async def run_verb(
    agentd: str,
    verb: str,
    *descriptors: int,
    before: tuple[int, ...] = (),
    words: tuple[str, ...] = (),
    seconds: float,
) -> int:
    """`agentd VERB BEFORE… STATUS_FD DESCRIPTORS… WORDS…`, to its end or to that of what it
    started; the pid that it reported, or 0. Raises LaunchFailure, or LaunchError where it takes
    longer than `seconds`; then nothing runs."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    handed = (*before, write_end, *descriptors)
    try:
        os.set_blocking(write_end, True)
        launcher = Popen(  # noqa: ASYNC220 (vfork and exec: 1 ms)
            [agentd, verb, *map(str, handed), *words],
            pass_fds=handed,
            stdin=DEVNULL,
            stdout=DEVNULL,
            env={},
            cwd="/",
        )
    except OSError as exc:
        os.close(read_end)
        if is_shortage(exc):
            raise host_error(exc, "starting the launcher") from None
        raise LaunchError(f"the launcher can't be started: {exc}") from None
    finally:
        os.close(write_end)
    report = bytearray()
    try:
        faults.point("launcher.spawned")
        async with asyncio.timeout(seconds):
            await _read_all(read_end, report)
        status, pid = launcher.wait(), _parse(report)
        if status:
            raise LaunchFailure("launcher", 0, f"{verb} ended with status {status}")
        return pid
    except BaseException as exc:
        launcher.kill()
        launcher.wait()
        _read_more(read_end, report)
        _kill_reported(report)
        if isinstance(exc, TimeoutError):
            raise LaunchError(f"{verb}: the launcher did not finish in {seconds:g} s") from None
        raise
    finally:
        os.close(read_end)


async def _read_all(fd: int, report: bytearray) -> None:
    """Everything until end of file, which comes when agentd runs or all of the launcher is gone.
    What had come until then is in `report` also if this is given up."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        if _read_more(fd, report) and not done.done():
            done.set_result(None)

    loop.add_reader(fd, readable)
    try:
        await done
    finally:
        loop.remove_reader(fd)


def _read_more(fd: int, report: bytearray) -> bool:
    """What is there now; True at the end of file."""
    try:
        while part := os.read(fd, 4096):
            report += part
    except BlockingIOError:
        return False
    return True


def _parse(report: bytearray) -> int:
    pid = 0
    for line in report.decode("utf-8", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "E":
            number, _, words = rest.partition(" ")
            stage, _, detail = words.partition(" ")
            raise LaunchFailure(stage, int(number), detail)
        if kind == "P":
            pid = int(rest)
    return pid


def _kill_reported(report: bytearray) -> None:
    """After a failure: the guest's first process may already exist, and it is our child."""
    for line in report.splitlines():
        if line.startswith(b"P "):
            pid = int(line[2:])
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
