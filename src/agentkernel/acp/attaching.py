"""From a job in a sandbox to an agent that a bridge can speak to."""

from __future__ import annotations

import os

from agentkernel.acp.inside import SandboxInside
from agentkernel.acp.link import AgentLink
from agentkernel.acp.opening import Opened
from agentkernel.acp.stdio import log
from agentkernel.agents.acp.paths import PathMap
from agentkernel.client._async.jobs import AsyncJob
from agentkernel.client._async.sandbox import AsyncSandbox

_MOST_LINE = 2000


async def attach(
    sandbox: AsyncSandbox, job: AsyncJob, project: str, guest: str, *, again: bool
) -> Opened:
    """`again`: it was spoken to before, by a bridge that is gone; what it said then is not read
    again. `project`: as the editor calls it."""
    out = err = 0
    if again:
        async with job.output(follow=False, recent=0) as past:
            async for _ in past:
                pass
        out, err = past.offsets
    link = AgentLink(job, stdout_offset=out, stderr_offset=err, errors=Complaints())
    await link.open()
    if again:
        link.end_line()
    paths = PathMap(project, guest, _other_names(project))
    return Opened(sandbox, link, SandboxInside(sandbox), paths)


def same_directory(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


def _other_names(project: str) -> list[str]:
    real = os.path.realpath(project)
    return [] if real == project else [real]


class Complaints:
    """What the agent writes to stderr, as lines of the log."""

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > _MOST_LINE:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        for line in lines:
            if line.strip():
                log(f"agent: {line[:_MOST_LINE].decode('utf-8', 'replace')}")
