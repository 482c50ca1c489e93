"""Sessions: an agent at work in a sandbox, with what it said and did: `kernel.agents.sessions`.

A session is a row before anything of it exists, and its job has its id there. So whoever comes
after a crash finds it: one that runs is listened to again, one that was being started is taken
back. The agent runs as a job, which nobody has to listen to: only its recording needs a daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from builtins import list as List
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from agentkernel import faults
from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.model import AgentUsage
from agentkernel.agents.reading import Definitions
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Progress
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
)
from agentkernel.ids import new_id
from agentkernel.kernel.agents.driving import Drive
from agentkernel.kernel.agents.kept import kept_of, project_of, request_of
from agentkernel.kernel.agents.listening import LIVE, Listening, session_event
from agentkernel.kernel.agents.model import (
    AgentEvent,
    AgentRequest,
    AgentSession,
    AgentSummary,
    SessionPage,
    SessionState,
)
from agentkernel.kernel.agents.preparing import SETUP, definition_of
from agentkernel.kernel.agents.starting import Ready, Starter, check
from agentkernel.kernel.agents.summaries import read_log, summarize
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import SandboxRecord, SessionRecord
from agentkernel.kernel.threads import in_thread
from agentkernel.workspaces.applying import WorkspaceApplied
from agentkernel.workspaces.diffing import WorkspaceDiff

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

log = logging.getLogger("agentkernel.kernel")

MAX_RUNNING: Final = 100
MAX_KEPT: Final = 1000
STOP_SECONDS: Final = 5.0
_OVER: Final = ("ended", "failed", "lost")
_BATCH: Final = 200
_TASK_SHOWN: Final = 4096


class Sessions:
    """See the module."""

    def __init__(self, kernel: Kernel, definitions: Definitions, directory: Path) -> None:
        self._kernel = kernel
        self._definitions = definitions
        self._listening = Listening(kernel, directory)
        self._setting_up: set[str] = set()

    @property
    def trail(self) -> Trail:
        return self._kernel.trail

    # -- with the kernel ------------------------------------------------------------------------

    async def load(self) -> None:
        """Takes back what was being started, and listens again to what runs. Preconditions:
        sandboxes are found, and their jobs' rows are up to date."""
        store = self._kernel._store
        for record in await self._rows(LIVE):
            try:
                if record.state == "starting":
                    await self._take_back(record)
                else:
                    await self._listening.take_up(record)
            except (AgentKernelError, OSError):
                # One that can't be dealt with now keeps nobody else from being found.
                log.exception("the session %s can't be taken up", record.id)
        for id in self._listening.directories():
            try:
                await store.get_session(id)
            except NotFoundError:
                await in_thread(self._listening.files(id).remove)

    async def close(self) -> None:
        """Lets go; agents go on."""
        await self._listening.close()

    # -- life -----------------------------------------------------------------------------------

    @audited("agent.start")
    async def start(
        self,
        asked: AgentRequest,
        *,
        owner: str = "local",
        secrets_of: str | None = None,
        progress: Progress | None = None,
    ) -> AgentSession:
        """Returns when the agent runs. When it raises, nothing of it is left. `secrets_of`: whose
        secrets and logins it may use; the owner's, unless given."""
        store = self._kernel._store
        definition = definition_of(asked, self._definitions)
        check(asked, definition)
        before = None if asked.resume is None else await self._resumed(asked, owner)
        if await store.count_sessions(LIVE) >= MAX_RUNNING:
            raise ResourceExhaustedError(
                f"{MAX_RUNNING} sessions of agents run, which is the most there may be",
                hint="`agentkernel agent sessions` shows them; stop some",
            )
        there = await self._sandbox(asked, before, owner)
        box = new_id() if there is None else there.id
        self.trail.found(box, None if there is None else there.name)
        found = (asked, definition, before, there, box)
        if there is None or not asked.setup:
            return await self._start(*found, owner, secrets_of, progress)
        with self._alone(there):
            await self._check_alone(there)
            return await self._start(*found, owner, secrets_of, progress)

    async def _start(
        self,
        asked: AgentRequest,
        definition: AgentDefinition,
        before: SessionRecord | None,
        there: SandboxRecord | None,
        box: str,
        owner: str,
        secrets_of: str | None,
        progress: Progress | None,
    ) -> AgentSession:
        """`box`: the id of the sandbox that is there, or of the new one."""
        kernel, store = self._kernel, self._kernel._store
        spec = asked.spec or (SandboxSpec() if before is None else kept_of(before).spec)
        project = project_of(there, spec)
        record = SessionRecord(
            id=new_id(),
            owner=owner,
            agent=definition.name,
            version=definition.version,
            mode=asked.mode,
            sandbox_id=box,
            own_sandbox=there is None or bool(before and before.own_sandbox and not asked.sandbox),
            job_id=new_id(),
            task=None if asked.task is None else asked.task[:_TASK_SHOWN],
            model=asked.model,
            project=project,
            conversation=None if before is None else before.conversation,
            created_at=time.time(),
            request=request_of(
                asked, definition, spec, there=there, login_owner=secrets_of or owner
            ),
        )
        starter = Starter(kernel, asked, definition, owner=owner)
        new = there is None
        await store.insert_session(record)
        try:
            faults.point("session.row")
            if not asked.setup and record.sandbox_id in self._setting_up:
                raise _setup_under_way()
            if there is None:
                there = await starter.make_sandbox(
                    record.sandbox_id, spec, secrets_of=secrets_of, progress=progress
                )
            else:
                there = await kernel.start(there.id)
            faults.point("session.sandbox")
            state = self._listening.files(before.id) if before and new else None
            ready = await starter.prepare(
                there,
                conversation=record.conversation,
                state=state,
                keep=[] if before is None else kept_of(before).keep,
                new=new,
                login_owner=secrets_of or owner,
            )
            await starter.start_job(ready, record.job_id, resume=before is not None)
            faults.point("session.job")
            record = await self._begin(record, starter, ready, asked, before)
        except BaseException:
            await self._take_back(record, made=new)
            raise
        await self._forget_old(owner)
        return await self._shown(record)

    async def _begin(
        self,
        record: SessionRecord,
        starter: Starter,
        ready: Ready,
        asked: AgentRequest,
        before: SessionRecord | None,
    ) -> SessionRecord:
        """The agent runs: from now on it is listened to, and spoken to if it is to be driven."""
        recorder = self._listening.recorder(record, size=starter.size)
        recorder.tell(
            "session",
            {
                "id": record.id,
                "agent": record.agent,
                "version": record.version,
                "mode": record.mode,
                "model": record.model,
                "sandbox": record.sandbox_id,
                "workspace": ready.inside.workspace,
                "task": record.task,
                "resumed": None if before is None else before.id,
            },
        )
        drive = None
        if record.mode == "acp" and asked.drive:
            drive = self._listening.drive(record, recorder)
        record = await self._kernel._store.update_session(
            record.id,
            expect_state=("starting",),
            state="running",
            events=[session_event(record, "agent.started", mode=record.mode)],
        )
        task = self._listening.follow(record, recorder)
        if drive is not None:
            attached = asyncio.ensure_future(recorder.attached.wait())
            await asyncio.wait((task, attached), return_when=asyncio.FIRST_COMPLETED)
            attached.cancel()
            load = None if before is None else before.conversation
            await drive.begin(cwd=ready.cwd, mcp=ready.mcp, load=load)
            if asked.task:
                drive.prompt(asked.task)
        return record

    async def _sandbox(
        self, asked: AgentRequest, before: SessionRecord | None, owner: str
    ) -> SandboxRecord | None:
        """The one that is there already, if there is one."""
        if asked.sandbox is not None:
            return await self._kernel.get(asked.sandbox, owner=owner)
        if before is not None and asked.spec is None:
            with contextlib.suppress(NotFoundError):
                return await self._kernel.get(before.sandbox_id, owner=owner)
        return None

    @contextlib.contextmanager
    def _alone(self, there: SandboxRecord) -> Iterator[None]:
        """No other session is started in the sandbox meanwhile: whoever has a row already is seen
        by `_check_alone`, and whoever has it later sees this. Raises ConflictError."""
        if there.id in self._setting_up:
            raise _setup_under_way()
        self._setting_up.add(there.id)
        try:
            yield
        finally:
            self._setting_up.discard(there.id)

    async def _check_alone(self, there: SandboxRecord) -> None:
        """The network's phase for a setup is the whole sandbox's: an agent that works there has no
        part in it. Raises ConflictError."""
        page = await self._kernel._store.find_sessions(sandbox_id=there.id, states=LIVE, limit=1)
        if page.records:
            raise ConflictError(
                f"an agent works in the sandbox {there.name or there.id}, and would reach what "
                "only a setup may",
                hint=f"`agentkernel agent stop {page.records[0].id}` first, or leave out the setup",
            )

    async def _resumed(self, asked: AgentRequest, owner: str) -> SessionRecord:
        assert asked.resume is not None
        before = await self._kernel._store.get_session(asked.resume, owner)
        if before.agent != asked.agent:
            raise InvalidInputError(f"the session {before.id} is one of {before.agent}")
        if before.state in LIVE:
            raise ConflictError(
                "that session still runs", hint=f"agentkernel agent attach {before.id}"
            )
        return before

    @audited("agent.stop", "session")
    async def stop(self, id: str, *, owner: str | None = None) -> AgentSession:
        """Ends the agent: TERM, then all that is left of it. Its sandbox stays."""
        record = await self._kernel._store.get_session(id, owner)
        self.trail.found(record.sandbox_id, None)
        await self._stop(record)
        return await self.get(record.id)

    async def _stop(self, record: SessionRecord) -> None:
        task = self._listening.following.get(record.id)
        if task is None:
            return
        jobs = self._kernel.jobs
        with contextlib.suppress(AgentKernelError):
            await jobs.signal(record.job_id, 15)
            await asyncio.wait((task,), timeout=STOP_SECONDS)
            if not task.done():
                await jobs.kill(record.job_id)
        await asyncio.wait((task,), timeout=2 * STOP_SECONDS)

    @audited("agent.forget", "session")
    async def remove(
        self, id: str, *, owner: str | None = None, keep_sandbox: bool = False
    ) -> None:
        """The session with its log and recording; and its sandbox, if it was made for it and no
        other session is in it."""
        store = self._kernel._store
        record = await store.get_session(id, owner)
        self.trail.found(record.sandbox_id, None)
        await self._stop(record)
        others = await store.find_sessions(sandbox_id=record.sandbox_id, limit=2)
        if record.own_sandbox and not keep_sandbox and len(others.records) == 1:
            with contextlib.suppress(NotFoundError):
                await self._kernel.remove(record.sandbox_id, reason="its session was removed")
        await self._forget(record)

    async def _forget(self, record: SessionRecord) -> None:
        await in_thread(self._listening.files(record.id).remove)
        await self._kernel._store.remove_session(
            record.id, events=[session_event(record, "agent.forgotten")]
        )

    async def _forget_old(self, owner: str) -> None:
        """There is room for so many that are over; the oldest go, without their sandboxes."""
        page = await self._kernel._store.find_sessions(owner, states=_OVER, limit=MAX_KEPT)
        if page.next is not None:
            older = await self._kernel._store.find_sessions(owner, states=_OVER, after=page.next)
            for record in older.records:
                await self._forget(record)

    async def _take_back(self, record: SessionRecord, *, made: bool | None = None) -> None:
        """Nothing is left of a session that was being started. `made`: its sandbox was made for it;
        None: that is known by its row, and by nobody having been in it before."""
        await self._listening.drop(record.id)
        others = await self._kernel._store.find_sessions(sandbox_id=record.sandbox_id, limit=2)
        kept = kept_of(record)
        if made is None:
            made = record.own_sandbox and not kept.found and len(others.records) <= 1
        with contextlib.suppress(AgentKernelError):
            if made:
                await self._kernel.remove(record.sandbox_id, reason="its session did not start")
            else:
                await self._kernel.jobs.kill(record.job_id)
        if not made and kept.phase:
            with contextlib.suppress(NotFoundError):
                await self._end_setup(record.sandbox_id, kept.phase)
        await in_thread(self._listening.files(record.id).remove)
        await self._kernel._store.remove_session(record.id)

    async def _end_setup(self, sandbox: str, phase: str) -> None:
        """Whoever was to do it was killed between."""
        setting = setting_of(await self._kernel.get(sandbox))
        if setting is not None and setting.phase == SETUP != phase:
            await self._kernel.network.switch_phase(sandbox, phase)

    # -- looking --------------------------------------------------------------------------------

    async def get(self, id: str, *, owner: str | None = None) -> AgentSession:
        return await self._shown(await self._kernel._store.get_session(id, owner))

    async def spec(self, id: str, *, owner: str | None = None) -> SandboxSpec:
        """The sandbox that one which goes on with it has, if the session's own is gone."""
        return kept_of(await self._kernel._store.get_session(id, owner)).spec

    async def list(
        self,
        *,
        owner: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        states: Sequence[SessionState] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> SessionPage:
        """The newest first. `project`: the directory of this machine that they work on."""
        if project is not None:
            if "\0" in project:
                raise InvalidInputError("no project has a name with a zero byte in it")
            project = await in_thread(os.path.realpath, project)
        page = await self._kernel._store.find_sessions(
            owner, agent=agent, project=project, states=states, after=after, limit=limit
        )
        shown = [await self._shown(record) for record in page.records]
        return SessionPage(sessions=shown, next=page.next)

    async def _rows(self, states: Sequence[str]) -> List[SessionRecord]:
        found: List[SessionRecord] = []
        after = None
        while True:
            page = await self._kernel._store.find_sessions(states=states, after=after)
            found += page.records
            if (after := page.next) is None:
                return found

    async def _shown(self, record: SessionRecord) -> AgentSession:
        name = None
        with contextlib.suppress(NotFoundError):
            name = (await self._kernel.get(record.sandbox_id)).name
        drive = self._listening.drives.get(record.id)
        recorder = self._listening.recorders.get(record.id)
        usage = msgspec.convert(record.usage, AgentUsage)
        return AgentSession(
            id=record.id,
            agent=record.agent,
            version=record.version,
            mode=record.mode,
            state=record.state,
            sandbox=record.sandbox_id,
            sandbox_name=name,
            job=record.job_id,
            task=record.task,
            model=record.model,
            project=record.project,
            conversation=(recorder and recorder.reader.conversation) or record.conversation,
            created_at=record.created_at,
            ended_at=record.ended_at,
            exit_code=record.exit_code,
            error=record.error,
            busy=drive is not None and drive.busy,
            last_event=recorder.seq
            if recorder
            else self._listening.files(record.id).position().seq,
            usage=recorder.reader.usage if recorder else usage,
        )

    async def events(
        self, id: str, *, owner: str | None = None, after: int = 0, follow: bool = True
    ) -> AsyncGenerator[AgentEvent, None]:
        """Its log after a seq; with `follow` to the session's end, which is in the row when it is
        told."""
        record = await self._kernel._store.get_session(id, owner)
        files, place = self._listening.files(record.id), 0

        def read() -> List[tuple[AgentEvent, int]]:
            found: List[tuple[AgentEvent, int]] = []
            for item in files.read(after, place):
                found.append(item)
                if len(found) == _BATCH:
                    break
            return found

        while True:
            recorder = self._listening.recorders.get(record.id)
            news = None if recorder is None else recorder.news
            batch = await in_thread(read)
            for event, _ in batch:
                after = event.seq
                if event.kind == "ended":
                    await self._listening.settled(record.id)
                yield event
            place = batch[-1][1] if batch else place
            if len(batch) == _BATCH:
                continue
            if news is None or not follow:
                return
            await news.wait()

    async def summary(self, id: str, *, owner: str | None = None) -> AgentSummary:
        record = await self._kernel._store.get_session(id, owner)
        recorder = self._listening.recorders.get(record.id)
        reader = (
            await read_log(self._listening.files(record.id), record.mode, kept_of(record).format)
            if recorder is None
            else recorder.reader
        )
        began = await in_thread(self._listening.files(record.id).began)
        return await summarize(self._kernel, await self._shown(record), reader, began)

    async def recording(self, id: str, *, owner: str | None = None) -> Path:
        """The session's asciicast. Raises NotFoundError if nothing was recorded."""
        record = await self._kernel._store.get_session(id, owner)
        return self._listening.files(record.id).recording()

    # -- what an acp session is told -------------------------------------------------------------

    @audited("agent.prompt", "session")
    async def prompt(self, id: str, text: str, *, owner: str | None = None) -> AgentSession:
        """Begins a turn of an acp session; its events tell the rest, the last one of kind "prompt"
        with the stop reason. Raises ConflictError while another is under way."""
        record, drive = await self._find(id, owner)
        drive.prompt(text)
        return await self._shown(record)

    @audited("agent.cancel", "session")
    async def cancel(self, id: str, *, owner: str | None = None) -> None:
        """Ends the turn that is under way, if one is."""
        _, drive = await self._find(id, owner)
        await drive.cancel()

    @audited("agent.answer", "session")
    async def answer(
        self, id: str, permission: str, option: str | None, *, owner: str | None = None
    ) -> None:
        """To a permission question. None: cancelled."""
        _, drive = await self._find(id, owner)
        await drive.answer(permission, option)

    async def _find(self, id: str, owner: str | None) -> tuple[SessionRecord, Drive]:
        record = await self._kernel._store.get_session(id, owner)
        self.trail.found(record.sandbox_id, None)
        drive = self._listening.drives.get(record.id)
        if drive is None:
            over = record.state not in LIVE
            raise ConflictError(
                f"the session is {record.state}" if over else "nobody speaks ACP with this session",
                hint="start one that goes on with it" if over else 'start one with "mode": "acp"',
            )
        return record, drive

    # -- its project ----------------------------------------------------------------------------

    async def diff(self, id: str, *, owner: str | None = None) -> WorkspaceDiff:
        record = await self._kernel._store.get_session(id, owner)
        return await self._kernel.workspaces.diff(record.sandbox_id)

    async def apply(
        self,
        id: str,
        paths: Sequence[str] = (),
        *,
        allow_risky: bool = False,
        mark_conflicts: bool = False,
        commit: str | None = None,
        owner: str | None = None,
    ) -> WorkspaceApplied:
        record = await self._kernel._store.get_session(id, owner)
        return await self._kernel.workspaces.apply(
            record.sandbox_id,
            paths,
            allow_risky=allow_risky,
            mark_conflicts=mark_conflicts,
            commit=commit,
        )


def _setup_under_way() -> ConflictError:
    return ConflictError(
        "another session is being set up in that sandbox", hint="try again when it has begun"
    )
