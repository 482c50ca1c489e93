"""The processes that write down how projects are when sandboxes get them.

One for each new sandbox with a copy-on-write workspace, beside it: nobody waits for it but who
applies its changes, and who removes it. A base that was not finished, because this process ended,
is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from agentkernel.workspaces.model import Workspace

_MOST_SECONDS = 60.0


class Bases:
    """Those of one kernel."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, id: str, workspace: Workspace, directory: str) -> None:
        """`directory` is made; what is made of it is there after `done`."""
        task = asyncio.create_task(_record(workspace, directory))
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._forget(id, task))

    async def done(self, id: str) -> None:
        if task := self._tasks.get(id):
            await asyncio.wait((task,))

    async def end(self, id: str) -> None:
        """Before its directory goes."""
        if task := self._tasks.get(id):
            task.cancel()
            await asyncio.wait((task,))

    async def close(self) -> None:
        for id in list(self._tasks):
            await self.end(id)

    def _forget(self, id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id) is task:
            del self._tasks[id]


async def _record(workspace: Workspace, directory: str) -> None:
    """Without a base nothing is merged: that is told when it matters."""
    with contextlib.suppress(OSError):
        os.mkdir(directory, 0o700)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "agentkernel.workspaces.recording"),
            *(workspace.path, directory, str(workspace.began_ns)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
        )
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
