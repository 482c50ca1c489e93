"""`agentkernel serve`: the daemon, in the background unless told otherwise."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
    words = _listen_words(vars(options))
    if options.ready_fd is not None:
        enter_own_scope(["serve", "--ready-fd", str(options.ready_fd), *words])
        return _child(state_dir, options)
    if not options.foreground:
        return _start(state_dir, words)
    enter_own_scope(["serve", "--foreground", *words])
    from agentkernel.server import daemon
    from agentkernel.server.network import Listen

    daemon.run(
        state_dir,
        ready=lambda url: _say_ready(state_dir, os.getpid(), url),
        listen=Listen.wanted(vars(options)),
        mounts=_MOUNTS,
    )
    return 0


def _listen_words(values: Mapping[str, Any]) -> list[str]:
    """The arguments that say where to listen, to be said again to another process."""
    words = []
    for name in ("listen", "tls_cert", "tls_key"):
        if values.get(name):
            words += [f"--{name.replace('_', '-')}", str(values[name])]
    for name, flag in (("allow_hosts", "--allow-host"), ("allow_origins", "--allow-origin")):
        for value in values.get(name) or ():
            words += [flag, value]
    return [*words, "--insecure-http"] if values.get("insecure_http") else words


def _say_ready(state_dir: Path, pid: int, url: str | None) -> None:
    also = f" and {url}" if url else ""
    print(f"agentkernel: ready on {state_dir / 'api.sock'}{also}, pid {pid}", flush=True)


def _start(state_dir: Path, words: list[str]) -> int:
    """Starts the daemon and returns when it accepts, or says why it can't."""
    readable, writable = os.pipe()
    with open(readable, "rb") as answer:
        try:
            process = subprocess.Popen(
                # -P: what lies in the current directory is not ours to run.
                [
                    sys.executable, "-P", "-m", "agentkernel",
                    "serve", "--ready-fd", str(writable), *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writable,),
                start_new_session=True,
            )  # fmt: skip
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
    _say_ready(state_dir, process.pid, told.get("url"))
    process.returncode = 0  # it stays: nobody waits for it
    return 0


def _told(body: dict[str, Any]) -> AgentKernelError:
    """An error of the daemon's as it was raised there."""
    kinds = {kind.code: kind for kind in all_error_types()}
    return kinds.get(body["code"], AgentKernelError)(
        body["message"], hint=body.get("hint"), **body.get("details", {})
    )


def _child(state_dir: Path, options: argparse.Namespace) -> int:
    """The daemon itself: it belongs to no terminal, and its log is a file."""
    os.chdir("/")

    def tell(body: dict[str, object]) -> None:
        with open(options.ready_fd, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(body) + "\n")

    from agentkernel.server import daemon
    from agentkernel.server.network import Listen

    try:
        daemon.run(
            state_dir,
            ready=lambda url: tell({"pid": os.getpid(), "url": url}),
            log_to_file=True,
            listen=Listen.wanted(vars(options)),
            arguments=_listen_words(vars(options)),
            mounts=_MOUNTS,
        )
    except AgentKernelError as error:
        tell({"error": error.to_dict()})
        return 125
    return 0
