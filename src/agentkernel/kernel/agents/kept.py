"""What a session's row keeps of how it was asked for: enough to listen to it again and to go on
with it, whatever becomes of its agent's definition. No task, no value of a variable, no header."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from agentkernel.agents.definition import AgentDefinition, EventFormat
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.agents.preparing import seconds_of
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import SandboxRecord, SessionRecord
from agentkernel.workspaces.model import parse_workspace

_TEXTS = ("text", "aider")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """`spec`: without variables. `keep`, `exclude`: of the definition's `state`. `size`: of its
    terminal. `env`, `mcp`: names. `found`: its sandbox was there before; `phase`: the one that its
    network goes back to after the setup, if there was one."""

    spec: SandboxSpec = SandboxSpec()
    format: EventFormat = "text"
    keep: list[str] = []
    exclude: list[str] = []
    size: tuple[int, int] = (24, 80)
    seconds: float = 0.0
    drive: bool = True
    login_owner: str = ""
    attended: bool = False
    words: list[str] = []
    env: list[str] = []
    mcp: list[str] = []
    found: bool = False
    phase: str = ""

    @property
    def prints_text(self) -> bool:
        """What it prints in headless mode is for people."""
        return self.format in _TEXTS


def request_of(
    asked: AgentRequest,
    definition: AgentDefinition,
    spec: SandboxSpec,
    *,
    there: SandboxRecord | None,
    login_owner: str,
) -> dict[str, Any]:
    """`there`: its sandbox, if that is there already."""
    size = asked.pty or [24, 80]
    setting = None if there is None else setting_of(there)
    kept = Kept(
        spec=msgspec.structs.replace(spec, env={}, host_env={}, config=None),
        format=definition.events,
        keep=definition.state.keep,
        exclude=definition.state.exclude,
        size=(size[0], size[1]),
        seconds=seconds_of(asked, definition),
        drive=asked.drive,
        login_owner=login_owner,
        attended=asked.attended,
        words=asked.words,
        env=sorted(asked.env),
        mcp=[server.name for server in asked.mcp],
        found=there is not None,
        phase=setting.phase if setting and asked.setup else "",
    )
    made: dict[str, Any] = msgspec.to_builtins(kept)
    return made


def kept_of(record: SessionRecord) -> Kept:
    try:
        return msgspec.convert(record.request, Kept)
    except msgspec.ValidationError:  # of another version
        return Kept()


def project_of(there: SandboxRecord | None, spec: SandboxSpec) -> str | None:
    """The directory of this machine that the session works on."""
    if there is not None:
        workspace = there.blueprint.get("workspace") or {}
        path = workspace.get("path")
        return path if isinstance(path, str) else None
    try:
        parsed = None if spec.workspace is None else parse_workspace(spec.workspace)
    except InvalidInputError:
        return None  # the sandbox's making says so
    return None if parsed is None else os.path.realpath(parsed[0])
