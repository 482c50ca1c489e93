"""What became of a session, from what is written of it: its log, its sandbox's events and files."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from agentkernel.agents.definition import EventFormat
from agentkernel.agents.events import AcpReader, EventReader
from agentkernel.errors import AgentKernelError
from agentkernel.kernel.agents.files import SessionFiles
from agentkernel.kernel.agents.model import AgentSession, AgentSummary, HostSeen, Wish
from agentkernel.kernel.agents.recording import Reader, read_event
from agentkernel.kernel.threads import in_thread
from agentkernel.network.policy.model import TOOLS_HOST
from agentkernel.texts import encodable

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

MAX_HOSTS: Final = 200
MAX_CHANGED: Final = 1000
_MOST_PAGES: Final = 50
_PAGE: Final = 1000
_DENIED: Final = ("network.deny", "network.blocked", "network.limit")


async def read_log(files: SessionFiles, mode: str, format: EventFormat) -> Reader:
    """What the agent has said of itself."""

    def read() -> Reader:
        reader: Reader = AcpReader() if mode == "acp" else EventReader(format)
        for event, _ in files.read():
            read_event(reader, event)
        return reader

    return await in_thread(read)


async def summarize(
    kernel: Kernel, session: AgentSession, reader: Reader, began: float | None
) -> AgentSummary:
    """`began`: when the agent was started; before that its kit may have been installed."""
    hosts, denied, asked, whole = await _hosts(kernel, session)
    changed: list[str] = []
    held_back: dict[str, str] = {}
    complete = reader.complete and whole
    # Its sandbox may be gone, or have no copy of a project.
    with contextlib.suppress(AgentKernelError):
        diff = await kernel.workspaces.diff(session.sandbox)
        changed = [change.path for change in diff.changes[:MAX_CHANGED]]
        held_back = {
            change.path: change.held_back
            for change in diff.changes[:MAX_CHANGED]
            if change.held_back
        }
        complete = complete and not diff.truncated and len(diff.changes) <= MAX_CHANGED
    return AgentSummary(
        session=session,
        commands=encodable(reader.commands),
        hosts=hosts,
        denied=denied,
        changed=changed,
        held_back=held_back,
        usage=reader.usage,
        seconds=(session.ended_at or time.time()) - (began or session.created_at),
        complete=complete,
        asked=asked,
    )


async def _hosts(
    kernel: Kernel, session: AgentSession
) -> tuple[list[HostSeen], list[HostSeen], list[Wish], bool]:
    """Those it reached, those it was not allowed to, and what it asked for, while it ran."""
    reached: Counter[tuple[str, int]] = Counter()
    denied: Counter[tuple[str, int]] = Counter()
    asked: dict[Wish, None] = {}
    after = 0
    cut = True
    for _ in range(_MOST_PAGES):
        page = await kernel.events(
            after,
            sandbox_id=session.sandbox,
            kinds=("network.allow", "network.asked", *_DENIED),
            limit=_PAGE,
        )
        for event in page.records:
            if event.at < session.created_at or (session.ended_at and event.at > session.ended_at):
                continue
            if event.kind == "network.asked":
                with contextlib.suppress(msgspec.ValidationError):
                    asked[msgspec.convert({"host": "", **event.body}, Wish)] = None
                continue
            counter = reached if event.kind == "network.allow" else denied
            host, port = event.body.get("host"), event.body.get("port", 0)
            times = event.body.get("times", 1)
            if host == TOOLS_HOST:
                continue  # the daemon itself
            if isinstance(host, str) and isinstance(port, int) and isinstance(times, int):
                counter[host, port] += times
        after = page.next
        if len(page.records) < _PAGE:
            cut = False
            break
    whole = not cut and max(len(reached), len(denied), len(asked)) <= MAX_HOSTS
    return _shown(reached), _shown(denied), list(asked)[:MAX_HOSTS], whole


def _shown(counted: Counter[tuple[str, int]]) -> list[HostSeen]:
    return [
        HostSeen(host=host, port=port, times=times)
        for (host, port), times in counted.most_common(MAX_HOSTS)
    ]
