"""The server on stdin and stdout, for a client that starts it as its child."""

from __future__ import annotations

import asyncio
import logging
import signal

from mcp.server.stdio import stdio_server

from agentkernel.mcp.operator import Operator
from agentkernel.mcp.service import Service


def serve(operator: Operator) -> None:
    """Returns when the client closes stdin. What is under way then is ended; a sandbox of `run` is
    gone, one of `create` stays for the client's next connection."""
    # stdout is the protocol's alone.
    logging.basicConfig(level=logging.WARNING, format="agentkernel mcp: %(message)s")
    # The thread that reads stdin can't be interrupted, and nothing is lost by ending at once: the
    # daemon ends what belongs to our connections.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(operator))


async def _serve(operator: Operator) -> None:
    server = Service(operator).server()
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
