"""What an agent is told of its editor, and an editor of its agent."""

from __future__ import annotations

from typing import Any

import pytest

from agentkernel.acp.handshake import agent_answer, client_capabilities, session_params
from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.services import RefusedError

PATHS = PathMap("/home/u/proj", "/workspace")


def test_an_agent_is_told_of_our_files_and_terminals() -> None:
    told = client_capabilities(
        {
            "protocolVersion": 1,
            "clientInfo": {"name": "zed"},
            "clientCapabilities": {
                "fs": {"readTextFile": False},
                "auth": {"terminal": True},
                "elicitation": {"form": {}},
                "_meta": {"terminal-auth": True, "terminal_output": True},
            },
        }
    )
    assert told == {
        "protocolVersion": 1,
        "clientInfo": {"name": "zed"},
        "clientCapabilities": {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": True,
            "elicitation": {"form": {}},
            "_meta": {"terminal_output": True},
        },
    }
    odd: tuple[object, ...] = (None, [], {"clientCapabilities": 5})
    for params in odd:
        assert client_capabilities(params)["clientCapabilities"]["terminal"] is True


def test_no_way_to_log_in_runs_anything_on_the_host() -> None:
    methods: list[Any] = [
        {"id": "a", "name": "A", "description": "d", "type": "agent", "_meta": {"x": 1}},
        {"id": "b", "name": "B", "_meta": {"terminal-auth": {"command": "sh"}}},
        {"id": "c", "name": "C", "type": "terminal", "args": ["--login"]},
        {"id": "d", "name": "D", "type": "env_var", "vars": []},
        {"id": "e", "name": "E", "type": "new_kind", "run": "sh"},
        5,
    ]
    answer = agent_answer({"protocolVersion": 1, "authMethods": methods, "other": 1}, "claude")
    ours, *kept = answer["authMethods"]
    assert ours["id"] == "agentkernel-login" and "agent login claude" in ours["description"]
    assert kept == [{"id": "a", "name": "A", "description": "d"}, {"id": "b", "name": "B"}]
    assert answer["other"] == 1
    assert agent_answer(5, "claude") == 5


@pytest.mark.parametrize(
    ("server", "passes"),
    [
        ({"name": "a", "command": "x", "args": [], "env": []}, True),
        ({"type": "stdio", "name": "a", "command": "x"}, True),
        ({"type": "http", "name": "a", "url": "https://example.org/mcp"}, True),
        ({"type": "sse", "name": "a", "url": "https://example.org:8443/"}, True),
        ({"type": "http", "name": "a", "url": "http://localhost:3000/mcp"}, False),
        ({"type": "http", "name": "a", "url": "http://LOCALHOST/"}, False),
        ({"type": "http", "name": "a", "url": "http://127.0.0.1:3000/mcp"}, False),
        ({"type": "http", "name": "a", "url": "http://127.8.0.1/"}, False),
        ({"type": "http", "name": "a", "url": "http://[::1]:3000/"}, False),
        ({"type": "http", "name": "a", "url": "http://0.0.0.0/"}, False),
        ({"type": "http", "name": "a", "url": "http://x.localhost/"}, False),
        ({"type": "http", "name": "a", "url": "nonsense"}, False),
        ({"type": "http", "name": "a", "url": "http://[bad"}, False),
        ({"type": "acp", "name": "a", "serverId": "1"}, False),
        ({"type": "new", "name": "a"}, False),
        ("nonsense", False),
    ],
)
def test_mcp_servers(server: Any, passes: bool) -> None:
    notes: list[str] = []
    given = session_params({"cwd": "/home/u/proj", "mcpServers": [server]}, PATHS, notes)
    assert given["mcpServers"] == ([server] if passes else [])
    assert bool(notes) == (not passes and isinstance(server, dict))


def test_only_directories_of_the_project() -> None:
    for cwd in ("/home/u", "/etc", "/home/u/proj2", "/home/u/proj/../other"):
        with pytest.raises(RefusedError, match="not in the sandbox"):
            session_params({"cwd": cwd}, PATHS, [])
    with pytest.raises(RefusedError):
        session_params(None, PATHS, [])
    notes: list[str] = []
    body = {"cwd": "/home/u/proj/a", "additionalDirectories": ["/etc", "/home/u/proj/b", 5]}
    assert session_params(body, PATHS, notes)["additionalDirectories"] == ["/home/u/proj/b"]
    assert len(notes) == 2


def test_what_enters_with_an_editors_server_is_said() -> None:
    """Its values are the editor's to give: they are inside from then on, and the user is told."""
    notes: list[str] = []
    env = [{"name": "API_KEY", "value": "k3y"}, {"name": "EMPTY", "value": ""}, 5]
    headers = [{"name": "Authorization", "value": "Bearer t0ken"}]
    servers = [
        {"name": "a", "command": "x", "args": [], "env": env},
        {"type": "http", "name": "b", "url": "https://example.org/", "headers": headers},
        {"name": "c", "command": "x", "args": [], "env": "odd"},
    ]
    body = session_params({"cwd": "/home/u/proj", "mcpServers": servers}, PATHS, notes)
    assert body["mcpServers"] == servers
    assert len(notes) == 2 and "a (API_KEY) is inside" in notes[0] and "Authorization" in notes[1]
    assert not any("k3y" in note or "t0ken" in note for note in notes)
