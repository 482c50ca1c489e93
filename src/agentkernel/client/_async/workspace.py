"""What became of a sandbox's copy-on-write workspace: `sandbox.workspace`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkernel.client._async.transport import LONG_CALL_SECONDS, AsyncTransport
from agentkernel.client.wire import segment


class AsyncWorkspace:
    """The workspace of one sandbox. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/workspace"

    async def diff(self) -> dict[str, Any]:
        """What the sandbox has changed: `changes`, one a file, and a `patch` for people and for
        `git apply`. `truncated`: there is more than an answer holds."""
        body: dict[str, Any] = await self._transport.call(
            "GET", f"{self._path}/diff", seconds=LONG_CALL_SECONDS
        )
        return body

    async def apply(
        self,
        paths: Sequence[str] = (),
        *,
        allow_risky: bool = False,
        mark_conflicts: bool = False,
        commit: str | None = None,
    ) -> dict[str, Any]:
        """Makes its changes in the directory itself, all or those at `paths`. `files` tells what
        became of each: applied, merged (with what was changed there, too), conflict (both have
        changed the same lines; with `mark_conflicts` both are in the file, between marks), held (it
        needs `allow_risky`) or skipped; `complete`: all are applied or merged.

        `commit`: instead of files in the directory a commit with this message in its repository;
        `ref` and `commit` say where."""
        wanted: dict[str, Any] = {
            "paths": list(paths),
            "allow_risky": allow_risky,
            "mark_conflicts": mark_conflicts,
        }
        if commit is not None:
            wanted["commit"] = commit
        body: dict[str, Any] = await self._transport.call(
            "POST", f"{self._path}/apply", json=wanted, seconds=LONG_CALL_SECONDS
        )
        return body

    async def discard(self) -> None:
        """Forgets its changes; the sandbox has to be stopped."""
        await self._transport.call("DELETE", self._path, seconds=LONG_CALL_SECONDS)
