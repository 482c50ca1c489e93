"""What a caller asks for, and its expansion into a blueprint.

A spec is sparse: what it leaves out comes from its profile. A blueprint is complete and is what
gets stored, so a profile that changes later never widens a sandbox that exists.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from agentkernel.backends.base import Blueprint
from agentkernel.backends.registry import DEFAULT_BACKEND
from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.security.profiles import Limits, security_profile
from agentkernel.workspaces.model import Workspace, file_clock_ns, parse_workspace
from agentkernel.workspaces.targets import workspace_target

T = TypeVar("T")

MINIMUM_MEMORY = 16 << 20
MINIMUM_DISK = 1 << 20
MAXIMUM_BYTES = 1 << 60
# What the kernel can number: PID_MAX_LIMIT, and the most that fs.nr_open can be set to.
MAXIMUM_PIDS = 1 << 22
MAXIMUM_NOFILE = 1 << 30
# A file system of its own has tables and a journal, which count.
MINIMUM_KEPT_DISK = 16 << 20


class ConfigSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration file as it was when the spec was made from it."""

    kind: Literal["project", "user"]
    path: Annotated[str, Meta(max_length=4096)]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    trusted: bool


class ConfigValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A resolved value and which of flag, project, user, profile, default it comes from."""

    value: str | int | float | bool
    origin: str


class ConfigOrigin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a spec comes from. Of variables only the names are kept."""

    files: Annotated[list[ConfigSource], Meta(max_length=8)] = []
    values: Annotated[dict[str, ConfigValue], Meta(max_length=128)] = {}
    env: Annotated[dict[str, str], Meta(max_length=512)] = {}


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox is to be. None: as the profile says.

    `ephemeral`: its files are in memory where the kernel can do that, and it is removed when it
    ends; any other keeps its files on disk over stop and start. `best_effort`: a limit that this
    machine can't enforce is shown as not enforced instead of failing the create. `command_…` is for
    commands whose caller says nothing else. `config`: which files this was read from; kept and
    shown, not obeyed. `host_env` is what of the user's environment says which toolchains the `host`
    image shows; without it, this process's own. `network`: what it may reach. `secrets`:
    NAME@HOST[,HOST], which it may use and not know. `ports`: [[ADDRESS:]PORT:]PORT, published on
    this machine. `workspace`: DIR[:cow|ro|rw], a directory of this machine at /workspace; files in
    it that look like secrets are left out unless `workspace_secrets`, and those that git ignores if
    `workspace_ignored` is hide. `workspace_branch`: of the git repository there, this branch, where
    it is checked out or else in a checkout of the sandbox's own. `workspace_path`: where it is
    inside instead of /workspace: "same", as on the host, or an absolute path. `volumes`:
    NAME:/path[:ro], volumes of the sandbox's owner; one that is not there yet is made. `image`:
    `host`, a directory, or a reference (NAME[:TAG], NAME@DIGEST), which is fetched if it is not
    here, or as `pull` says.
    `user`: NAME, UID, NAME:GROUP or UID:GID; None: the image's own, or root. `entrypoint`: in place
    of the image's, for the command of a `run`. `template`: its name, in place of an image's.
    `agents`: names of agents that can run in it: it has their kits, reaches what they need, and can
    use the owner's logins with them, unless `agent_logins` is off.
    """

    backend: str = DEFAULT_BACKEND
    image: str = "host"
    profile: str = "moderate"
    user: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    toolchains: bool = True
    nested_userns: bool = False
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    unlimited_disk: bool = False
    nofile: int | None = None
    best_effort: bool = False
    ephemeral: bool = True
    env: dict[str, str] = {}
    command_timeout_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    command_output_bytes: Annotated[int, Meta(ge=0, le=64 << 20)] | None = None
    config: ConfigOrigin | None = None
    host_env: dict[str, str] = {}
    network: NetworkRequest | None = None
    secrets: Annotated[list[str], Meta(max_length=64)] = []
    ports: Annotated[list[str], Meta(max_length=64)] = []
    workspace: Annotated[str, Meta(max_length=4200)] | None = None
    workspace_secrets: bool = False
    volumes: Annotated[list[Annotated[str, Meta(max_length=1200)]], Meta(max_length=64)] = []
    workspace_ignored: Literal["show", "hide"] = "show"
    workspace_branch: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    pull: Literal["missing", "always", "never"] = "missing"
    entrypoint: Annotated[list[str], Meta(max_length=1024)] | None = None
    template: Annotated[str, Meta(min_length=1, max_length=63)] | None = None
    agents: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=8)] = []
    agent_logins: bool = True
    workspace_path: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None


def expand(spec: SandboxSpec, *, owned: bool) -> Blueprint:
    """The blueprint of a new sandbox. Raises InvalidInputError for what no sandbox can have."""
    profile = security_profile(spec.profile)
    limits = _limits(spec, profile.limits)
    explicit = {
        name
        for name, value in (
            ("memory", spec.memory_bytes),
            ("cpus", spec.cpus),
            ("pids", spec.pids),
            ("disk", spec.disk_bytes),
            ("nofile", spec.nofile),
        )
        if value is not None
    }
    return Blueprint(
        id=new_id(),
        image=spec.image,
        user=spec.user or "root",
        toolchains=spec.toolchains,
        capabilities=profile.capabilities,
        seccomp=profile.seccomp,
        nested_userns=spec.nested_userns,
        limits=limits,
        explicit=frozenset() if spec.best_effort else frozenset(explicit),
        owned=owned,
        hostname="sandbox",
        profile=profile.name,
        ephemeral=spec.ephemeral,
        host_env=spec.host_env,
        workspace=_workspace(spec),
        entrypoint=spec.entrypoint,
    )


def _workspace(spec: SandboxSpec) -> Workspace | None:
    parsed = None if spec.workspace is None else parse_workspace(spec.workspace)
    if parsed is None or (spec.workspace_branch and parsed[1] != "cow"):
        if spec.workspace_branch:
            raise InvalidInputError(
                "a branch needs the directory of its repository as a copy-on-write workspace",
                hint="name it with --workspace DIR",
            )
        return None
    path = os.path.realpath(parsed[0])
    return Workspace(
        path=path,
        target=workspace_target(spec.workspace_path, path),
        mode=parsed[1],
        secrets=spec.workspace_secrets,
        ignored=spec.workspace_ignored == "show",
        branch=spec.workspace_branch or "",
        began_ns=file_clock_ns(),
    )


def _limits(spec: SandboxSpec, defaults: Limits) -> Limits:
    _check_range("memory", spec.memory_bytes, MINIMUM_MEMORY, MAXIMUM_BYTES)
    least = MINIMUM_DISK if spec.ephemeral else MINIMUM_KEPT_DISK
    _check_range("disk", spec.disk_bytes, least, MAXIMUM_BYTES)
    _check_range("pids", spec.pids, 4, MAXIMUM_PIDS)
    _check_range("nofile", spec.nofile, 16, MAXIMUM_NOFILE)
    if spec.cpus is not None and not 0.01 <= spec.cpus <= 4096:
        raise InvalidInputError("cpus must be between 0.01 and 4096")
    memory = _memory(spec, defaults.memory_bytes)
    limits = dataclasses.replace(
        defaults,
        memory_bytes=memory,
        cpus=spec.cpus if spec.cpus is not None else defaults.cpus,
        pids=spec.pids if spec.pids is not None else defaults.pids,
        nofile=spec.nofile if spec.nofile is not None else defaults.nofile,
        disk_bytes=_disk(spec, defaults.disk_bytes, memory),
        exec_timeout=_or(spec.command_timeout_seconds, defaults.exec_timeout),
        output_bytes=_or(spec.command_output_bytes, defaults.output_bytes),
    )
    return limits if memory is None else _within(limits, memory)


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _memory(spec: SandboxSpec, default: int | None) -> int | None:
    """Files in memory count as memory: a bound for them asks for twice as much."""
    needed = 2 * spec.disk_bytes if spec.disk_bytes is not None and spec.ephemeral else 0
    if spec.memory_bytes is None:
        return None if default is None else max(default, needed)
    if spec.memory_bytes < needed:
        raise InvalidInputError(
            "--disk is more than half of --memory, and files with a bound are in memory",
            hint=f"use --memory {-(-needed // (1 << 20))}M or more, or --disk unlimited",
        )
    return spec.memory_bytes


def _within(limits: Limits, memory: int) -> Limits:
    """Files in memory belong to no process: if they could fill it, agentd would be killed for it.

    With the disk's half at most 7/8 of the memory, an inode (about 1 KiB) for each 16 KiB included.
    """
    tmp, shm, run = (
        min(limits.tmp_bytes, memory // 5),
        min(limits.shm_bytes, memory // 24),
        min(limits.run_bytes, memory // 48),
    )
    inodes = min(limits.tmpfs_inodes, max(1024, tmp // 16384))
    return dataclasses.replace(
        limits, tmp_bytes=tmp, shm_bytes=shm, run_bytes=run, tmpfs_inodes=inodes
    )


def _disk(spec: SandboxSpec, default: int | None, memory: int | None) -> int | None:
    """A profile bounds files in memory only, and leaves half of the memory for processes."""
    if spec.unlimited_disk:
        return None
    if spec.disk_bytes is not None or not spec.ephemeral:
        return spec.disk_bytes
    return default if default is None or memory is None else min(default, memory // 2)


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and value < least:
        raise InvalidInputError(f"{name} must be at least {least}")
    if value is not None and value > most:
        raise InvalidInputError(f"{name} must be at most {most}")
