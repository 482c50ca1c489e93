"""What is done inside of sandboxes that run: commands and files. Changes the life of none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import NotFoundError
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ExitStatus, GuestProcess, Outcome, ProcessOptions
from agentkernel.kernel.auditing import AuditedFiles
from agentkernel.kernel.commands import (
    ExecResult,
    judge,
    run_command,
    start_command,
    until_started_or_lost,
)
from agentkernel.kernel.image_use import first_command
from agentkernel.kernel.live import Live
from agentkernel.kernel.store import SandboxRecord, Store


class Uses:
    """The part of a `Kernel` that needs only its records and what runs."""

    trail: Trail
    _store: Store
    _live: dict[str, Live]

    @audited("exec")
    @contextlib.asynccontextmanager
    async def exec(
        self,
        id: str,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        owner: str | None = None,
    ) -> AsyncIterator[GuestProcess]:
        """A command for as long as the block lasts; leaving it early ends the command."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            process = start_command(sandbox, argv, _with_defaults(options, record))
            try:
                await until_started_or_lost(process)
                yield process
            finally:
                process.release()

    @audited("exec")
    async def run(
        self,
        id: str,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        owner: str | None = None,
        stdin: bytes = b"",
        output_bytes: int | None = None,
    ) -> ExecResult:
        """A command to its end, with what it wrote; of each stream as much as the sandbox keeps."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            result = await run_command(
                sandbox,
                argv,
                _with_defaults(options, record),
                stdin=stdin,
                output_bytes=output_bytes,
            )
            self.look_at_limits(live, result.status)
            return result

    async def first_command(
        self,
        id: str,
        argv: Sequence[str] | None,
        shell: str | None,
        *,
        owner: str | None = None,
    ) -> list[str]:
        """What a sandbox of one command runs: the caller's words, with what its image says of
        them. Raises InvalidInputError where that is nothing."""
        _, live = await self._find(id, owner)
        with live.used() as sandbox:
            return first_command(sandbox.blueprint, sandbox.root, argv, shell)

    async def judge(
        self, id: str, status: ExitStatus | None, *, owner: str | None = None
    ) -> ExitStatus:
        """How a command of `exec` ended, with what only the host knows. None: it was lost."""
        with contextlib.suppress(NotFoundError):
            _, live = await self._find(id, owner)
            if live.sandbox:
                self.look_at_limits(live, status)
                return judge(live.sandbox, status)
        return status or ExitStatus(outcome=Outcome.LOST)

    @contextlib.asynccontextmanager
    async def files(
        self, id: str, *, owner: str | None = None, user: str | None = None
    ) -> AsyncIterator[GuestFiles]:
        """The files of a running sandbox, which is in use for as long as the block lasts."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            if user is not None:
                sandbox.check_user(user)
            yield AuditedFiles(sandbox.channel, self.trail, record, user=user)

    async def _find(self, id: str, owner: str | None) -> tuple[SandboxRecord, Live]:
        record = await self._store.get_sandbox(id, owner)
        self.trail.found(record.id, record.name)
        return record, self._live.setdefault(record.id, Live(record.id))

    def look_at_limits(self, live: Live, status: ExitStatus | None = None) -> None:
        """Tells of limits that the sandbox has met, if it has."""
        if live.sandbox and (events := live.meter.events(live.sandbox, status)):
            self._store.post_events(events)


def _with_defaults(options: ProcessOptions | None, record: SandboxRecord) -> ProcessOptions:
    """What the sandbox says of its commands, where the caller says nothing."""
    options = options or ProcessOptions()
    seconds = options.timeout_seconds
    if seconds is None:
        seconds = record.blueprint.get("limits", {}).get("exec_timeout")
    return msgspec.structs.replace(
        options, env={**record.env, **options.env}, timeout_seconds=seconds
    )
