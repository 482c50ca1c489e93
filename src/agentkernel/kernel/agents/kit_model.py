"""Kits as they are kept and told, and agents as they are listed."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from agentkernel.agents.definition import AgentDefinition, Install

KITS: Final = "/opt/agentkernel"
"""Where kits are inside: below their agents' names."""
VERSION: Final = r"\Av?[0-9][0-9A-Za-z.+_-]{0,62}\Z"
"""A version that can be pinned: "latest" is none, as it means another one tomorrow."""


class KitLock(msgspec.Struct, frozen=True, kw_only=True):
    """What says which packages are in a kit, by its hash: a lock file at `path` below the kit, or
    `files` of a kind, whose hashes were hashed in the order of their names."""

    path: str
    sha256: str
    files: int = 1


class KitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A kit that is whole. `id`: its volume. `definition`: the hash of all that made it."""

    id: str
    agent: str
    version: str
    definition: str
    installed_at: float
    locks: list[KitLock] = []


class KitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kit as shown. `current`: what new sessions get. `sandboxes`: how many have it, running or
    not; as long as there are any it stays. `used_bytes`: if that was asked for."""

    id: str
    agent: str
    version: str
    definition: str
    installed_at: float
    locks: list[KitLock]
    current: bool
    sandboxes: int
    used_bytes: int | None = None


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. `version`: what new sessions get; `pinned`: what its file says, where another one
    was chosen. `own`: the file is the user's. `kit`: None if it is not installed in this version;
    `older`: other kits of it. `problem`: why its file can't be used. `modes`: how it can be run.
    `tested`: it is run in this project's tests."""

    name: str
    title: str = ""
    home: str = ""
    version: str = ""
    pinned: str = ""
    own: bool = False
    modes: list[str] = []
    tested: bool = False
    kit: KitInfo | None = None
    older: list[KitInfo] = []
    problem: str | None = None


class AgentDetails(AgentInfo, frozen=True, kw_only=True):
    """With all that its file says, in its words: docs/reference/agent-definitions.md."""

    definition: dict[str, Any]


class InstallRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`update`: what is pinned now, also where another version was chosen, and older kits that
    nobody has go. `version`: with `update`, this one from now on, until the next update. `host_env`
    is what of the user's environment says which toolchains there are."""

    update: bool = False
    version: Annotated[str, Meta(pattern=VERSION)] | None = None
    host_env: Annotated[dict[str, str], Meta(max_length=64)] = {}


def definition_hash(definition: AgentDefinition) -> str:
    """Of all that makes a kit: the same hash is the same kit. What a definition leaves out is left
    out here, so that a word that only newer ones know makes no older kit another one."""
    install, plain = definition.install, Install()
    said = {
        name: getattr(install, name)
        for name in install.__struct_fields__
        if name != "needs_hint" and getattr(install, name) != getattr(plain, name)
    }
    made_of = [definition.name, definition.version, said]
    return hashlib.sha256(msgspec.json.encode(made_of, order="sorted")).hexdigest()


def modes_of(definition: AgentDefinition) -> list[str]:
    command = definition.command
    modes = {
        "interactive": command.interactive,
        "headless": command.headless,
        "acp": command.acp,
    }
    return [name for name, words in modes.items() if words]
