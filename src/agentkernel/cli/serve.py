"""`agentkernel serve`: the daemon, in the background unless told otherwise."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agentkernel.backends.local.delegation import enter_own_scope
from agentkernel.errors import AgentKernelError, HostError, all_error_types
from agentkernel.kernel.state import state_directory


@asynccontextmanager
async def _mcp(service: Any) -> AsyncIterator[Any]:
    """Loaded in a thread: the daemon has other callers to answer meanwhile."""
    import asyncio

    from agentkernel.cli.mcp import http_app

    make = await asyncio.to_thread(http_app, service)
    async with make as app:
        yield app


_MOUNTS = {"/mcp": _mcp}


def main(options: argparse.Namespace) -> int:
    state_dir = state_directory()
    if options.ready_fd is not None:
        enter_own_scope(["serve", "--ready-fd", str(options.ready_fd)])
        return _child(state_dir, options.ready_fd)
    if not options.foreground:
        return _start(state_dir)
    enter_own_scope(["serve", "--foreground"])
    from agentkernel.server import daemon

    daemon.run(state_dir, ready=lambda: _say_ready(state_dir, os.getpid()), mounts=_MOUNTS)
    return 0


def _say_ready(state_dir: Path, pid: int) -> None:
    print(f"agentkernel: ready on {state_dir / 'api.sock'}, pid {pid}", flush=True)


def _start(state_dir: Path) -> int:
    """Starts the daemon and returns when it accepts, or says why it can't."""
    readable, writable = os.pipe()
    with open(readable, "rb") as answer:
        try:
            process = subprocess.Popen(
                # -P: what lies in the current directory is not ours to run.
                [sys.executable, "-P", "-m", "agentkernel", "serve", "--ready-fd", str(writable)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writable,),
                start_new_session=True,
            )
        finally:
            os.close(writable)
        line = answer.readline()
    if not line:
        raise HostError(
            f"the daemon ended with status {process.wait()} before it was ready",
            hint="agentkernel serve --foreground shows why",
        )
    told = json.loads(line)
    if "error" in told:
        raise _told(told["error"])
    _say_ready(state_dir, process.pid)
    process.returncode = 0  # it stays: nobody waits for it
    return 0


def _told(body: dict[str, Any]) -> AgentKernelError:
    """An error of the daemon's as it was raised there."""
    kinds = {kind.code: kind for kind in all_error_types()}
    return kinds.get(body["code"], AgentKernelError)(
        body["message"], hint=body.get("hint"), **body.get("details", {})
    )


def _child(state_dir: Path, fd: int) -> int:
    """The daemon itself: it belongs to no terminal, and its log is a file."""
    os.chdir("/")

    def tell(body: dict[str, object]) -> None:
        with open(fd, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(body) + "\n")

    from agentkernel.server import daemon

    try:
        ready = partial(tell, {"pid": os.getpid()})
        daemon.run(state_dir, ready=ready, log_to_file=True, mounts=_MOUNTS)
    except AgentKernelError as error:
        tell({"error": error.to_dict()})
        return 125
    return 0
