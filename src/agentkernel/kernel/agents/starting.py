"""From a request to an agent that runs: its sandbox, its files, what it needs, its job.

The order: sandbox → files → setup, in the network's phase for it → job. Whoever calls has a row for
all that before, and takes it back when something here raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from agentkernel import faults
from agentkernel.agents.commands import Fill, command_line, home_path
from agentkernel.agents.context import context_text
from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.files import guest_files, mcp_place
from agentkernel.agents.mcp_config import mcp_words
from agentkernel.agents.mcp_servers import PROJECT_FILE, McpAdditions
from agentkernel.agents.model import McpServer
from agentkernel.audit import redact
from agentkernel.backends.base import Blueprint, Progress
from agentkernel.errors import ConflictError, InvalidInputError, NotReadyError
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.kernel.agents.files import SessionFiles
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.agents.preparing import (
    LABEL,
    SETUP,
    Inside,
    agent_environment,
    kit_path,
    look_inside,
    placeholders,
    require_kit,
    seconds_of,
    shown_command,
)
from agentkernel.kernel.agents.servers import (
    project_directory,
    servers_inside,
    wanted_servers,
    with_servers,
)
from agentkernel.kernel.agents.states import restore
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import JobRecord, SandboxRecord
from agentkernel.network.guest_files.page import network_page
from agentkernel.network.policy.model import FIRST_PHASE
from agentkernel.quantities import duration_text, short_size

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

SCREEN: Final = (24, 80)
# A sandbox that was made for a session is stopped when nothing was done in it for so long.
IDLE_SECONDS: Final = 1800.0
# Of each stream agentd keeps so much for when the daemon is away; the rest is in the log.
_OUTPUT_BYTES: Final = 16 << 20
_SETUP_SECONDS: Final = 1800.0
_LAST_BYTES: Final = 4096
_OURS: Final = ".agentkernel"


class Ready(NamedTuple):
    """A sandbox in which the agent can start. `cwd`: where; `mcp`: the servers it has."""

    record: SandboxRecord
    inside: Inside
    fill: Fill
    cwd: str
    mcp: list[McpServer]


def check(asked: AgentRequest, definition: AgentDefinition) -> None:
    """What can be known before anything is made. Raises InvalidInputError, UnsupportedError."""
    if asked.mode == "headless" and not asked.task:
        raise InvalidInputError("a headless session needs a task")
    if asked.mode == "interactive" and asked.task:
        raise InvalidInputError(
            "an interactive session has no task", hint="type it, or leave out the terminal"
        )
    if asked.mode != "acp" and asked.command:
        raise InvalidInputError("a command of its own is for agents that speak ACP")
    if asked.pty is not None and not all(1 <= size <= 65535 for size in asked.pty):
        raise InvalidInputError("rows and columns are from 1 to 65535")
    if asked.sandbox is not None and asked.spec is not None:
        raise InvalidInputError("either a sandbox that is there, or a spec for a new one")
    provisional = Fill(
        kit=kit_path(definition),
        version=definition.version,
        home="/root",
        workspace="/workspace",
        task=asked.task,
        task_file="/root/task",
        model=asked.model,
        session="-",
        context="/root/context",
    )
    words_of(asked, definition, provisional, mcp=(), resume=asked.resume is not None)
    seconds_of(asked, definition)


def words_of(
    asked: AgentRequest,
    definition: AgentDefinition,
    fill: Fill,
    *,
    mcp: Sequence[McpServer],
    resume: bool,
) -> list[str]:
    """The agent's command line."""
    if asked.command:
        return [*asked.command, *asked.words]
    fill = msgspec.structs.replace(fill, mcp=mcp_place(definition, fill))
    return command_line(
        definition,
        asked.mode,
        fill,
        resume=resume,
        attended=asked.attended,
        words=asked.words,
        # What we have read of a project's file stands in the agent's own.
        mcp_words=mcp_words(
            definition,
            fill,
            trust_project=asked.trust_project_mcp and definition.mcp.project != PROJECT_FILE,
        ),
    )


class Starter:
    """One session's start."""

    def __init__(
        self, kernel: Kernel, asked: AgentRequest, definition: AgentDefinition, *, owner: str
    ) -> None:
        self._kernel = kernel
        self._asked = asked
        self._definition = definition
        self._owner = owner
        self._added: McpAdditions | None = None

    async def _wanted(self, spec: SandboxSpec) -> McpAdditions:
        project = project_directory(spec)
        return await asyncio.to_thread(wanted_servers, self._asked, self._definition, spec, project)

    async def make_sandbox(
        self, id: str, spec: SandboxSpec, *, secrets_of: str | None, progress: Progress | None
    ) -> SandboxRecord:
        """For this session: it is kept when that ends, and stopped when nobody uses it."""
        asked, name = self._asked, self._definition.name
        agents = [] if asked.command else [name]
        self._added = await self._wanted(spec)
        spec = with_servers(spec, self._added)
        spec = msgspec.structs.replace(
            spec,
            ephemeral=False,
            agents=list(dict.fromkeys([*agents, *spec.agents])),
            agent_logins=spec.agent_logins and asked.login,
        )
        return await self._kernel.create(
            spec,
            id=id,
            name=asked.name or f"{name}-{id[:6]}",
            owner=self._owner,
            secrets_of=secrets_of,
            labels={LABEL: name},
            idle_seconds=IDLE_SECONDS,
            on_idle="stop",
            progress=progress,
        )

    async def prepare(
        self,
        record: SandboxRecord,
        *,
        conversation: str | None,
        state: SessionFiles | None,
        keep: Sequence[str],
        new: bool,
        login_owner: str,
    ) -> Ready:
        """All inside that is there before the agent is. `state`: of the session to go on with,
        whose sandbox is gone; `keep`: what is in it."""
        kernel, asked, definition = self._kernel, self._asked, self._definition
        _, live = await kernel._find(record.id, None)
        blueprint = msgspec.convert(record.blueprint, Blueprint)
        require_kit(blueprint, definition)
        setting = setting_of(record)
        bound = setting.secrets if setting else ()
        if self._added is None:
            self._added = await self._wanted(asked.spec or SandboxSpec())
        mcp = servers_inside(self._added, setting, record.name or record.id)
        # An agent that has no file for them is told by the protocol that drives it.
        written_mcp = mcp if definition.mcp.format != "none" or asked.mode != "acp" else []
        with live.used() as sandbox:
            inside = look_inside(sandbox, blueprint, record.env)
            ours = f"{inside.home}/{_OURS}"
            fill = Fill(
                kit=kit_path(definition),
                version=definition.version,
                home=inside.home,
                workspace=inside.workspace,
                task=asked.task,
                task_file=f"{ours}/task",
                model=asked.model,
                session=conversation,
                context=f"{ours}/context.md",
                secrets=placeholders(setting),
            )
            context = context_text(
                definition,
                workspace=inside.workspace,
                network_page=network_page(setting, record.name or record.id) if setting else "",
                secrets=sorted(placeholders(setting)),
                limits=self._limits(blueprint),
                mcp_names=[server.name for server in mcp],
            )
            written = guest_files(definition, fill, context=context, mcp=written_mcp)
            login = await kernel.agents.logins.files(definition, bound, owner=login_owner)
            written |= {home_path(path, inside.home): data for path, data in login.items()}
            if not new:
                # What the agent has made of its settings since is its own.
                written = await _missing(sandbox.channel, written, definition, fill)
            if state is not None:
                kept = [home_path(path, inside.home) for path in keep]
                await restore(GuestFiles(sandbox.channel), state, kept)
            for path, data in written.items():
                await _write(sandbox.channel, inside.home, path, data)
        await self._set_up(record, inside)
        cwd = asked.workdir or inside.workspace
        return Ready(record, inside, fill, cwd, mcp)

    async def start_job(self, ready: Ready, id: str, *, resume: bool) -> JobRecord:
        """Raises ConflictError for what can't be started."""
        asked, definition = self._asked, self._definition
        words = words_of(asked, definition, ready.fill, mcp=ready.mcp, resume=resume)
        given: dict[str, str] = dict(asked.env)
        if asked.mode == "interactive":
            given = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **given}
        options = ProcessOptions(
            env=agent_environment(definition, ready.fill, ready.inside, given),
            cwd=ready.cwd,
            stdin=asked.mode == "acp",
            pty=self.size,
            timeout_seconds=seconds_of(asked, definition),
            # A protocol's other end may be slow, and must miss nothing.
            output_bytes=None if asked.mode == "acp" else _OUTPUT_BYTES,
        )
        with redact.without(asked.task):
            job = await self._kernel.jobs.start(ready.record.id, words, options, id=id)
        status = job.status or {}
        if status.get("outcome") == Outcome.NOT_STARTED:
            raise ConflictError(
                f"{words[0]} can't be started in the sandbox: {status.get('errno') or 'refused'}",
                hint="`agentkernel agent update` makes its kit anew"
                if not asked.command
                else "see that the image has it",
            )
        return job

    @property
    def size(self) -> tuple[int, int] | None:
        """Rows and columns of the agent's terminal, if it has one."""
        if self._asked.mode != "interactive":
            return None
        rows, columns = self._asked.pty or SCREEN
        return rows, columns

    async def _set_up(self, record: SandboxRecord, inside: Inside) -> None:
        """Raises NotReadyError."""
        kernel, asked = self._kernel, self._asked
        if not asked.setup:
            return
        setting = setting_of(record)
        phase = setting.phase if setting else FIRST_PHASE
        if setting and SETUP in setting.phases:
            await kernel.network.switch_phase(record.id, SETUP)
        faults.point("session.setup")
        try:
            for words in asked.setup:
                await self._run(record, inside, words)
        finally:
            if setting and SETUP in setting.phases:
                await kernel.network.switch_phase(record.id, phase)

    async def _run(self, record: SandboxRecord, inside: Inside, words: Sequence[str]) -> None:
        result = await self._kernel.run(
            record.id,
            words,
            ProcessOptions(
                cwd=self._asked.workdir or inside.workspace, timeout_seconds=_SETUP_SECONDS
            ),
            output_bytes=1 << 20,
        )
        status = result.status
        if status.outcome is Outcome.EXITED and status.exit_code == 0:
            return
        how = f"status {status.exit_code}"
        if status.outcome is not Outcome.EXITED:
            how = str(status.outcome)
        output = (result.stdout + result.stderr)[-_LAST_BYTES:].decode("utf-8", "replace")
        raise NotReadyError(
            f"a command of the setup ended with {how}: {shown_command(words)}",
            hint="its last words are in the details",
            output=output.splitlines()[-20:],
        )

    def _limits(self, blueprint: Blueprint) -> list[str]:
        limits = blueprint.limits
        found = [f"{duration_text(seconds_of(self._asked, self._definition))} of time in all"]
        if limits.memory_bytes is not None:
            found.append(f"{short_size(limits.memory_bytes)} of memory")
        if limits.disk_bytes is not None:
            found.append(f"{short_size(limits.disk_bytes)} of disk")
        if limits.pids is not None:
            found.append(f"{limits.pids} processes")
        return found


async def _missing(
    channel: Any, files: Mapping[str, bytes], definition: AgentDefinition, fill: Fill
) -> dict[str, bytes]:
    """Without settings that are there already."""
    guest = GuestFiles(channel, user="root")
    settings = {home_path(path, fill.home) for path in (file.path for file in definition.files)} - {
        mcp_place(definition, fill)
    }
    return {
        path: data
        for path, data in files.items()
        if path not in settings or not await guest.exists(path)
    }


async def _write(channel: Any, home: str, path: str, data: bytes) -> None:
    """Below its home as the agent's own user, who may change it; elsewhere as root."""
    user = None if path.startswith(f"{home.rstrip('/')}/") else "root"
    mode = 0o600 if user is None else 0o644
    await GuestFiles(channel, user=user).write(path, data, parents=True, mode=mode)
