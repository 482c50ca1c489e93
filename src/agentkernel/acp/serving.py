"""The bridge as a program: on stdin and stdout, until the editor closes them."""

from __future__ import annotations

import asyncio
import signal

from agentkernel.acp.applying import Apply
from agentkernel.acp.bridge import Bridge
from agentkernel.acp.opening import Opener
from agentkernel.acp.stdio import Stdio


def serve(opener: Opener, *, apply: Apply) -> int:
    """1 if the agent has ended first."""
    return asyncio.run(_serve(opener, apply))


async def _serve(opener: Opener, apply: Apply) -> int:
    editor = Stdio()
    work = asyncio.ensure_future(Bridge(editor, opener, apply=apply).run())
    loop = asyncio.get_running_loop()
    # An editor ends us by a signal as often as by closing stdin: the agent stays either way.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    editor.start()
    try:
        return 0 if await work else 1
    except asyncio.CancelledError:
        return 0
