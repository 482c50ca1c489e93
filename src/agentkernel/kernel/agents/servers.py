"""The MCP servers of a session: what its sandbox gets for them, and how they look inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.mcp_servers import (
    PROJECT_FILE,
    TOOLS_NAME,
    McpAdditions,
    project_servers,
    servers_for,
    unbound_secrets,
    with_placeholders,
)
from agentkernel.agents.model import McpServer
from agentkernel.errors import ConflictError
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.model import FIRST_PHASE, NetworkSetting, Rule
from agentkernel.network.policy.request import NetworkRequest, PhaseRequest
from agentkernel.workspaces.model import parse_workspace

_NONE: Final = "none"


def wanted_servers(
    asked: AgentRequest, definition: AgentDefinition, spec: SandboxSpec, project: str | None
) -> McpAdditions:
    """All that the agent is to have: the user's, the sandbox's own tools, and those of the
    project's file if that is trusted. Blocking. Raises InvalidInputError."""
    servers = list(asked.mcp)
    if asked.trust_project_mcp and definition.mcp.project == PROJECT_FILE and project:
        named = {server.name for server in servers}
        servers += [server for server in project_servers(project) if server.name not in named]
    takes_servers = definition.mcp.format != "none" or asked.mode == "acp"
    return servers_for(
        servers,
        sandbox_tools=asked.sandbox_tools and takes_servers and not _is_none(spec.network),
        secrets=spec.secrets,
    )


def with_servers(spec: SandboxSpec, added: McpAdditions) -> SandboxSpec:
    """The spec of a sandbox that reaches them while the agent works."""
    if not added.rules and not added.secrets:
        return spec
    request = spec.network or NetworkRequest()
    first = request.phases.get(FIRST_PHASE)
    if first is None:
        request = msgspec.structs.replace(request, rules=_joined(request, added.rules))
    else:
        phase = msgspec.structs.replace(first, rules=_joined(first, added.rules))
        request = msgspec.structs.replace(request, phases={**request.phases, FIRST_PHASE: phase})
    secrets = list(dict.fromkeys([*spec.secrets, *added.secrets]))
    return msgspec.structs.replace(spec, network=request, secrets=secrets)


def servers_inside(
    added: McpAdditions, setting: NetworkSetting | None, name: str
) -> list[McpServer]:
    """As the agent is told of them, in a sandbox that may have been there before. Raises
    ConflictError for one that it does not reach; the sandbox's tools are left out then."""
    policy = setting.phases.get(FIRST_PHASE) if setting else None
    given = set(policy.rules) if policy else set()
    if not _has(added.rules, TOOLS_NAME, given):
        own = [server for server in added.servers if server.name != TOOLS_NAME]
        added = msgspec.structs.replace(added, servers=tuple(own))
    for server in added.servers:
        if not _has(added.rules, server.name, given):
            raise ConflictError(
                f"the sandbox {name} does not reach the MCP server {server.name}",
                hint="it was made without: start the agent in a new sandbox",
            )
    bound = setting.secrets if setting else ()
    servers = with_placeholders(added.servers, bound)
    if missing := unbound_secrets(servers, bound):
        raise ConflictError(
            f"the sandbox {name} may not use the secret {missing[0]}",
            hint="it was made without: start the agent in a new sandbox",
        )
    return servers


def project_directory(spec: SandboxSpec) -> str | None:
    parsed = None if spec.workspace is None else parse_workspace(spec.workspace)
    return None if parsed is None else parsed[0]


def _has(rules: Sequence[Rule], name: str, given: set[Rule]) -> bool:
    own = "the sandbox's own tools" if name == TOOLS_NAME else f"the MCP server {name}"
    return all(rule in given for rule in rules if rule.source == own)


def _joined(phase: PhaseRequest, rules: Sequence[Rule]) -> list[Rule]:
    return list(dict.fromkeys([*phase.rules, *rules]))


def _is_none(request: NetworkRequest | None) -> bool:
    """Whoever wants no network at all gets none, not even the daemon."""
    if request is None:
        return False
    first: PhaseRequest = request.phases.get(FIRST_PHASE, request)
    return first.presets == [_NONE] and not first.allow and not first.rules
