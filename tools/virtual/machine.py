"""A running machine: QEMU, and the port that commands go through.

QEMU is a child that the kernel ends with us, however we end. The machine has no network card. Its
console goes to a file; the last lines of that are part of every error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socket import SocketIO
from typing import Any

from . import frames
from .image import Image
from .tree import AGENTD, INSIDE

BOOT_SECONDS = 300
MEMORY = "3G"
# `nokaslr` and no mitigations: faster under emulation, and nothing here depends on them.
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off audit=0 tsc=reliable "
    "no_timer_check random.trust_cpu=on systemd.show_status=0 "
    "systemd.unified_cgroup_hierarchy=1 rw"
)
ENVIRONMENT = {
    "AGENTKERNEL_AGENTD": AGENTD,
    "PYTHONPATH": f"{INSIDE}/src",
}
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class MachineProblem(Exception):
    """The machine did not start, or went away; the text holds the end of its console."""


@dataclass
class Result:
    """What became of a command."""

    status: int
    timed_out: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0


@dataclass
class Machine:
    """Use `boot` to get one."""

    process: subprocess.Popen[bytes]
    port: SocketIO
    console: Path
    about: dict[str, str] = field(default_factory=dict)
    boot_seconds: float = 0.0

    def run(
        self,
        argv: list[str],
        *,
        user: str = "root",
        timeout: float = 600,
        env: dict[str, str] | None = None,
        live: bool = False,
    ) -> Result:
        """Runs a command in the clone's directory; `live` passes its output on while it comes."""
        started = time.monotonic()
        request = {
            "argv": argv,
            "user": user,
            "timeout": timeout,
            "cwd": INSIDE,
            "env": {**ENVIRONMENT, **(env or {})},
        }
        frames.send(self.port, frames.REQUEST, json.dumps(request).encode())
        parts: dict[int, list[bytes]] = {frames.STDOUT: [], frames.STDERR: []}
        streams = {frames.STDOUT: sys.stdout.buffer, frames.STDERR: sys.stderr.buffer}
        # The agent inside ends the command in time; a machine that hangs is ended from here.
        deadline = started + timeout + 60
        while True:
            kind, body = self.receive(deadline)
            if kind == frames.DONE:
                answer: dict[str, Any] = json.loads(body)
                break
            parts[kind].append(body)
            if live:
                streams[kind].write(body)
                streams[kind].flush()
        return Result(
            status=124 if answer["timed_out"] else answer["status"],
            timed_out=answer["timed_out"],
            stdout=b"".join(parts[frames.STDOUT]),
            stderr=b"".join(parts[frames.STDERR]),
            seconds=time.monotonic() - started,
        )

    def receive(self, deadline: float) -> tuple[int, bytes]:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.port], [], [], left)[0]:
            raise MachineProblem(f"the machine does not answer\n{self.last_words()}")
        try:
            return frames.receive(self.port)
        except (EOFError, OSError):
            raise MachineProblem(f"the machine is gone\n{self.last_words()}") from None

    def cut_power(self) -> None:
        """What was not written to its disk is lost, as with a real one."""
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self.console.read_bytes()[-3000:].decode(errors="replace")
        return ""


@contextlib.contextmanager
def boot(image: Image, scratch: Path, tree: Path, disk: Path | None = None) -> Iterator[Machine]:
    """Starts a machine and waits until it takes commands; ends it in any case.

    Without `disk` all that it writes is forgotten; with one, written there.
    """
    console = scratch / "console.log"
    started = time.monotonic()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = qemu_command(image, console, theirs.fileno(), tree, disk)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                pass_fds=(theirs.fileno(),),
                env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(scratch)},
                preexec_fn=_end_with_parent,
            )
        try:
            with ours.makefile("rwb", buffering=0) as port:
                machine = Machine(process, port, console)
                kind, body = machine.receive(started + BOOT_SECONDS)
                if kind != frames.HELLO:
                    raise MachineProblem(f"the machine said {kind} first")
                machine.about = json.loads(body)
                machine.boot_seconds = time.monotonic() - started
                yield machine
        finally:
            process.kill()
            process.wait()


def qemu_command(
    image: Image, console: Path, port: int, tree: Path, disk: Path | None
) -> list[str]:
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        raise MachineProblem("qemu-system-x86_64 is missing: install qemu-system-x86")
    root = f"file={disk or image.disk},format=raw,if=none,id=root,cache=writeback"
    if disk is None:
        root += ",snapshot=on"
    return [
        qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off",
        "-smp", "2", "-m", MEMORY,
        "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-append", KERNEL_ARGUMENTS,
        "-serial", f"file:{console}",
        "-drive", root, "-device", "virtio-blk-pci,drive=root",
        "-drive", f"file={tree},format=raw,if=none,id=tree,cache=unsafe,snapshot=on",
        "-device", "virtio-blk-pci,drive=tree",
        "-chardev", f"socket,id=port,fd={port}", "-device", "virtio-serial-pci",
        "-device", "virtserialport,chardev=port,name=agentkernel",
    ]  # fmt: skip


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
