"""`python -m agentkernel.conformance.owner BACKEND STATE_DIR`: makes the sandbox whose blueprint
comes as a line of JSON on stdin, says `made`, and holds it until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from agentkernel.backends.base import Blueprint
from agentkernel.backends.registry import Backends


async def main() -> None:
    backend, state_dir = sys.argv[1:]
    blueprint = msgspec.json.decode(sys.stdin.readline(), type=Blueprint)
    sandbox = await Backends(Path(state_dir))[backend].create(blueprint)
    sys.stdout.write(f"made {sandbox.pid}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
