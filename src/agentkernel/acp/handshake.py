"""What is changed in `initialize` and in what a session is given, and why.

The agent is told of a client that has files and terminals: ours, inside. Of the ways to log in that
it offers those are taken out that an editor would carry out by running a command on the host.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from agentkernel.agents.acp import wire
from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.services import CAPABILITIES, RefusedError

LOGIN: Final = "agentkernel-login"
_LOOPBACK: Final = ("localhost", "127.", "[::1]", "::1", "0.0.0.0")


def client_capabilities(params: Any) -> dict[str, Any]:
    """The params of `initialize`, as the agent gets them."""
    body = dict(params) if isinstance(params, dict) else {}
    body.setdefault("protocolVersion", 1)
    given = body.get("clientCapabilities")
    capabilities = dict(given) if isinstance(given, dict) else {}
    meta = capabilities.get("_meta")
    if isinstance(meta, dict):
        capabilities["_meta"] = {key: meta[key] for key in meta if key != "terminal-auth"}
    capabilities.pop("auth", None)
    body["clientCapabilities"] = {**capabilities, **CAPABILITIES}
    return body


def agent_answer(result: Any, agent: str) -> Any:
    """The result of `initialize`, as the editor gets it."""
    if not isinstance(result, dict):
        return result
    methods = result.get("authMethods")
    kept = [
        {key: method[key] for key in ("id", "name", "description") if key in method}
        for method in (methods if isinstance(methods, list) else [])
        if isinstance(method, dict) and method.get("type") in (None, "agent")
    ]
    return {**result, "authMethods": [login_method(agent), *kept]}


def login_method(agent: str) -> dict[str, Any]:
    return {
        "id": LOGIN,
        "name": "Log in with agentkernel",
        "description": f"In a terminal: agentkernel agent login {agent}. The login stays outside "
        "the sandbox.",
    }


def not_logged_in(agent: str, protocol: Any) -> dict[str, Any]:
    """What `initialize` gives while nothing of the agent runs, since there is no login for it."""
    return {
        "protocolVersion": protocol if type(protocol) is int and 0 < protocol <= 1 else 1,
        "agentCapabilities": {"loadSession": True},
        "authMethods": [login_method(agent)],
    }


def session_params(params: Any, paths: PathMap, notes: list[str]) -> dict[str, Any]:
    """Of session/new, load, resume and fork, before paths are rewritten. `notes` gets sentences for
    the user. Raises RefusedError for a directory that is not inside."""
    if not isinstance(params, dict):
        raise RefusedError(wire.INVALID_PARAMS, "params is not an object")
    body = dict(params)
    cwd = body.get("cwd")
    if isinstance(cwd, str) and paths.inside(cwd) is None:
        raise RefusedError(
            wire.INVALID_PARAMS,
            f"{cwd[:200]} is not in the sandbox, which has {paths.host}; start "
            "`agentkernel acp` with --workspace DIR",
        )
    more = body.get("additionalDirectories")
    if isinstance(more, list):
        inside = [path for path in more if isinstance(path, str) and paths.inside(path) is not None]
        notes += [f"{path} is not in the sandbox" for path in more if path not in inside]
        body["additionalDirectories"] = inside
    servers = body.get("mcpServers")
    if isinstance(servers, list):
        body["mcpServers"] = [server for server in servers if _is_inside(server, notes)]
        notes += [
            f"what the editor has set for the MCP server {str(server.get('name'))[:64]} "
            f"({', '.join(named)[:200]}) is inside now, tokens included"
            for server in body["mcpServers"]
            if (named := _names_set(server))
        ]
    return body


def with_servers(params: dict[str, Any], servers: list[dict[str, Any]]) -> dict[str, Any]:
    """With the agent's own MCP servers; the editor's go before those of the same names."""
    given = params.get("mcpServers")
    known = given if isinstance(given, list) else []
    names = {server.get("name") for server in known}
    more = [server for server in servers if server["name"] not in names]
    return {**params, "mcpServers": [*known, *more]} if more else params


def _is_inside(server: Any, notes: list[str]) -> bool:
    """Whether an MCP server runs in the sandbox or is reached by its network's rules: nothing of
    the host's own is, and nothing of the editor's."""
    if not isinstance(server, dict):
        return False
    kind, name = server.get("type"), str(server.get("name"))[:64]
    if kind in (None, "stdio"):
        return True
    url = server.get("url")
    if kind in ("http", "sse") and isinstance(url, str):
        try:
            host = (urlsplit(url).hostname or "").lower()
        except ValueError:
            host = ""
        if host and not host.startswith(_LOOPBACK) and not host.endswith(".localhost"):
            return True
    notes.append(f"the MCP server {name} is on this machine, which the sandbox does not reach")
    return False


def _names_set(server: dict[str, Any]) -> list[str]:
    """Variables and headers that have a value."""
    given = [server.get("env"), server.get("headers")]
    entries = [entry for part in given if isinstance(part, list) for entry in part]
    return [
        str(entry.get("name"))
        for entry in entries
        if isinstance(entry, dict) and entry.get("value")
    ]
