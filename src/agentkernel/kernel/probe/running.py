"""The probe put into a running sandbox, run as its users, and taken away again.

What must hold: a sandbox in use stays as it is. The program is one file that is gone at the end,
whatever happens; it runs one process at a time beside its own, and its time is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Final

from agentkernel.backends.base import Sandbox
from agentkernel.errors import (
    AgentKernelError,
    GuestFileError,
    GuestProtocolError,
    GuestTimeoutError,
    ResourceExhaustedError,
    SandboxUnavailableError,
    UnsupportedError,
)
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.ids import new_id
from agentkernel.kernel.commands import ExecResult, run_command
from agentkernel.kernel.probe.catalogue import CATALOGUE
from agentkernel.kernel.probe.findings import ProbeResult
from agentkernel.kernel.probe.judge import Report, judge
from agentkernel.kernel.probe.report import MAX_REPORT_BYTES, parse_report
from agentkernel.kernel.probe.rules import HostFacts

RUN_SECONDS: Final = 60.0
# The first where a program can be written and executed.
_PLACES: Final = ("/tmp", "/var/tmp", "/run", "/root", "")
# By number: an image need not know the name.
_USERS: Final = {"root": "0", "user": "1000"}
_NO_PROCESS: Final = 75  # agentd/src/probe.c
_NAMESPACES: Final = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")


class _NotHere(Exception):
    """Programs can't be executed in this place."""


async def probe_sandbox(sandbox: Sandbox) -> ProbeResult:
    """Tries everything as root and as user, as far as the sandbox has them."""
    users, notes = _users(sandbox)
    program = await asyncio.to_thread(lambda: agentd_path().read_bytes())
    with _bait() as words:
        reports = await _reports(sandbox, program, users, words)
    return judge(
        reports,
        sandbox.blueprint,
        engine=sandbox.backend,
        effective=sandbox.effective,
        host=host_facts(getattr(sandbox, "pid", None)),  # engines with a process of their own
        notes=notes,
    )


def _users(sandbox: Sandbox) -> tuple[list[str], list[str]]:
    users, notes = [], []
    for user in _USERS:
        try:
            sandbox.check_user(_USERS[user])
        except UnsupportedError as exc:
            notes.append(f"not tried as {user}: {exc.message}")
        else:
            users.append(user)
    return users, notes


async def _reports(
    sandbox: Sandbox, program: bytes, users: list[str], words: list[str]
) -> dict[str, Report]:
    files = GuestFiles(sandbox.channel, user=_USERS[users[0]])
    failure: AgentKernelError | None = None
    for place in _PLACES:
        path = f"{place}/.probe-{new_id()}"
        try:
            await files.write(path, program, mode=0o755)
            # The first user owns the file. The next one finds out whether set-user-id counts.
            armed = [*words, "--setuid", path] if len(users) > 1 else words
            return {
                user: await _report(sandbox, user, [path, "probe", *(words if index else armed)])
                for index, user in enumerate(users)
            }
        except GuestFileError as exc:
            if exc.errno == errno.EAGAIN:
                raise _no_process() from None
            failure = exc
        except _NotHere:
            pass
        finally:
            with contextlib.suppress(GuestFileError, SandboxUnavailableError):
                await files.remove(path)
    raise failure or UnsupportedError(
        "there is no place in the sandbox where a program can be put and executed",
        hint=f"one of {', '.join(place or '/' for place in _PLACES)} has to allow it",
    )


async def _report(sandbox: Sandbox, user: str, argv: list[str]) -> Report:
    options = ProcessOptions(user=_USERS[user], cwd="/", timeout_seconds=RUN_SECONDS)
    result = await run_command(sandbox, argv, options, output_bytes=MAX_REPORT_BYTES)
    _refuse_failure(result)
    return parse_report(result.stdout, CATALOGUE)


def _refuse_failure(result: ExecResult) -> None:
    status = result.status
    match status.outcome:
        case Outcome.NOT_STARTED if status.errno in ("EAGAIN", "ENOMEM"):
            raise _no_process()
        case Outcome.NOT_STARTED:
            raise _NotHere
        case Outcome.TIMEOUT:
            raise GuestTimeoutError(f"the probe did not end within {RUN_SECONDS:g} s")
        case Outcome.LOST:
            raise SandboxUnavailableError("the sandbox ended during the probe")
        case Outcome.OOM:
            raise ResourceExhaustedError("the sandbox ran out of memory during the probe")
    if status.exit_code == _NO_PROCESS:
        raise _no_process()
    if status.exit_code != 0 or result.truncated:
        raise GuestProtocolError(
            "the probe did not end as it does",
            hint="something in the sandbox stands in its place: do not trust what it says",
        )


def _no_process() -> ResourceExhaustedError:
    return ResourceExhaustedError(
        "the sandbox has no room for the probe's processes, of which there are three at a time",
        hint="end some of its own, or probe a fresh sandbox",
    )


@contextlib.contextmanager
def _bait() -> Iterator[list[str]]:
    """Listeners outside for the probe to look for. Nobody accepts; they are gone with the block."""
    name = f"agentkernel-probe-{new_id()}"
    with contextlib.ExitStack() as stack:
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        hidden.bind(f"\0{name}")
        hidden.listen(1)
        words = ["--abstract", name]
        with contextlib.suppress(OSError):  # a machine without an IPv4 loopback
            tcp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            tcp.bind(("127.0.0.1", 0))
            tcp.listen(1)
            words += ["--tcp", str(tcp.getsockname()[1])]
        yield words


def host_facts(pid: int | None) -> HostFacts:
    """This machine's. What can't be read is left empty, and then nothing equals it."""
    return HostFacts(
        uid=os.getuid(),
        gid=os.getgid(),
        namespaces={kind: link for kind in _NAMESPACES if (link := _link(kind))},
        hostname=os.uname().nodename,
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        machine_id=_text("/etc/machine-id"),
        version=_text("/proc/version"),
        core_handler=_text("/proc/sys/kernel/core_pattern").startswith("|"),
        uid_map="" if pid is None else _text(f"/proc/{pid}/uid_map"),
        gid_map="" if pid is None else _text(f"/proc/{pid}/gid_map"),
    )


def _link(kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""
