"""Starts the gateway's process, which belongs to the state directory, not to whoever starts it: it
goes on without them while there are sandboxes that use it, and ends by itself."""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agentkernel.errors import HostError
from agentkernel.network.gateway.messages import Events, Stop
from agentkernel.network.link import GatewayLink, LinkClosed
from agentkernel.network.policy.model import Operator

START_SECONDS = 20.0
LOG_NAME = "gateway.log"
_PAUSE = 0.01
# Gateways that this process started.
_children: list[subprocess.Popen[bytes]] = []


async def start_gateway(state_dir: Path, on_events: Callable[[Events], None]) -> GatewayLink:
    """A link to a gateway, which is started if none answers. Raises HostError."""
    try:
        return await GatewayLink.connect(state_dir, on_events)
    except LinkClosed:
        pass
    reap()
    child = _spawn(state_dir)
    _children.append(child)
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    return await GatewayLink.connect(state_dir, on_events)
                except LinkClosed:
                    # Its end is no failure if another one holds the lock and is about to listen.
                    if child.poll() not in (None, 0):
                        raise HostError(
                            f"the network gateway ended with status {child.returncode}",
                            hint=f"its log is {state_dir / LOG_NAME}",
                        ) from None
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        child.kill()
        raise HostError(
            f"the network gateway did not start in {START_SECONDS:g} s",
            hint=f"its log is {state_dir / LOG_NAME}",
        ) from None


async def try_gateway(directory: Path) -> None:
    """Starts one in a directory of nobody's, and ends it when it has answered. Raises HostError."""
    link = await start_gateway(directory, lambda events: None)
    child = _children[-1]
    try:
        await link.greet(Operator())
        await link.call(Stop)
    finally:
        link.close()
        try:
            await asyncio.to_thread(child.wait, START_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        reap()


def _spawn(state_dir: Path) -> subprocess.Popen[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    log = os.open(state_dir / LOG_NAME, flags, 0o600)
    try:
        return subprocess.Popen(
            # -P: what lies in the current directory is not ours to run.
            [sys.executable, "-P", "-m", "agentkernel.network.gateway", str(state_dir)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=package_environment(),
            start_new_session=True,
        )
    except OSError as exc:
        raise HostError(f"the network gateway can't be started: {exc.strerror}") from None
    finally:
        os.close(log)


def package_environment() -> dict[str, str]:
    """Ours: it names the host's upstream proxy. The package is found where we found it."""
    environment = dict(os.environ)
    home = str(Path(__file__).resolve().parents[2])
    if os.path.basename(home) not in ("site-packages", "dist-packages"):
        rest = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{home}{os.pathsep}{rest}" if rest else home
    return environment


def reap() -> None:
    """Waits for gateways of ours that have ended, or they would stay as zombies."""
    for child in list(_children):
        if child.poll() is not None:
            _children.remove(child)


@atexit.register
def _leave() -> None:
    """They go on without us: nobody is to be warned that they do."""
    for child in _children:
        child.returncode = 0
