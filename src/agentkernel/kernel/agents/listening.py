"""Who listens to sessions that run, in this daemon: recorders, drives, and how sessions end.

A session is listened to by one task, which ends with the job or with its sandbox; then the row says
how, and what the agent's files were is kept. Whatever goes wrong here ends no agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agentkernel import faults
from agentkernel.agents.commands import home_path
from agentkernel.backends.base import Blueprint
from agentkernel.errors import AgentKernelError, ConflictError, NotFoundError
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ExitStatus, Outcome
from agentkernel.kernel.agents import states
from agentkernel.kernel.agents.driving import Drive
from agentkernel.kernel.agents.files import SessionFiles
from agentkernel.kernel.agents.kept import kept_of
from agentkernel.kernel.agents.model import SessionState
from agentkernel.kernel.agents.preparing import look_inside
from agentkernel.kernel.agents.recording import Recorder, recorded
from agentkernel.kernel.store import NewEvent, SessionRecord
from agentkernel.kernel.threads import in_thread
from agentkernel.quantities import duration_text

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

log = logging.getLogger("agentkernel.kernel")

LIVE: Final = ("starting", "running")


class Listening:
    """See the module. `directory` has one directory for each session."""

    def __init__(self, kernel: Kernel, directory: Path) -> None:
        self.recorders: dict[str, Recorder] = {}
        self.drives: dict[str, Drive] = {}
        self.following: dict[str, asyncio.Task[None]] = {}
        self._kernel = kernel
        self._directory = directory
        self._changed: set[str] = set()
        self._writing: asyncio.Task[None] | None = None

    def files(self, id: str) -> SessionFiles:
        return SessionFiles(self._directory / id)

    def directories(self) -> list[str]:
        """Ids of sessions that have one."""
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []

    async def close(self) -> None:
        """Lets go; agents go on."""
        for drive in self.drives.values():
            await drive.close()
        tasks = [*self.following.values(), *([self._writing] if self._writing else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for recorder in self.recorders.values():
            recorder.close()
        self.recorders.clear()
        self.drives.clear()

    async def drop(self, id: str) -> None:
        """Of one whose start is taken back."""
        if (task := self.following.pop(id, None)) is not None:
            task.cancel()
            await asyncio.wait((task,))
        if (drive := self.drives.pop(id, None)) is not None:
            await drive.close()
        if (recorder := self.recorders.pop(id, None)) is not None:
            recorder.close()

    async def settled(self, id: str) -> None:
        """Returns when the end of a session that has ended is in its row."""
        if (task := self.following.get(id)) is not None:
            await asyncio.wait((task,))

    async def take_up(self, record: SessionRecord) -> None:
        """Listens again to what another daemon has listened to before."""
        recorder = await in_thread(self.recorder, record)
        if record.mode == "acp" and kept_of(record).drive:
            drive = self.drive(record, recorder)
            log = await in_thread(lambda: [event for event, _ in self.files(record.id).read()])
            await drive.take_up(conversation=record.conversation, log=log)
        self.follow(record, recorder)

    def recorder(self, record: SessionRecord, *, size: tuple[int, int] | None = None) -> Recorder:
        kept = kept_of(record)
        shows = record.mode == "interactive" or (record.mode == "headless" and kept.prints_text)
        recorder = Recorder(
            self._kernel.jobs,
            record.job_id,
            self.files(record.id),
            mode=record.mode,
            format=kept.format,
            size=(size or kept.size) if shows else None,
            title=f"{record.agent} {record.version}",
            changed=lambda: self._note_change(record.id),
        )
        self.recorders[record.id] = recorder
        return recorder

    def follow(self, record: SessionRecord, recorder: Recorder) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._until_end(record, recorder))
        self.following[record.id] = task
        return task

    async def _until_end(self, record: SessionRecord, recorder: Recorder) -> None:
        try:
            lost = await recorded(recorder)
            await self._ended(record, recorder, lost)
        except Exception:
            # Its agent goes on; the next daemon tries again.
            log.exception("the session %s can't be recorded any more", record.id)
        finally:
            self.following.pop(record.id, None)
            self.drives.pop(record.id, None)
            self.recorders.pop(record.id, None)
            recorder.close()

    async def _ended(
        self, record: SessionRecord, recorder: Recorder, lost: AgentKernelError | None
    ) -> None:
        status = ExitStatus(outcome=Outcome.LOST)
        if lost is None:
            with contextlib.suppress(NotFoundError):
                job = await self._kernel._store.get_job(record.job_id)
                status = await self._kernel.jobs.outcome(job)
        faults.point("session.ended")
        state, error = _how(status, kept_of(record).seconds)
        if lost is None:
            await self._save_state(record, recorder)
        if not recorder.over:  # a daemon that was killed may have told it
            recorder.tell(
                "ended",
                {"exit_code": status.exit_code, "reason": str(status.outcome), "error": error},
            )
        with contextlib.suppress(NotFoundError, ConflictError):
            await self._kernel._store.update_session(
                record.id,
                expect_state=LIVE,
                state=state,
                ended_at=time.time(),
                exit_code=status.exit_code,
                error=error,
                conversation=recorder.reader.conversation or record.conversation,
                usage=msgspec.to_builtins(recorder.reader.usage),
                events=[
                    session_event(record, "agent.ended", state=state, exit_code=status.exit_code)
                ],
            )

    async def _save_state(self, record: SessionRecord, recorder: Recorder) -> None:
        """As far as it goes: without, another session can't go on with this one elsewhere."""
        kept = kept_of(record)
        if not kept.keep:
            return
        try:
            box, live = await self._kernel._find(record.sandbox_id, None)
            with live.used() as sandbox:
                blueprint = msgspec.convert(box.blueprint, Blueprint)
                home = look_inside(sandbox, blueprint, box.env).home
                problems = await states.save(
                    GuestFiles(sandbox.channel),
                    self.files(record.id),
                    [home_path(path, home) for path in kept.keep],
                    [home_path(path, home) for path in kept.exclude],
                )
        except AgentKernelError as exc:
            problems = [exc.message]
        for problem in problems:
            recorder.tell("session", {"note": problem})

    def _note_change(self, id: str) -> None:
        """The agent has named its conversation, or what it has used."""
        self._changed.add(id)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_changes())

    async def _write_changes(self) -> None:
        while self._changed:
            recorder = self.recorders.get(id := self._changed.pop())
            if recorder is not None:
                with contextlib.suppress(AgentKernelError):
                    await self._kernel._store.update_session(
                        id,
                        conversation=recorder.reader.conversation,
                        usage=msgspec.to_builtins(recorder.reader.usage),
                    )

    def drive(self, record: SessionRecord, recorder: Recorder) -> Drive:
        from agentkernel.kernel.agents.acp_making import make_drive

        directory = self._directory / record.id
        drive = make_drive(self._kernel, record, recorder, directory)
        self.drives[record.id] = drive
        return drive


def session_event(record: SessionRecord, kind: str, **body: Any) -> NewEvent:
    return NewEvent(
        kind=kind,
        sandbox_id=record.sandbox_id,
        owner=record.owner,
        body={"session": record.id, "agent": record.agent, **body},
    )


def _how(status: ExitStatus, seconds: float) -> tuple[SessionState, str | None]:
    """The session's last state, and what went wrong if anything did."""
    match status.outcome:
        case Outcome.EXITED | Outcome.SIGNALED:
            return "ended", None
        case Outcome.TIMEOUT:
            return "failed", f"it ran for more than {duration_text(seconds)}"
        case Outcome.OOM:
            return "failed", "it used more memory than its sandbox has"
        case Outcome.NOT_STARTED:
            return "failed", "the agent could not be started"
        case _:
            return "lost", "its sandbox ended"
