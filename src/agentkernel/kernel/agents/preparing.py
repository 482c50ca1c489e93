"""What a sandbox has to have so that an agent can run in it: `SandboxSpec.agents`, carried out.

One mechanism for all: a session asks for a sandbox with its agent in `agents`, and so may anybody
who wants to run one there later. Nothing is made here but kits; what is returned says the rest.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from agentkernel.agents.commands import Fill, environment, path_entries
from agentkernel.agents.definition import AgentDefinition, Commands
from agentkernel.agents.reach import reach_of
from agentkernel.agents.reading import Definitions
from agentkernel.backends.base import Blueprint, Progress, Sandbox, VolumeMount
from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.kernel.agents.kit_model import KITS
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.model import FIRST_PHASE, NetworkSetting
from agentkernel.network.policy.request import NetworkRequest, PhaseRequest
from agentkernel.network.secrets.bindings import parse_binding
from agentkernel.quantities import parse_duration, parse_size

SETUP: Final = "setup"
"""The network's phase in which what a project needs is installed."""
LABEL: Final = "agentkernel.agent"
_NONE: Final = "none"
# Unless the definition or the caller says another time.
_SECONDS: Final = {"headless": 2 * 3600.0, "interactive": 24 * 3600.0, "acp": 24 * 3600.0}
_HOME: Final = "/root"


class Equipped(NamedTuple):
    """A spec with all that its agents need, and the volumes of their kits."""

    spec: SandboxSpec
    mounts: list[VolumeMount]


async def equip(
    spec: SandboxSpec,
    definitions: Definitions,
    kits: Kits,
    logins: Logins,
    *,
    owner: str,
    progress: Progress | None = None,
) -> Equipped:
    """`owner`: whose logins and secrets it may use. Raises NotFoundError, ConflictError without a
    login, and what the making of a kit raises."""
    mounts = []
    for name in dict.fromkeys(spec.agents):
        definition = definitions.get(name)
        secrets: tuple[str, ...] = ()
        if spec.agent_logins:
            secrets = (await logins.use(definition, owner=owner)).secrets
            if not secrets and has_login(definition) and not _brings_its_own(spec, definition):
                raise ConflictError(
                    f"there is no login with {definition.title}",
                    hint=f"agentkernel agent login {name}; or --no-login for a model without a key",
                    agent=name,
                )
        spec = _with_agent(spec, definition, secrets)
        if has_kit(definition):
            kit = await kits.ready(definition, host_env=spec.host_env, progress=progress)
            mounts.append(kit)
    return Equipped(spec, mounts)


def has_kit(definition: AgentDefinition) -> bool:
    """One without install steps is there already, in the image."""
    return bool(definition.install.steps or definition.install.node)


def has_login(definition: AgentDefinition) -> bool:
    return bool(definition.login.keys or definition.login.oauth)


def _brings_its_own(spec: SandboxSpec, definition: AgentDefinition) -> bool:
    """Whether the caller has seen to it in another way: a secret, a key in a variable (which is in
    the sandbox then), or another host to ask."""
    names = {key.secret for key in definition.login.keys}
    network = spec.network
    return bool(spec.secrets or names & spec.env.keys() or (network and network.allow))


def _with_agent(
    spec: SandboxSpec, definition: AgentDefinition, secrets: Sequence[str]
) -> SandboxSpec:
    # Who binds another secret to the agent's variable wants that one there.
    brought = [parse_binding(text) for text in spec.secrets]
    taken = {one.name for one in brought} | {variable for one in brought for variable in one.env}
    added = [text for text in secrets if taken.isdisjoint(_names(text))]
    changes: dict[str, object] = {
        "secrets": [*spec.secrets, *added],
        "network": with_reach(spec.network, definition, added),
    }
    limits = (spec.memory_bytes, spec.cpus, spec.pids, spec.disk_bytes, spec.nofile)
    if definition.memory and all(limit is None for limit in limits):
        # Nobody asked for it: a machine that can't hold it runs the agent all the same.
        changes |= {"memory_bytes": _size(definition), "best_effort": True}
    return msgspec.structs.replace(spec, **changes)


def _names(binding: str) -> set[str]:
    parsed = parse_binding(binding)
    return {parsed.name, *parsed.env}


def with_reach(
    request: NetworkRequest | None, definition: AgentDefinition, secrets: Iterable[str]
) -> NetworkRequest:
    """The agent's model and what the caller allows, instead of what the profile does; in the phase
    "setup" also what is needed to install things. "none" stays none."""
    request = request or NetworkRequest()
    reach = reach_of(definition, secrets)
    first = request.phases.get(FIRST_PHASE)
    plain = request if first is None else first
    if plain.presets == [_NONE] and not plain.allow:
        return request
    beside = _added(plain, reach.presets, reach.allow)
    setup = request.phases.get(SETUP, PhaseRequest(presets=[]))
    presets = [*reach.presets, *definition.network.setup]
    phases = {
        **{name: phase for name, phase in request.phases.items() if name != FIRST_PHASE},
        SETUP: _added(setup, [*(beside.presets or ()), *presets], [*beside.allow, *reach.allow]),
    }
    return msgspec.structs.replace(
        request,
        presets=beside.presets,
        allow=beside.allow,
        deny=plain.deny,
        rules=plain.rules,
        phases=phases,
    )


def _added(phase: PhaseRequest, presets: Sequence[str], allow: Sequence[str]) -> PhaseRequest:
    known = [name for name in phase.presets or () if name != _NONE]
    return PhaseRequest(
        presets=list(dict.fromkeys([*known, *(name for name in presets if name != _NONE)])),
        allow=list(dict.fromkeys([*phase.allow, *allow])),
        deny=phase.deny,
        rules=phase.rules,
    )


def _size(definition: AgentDefinition) -> int:
    try:
        return parse_size(definition.memory)
    except ValueError as exc:
        raise InvalidInputError(f"memory of the agent {definition.name}: {exc}") from None


def seconds_of(request: AgentRequest, definition: AgentDefinition) -> float:
    """How long a session may run at most."""
    if request.timeout_seconds is not None:
        return request.timeout_seconds
    if not definition.timeout:
        return _SECONDS[request.mode]
    try:
        return parse_duration(definition.timeout)
    except ValueError as exc:
        raise InvalidInputError(f"timeout of the agent {definition.name}: {exc}") from None


def definition_of(request: AgentRequest, definitions: Definitions) -> AgentDefinition:
    """Raises NotFoundError. An agent whose command line comes with the request needs none."""
    if not request.command:
        return definitions.get(request.agent)
    try:
        return msgspec.convert(
            {
                "name": request.agent,
                "title": request.agent,
                "version": "-",
                "command": msgspec.to_builtins(Commands(acp=["-"])),
            },
            AgentDefinition,
        )
    except msgspec.ValidationError:
        raise InvalidInputError(
            f"{request.agent[:40]!a} can't be an agent's name", hint="use letters, digits and '-'"
        ) from None


class Inside(NamedTuple):
    """Where an agent finds itself: its home, its project or else its home, its variables."""

    home: str
    workspace: str
    variables: Mapping[str, str]


def look_inside(sandbox: Sandbox, blueprint: Blueprint, env: Mapping[str, str]) -> Inside:
    """`env`: the sandbox's own variables."""
    variables = {**sandbox.environment, **env}
    home = variables.get("HOME") or _HOME
    workspace = blueprint.workspace.target if blueprint.workspace else home
    return Inside(home, workspace, variables)


def require_kit(blueprint: Blueprint, definition: AgentDefinition) -> None:
    """Raises ConflictError for a sandbox that was made without it."""
    place = kit_path(definition)
    if has_kit(definition) and all(mount.path != place for mount in blueprint.volumes):
        raise ConflictError(
            f"the sandbox was made without {definition.title}",
            hint=f"make one with it: agents=[{definition.name!r}], or let the session make its own",
        )


def kit_path(definition: AgentDefinition) -> str:
    return posixpath.join(KITS, definition.name)


def placeholders(setting: NetworkSetting | None) -> dict[str, str]:
    """What stands for secrets, by the variable that has it."""
    bound = setting.secrets if setting else ()
    return {one.env: one.placeholder for one in bound if one.env}


def agent_environment(
    definition: AgentDefinition, fill: Fill, inside: Inside, given: Mapping[str, str]
) -> dict[str, str]:
    """Variables of the agent's process besides the sandbox's."""
    made = environment(definition, fill)
    if entries := path_entries(definition, fill):
        made["PATH"] = ":".join([*entries, inside.variables.get("PATH", "/usr/bin:/bin")])
    return {**made, **given}


def shown_command(words: Sequence[str]) -> str:
    """For people, cut where it gets long."""
    text = shlex.join(words)
    return text if len(text) <= 200 else text[:199] + "…"
