"""Which MCP servers an agent has, what its sandbox reaches for them, and what enters of secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.agents.mcp_servers import (
    chosen_servers,
    project_servers,
    read_servers,
    servers_for,
    with_placeholders,
)
from agentkernel.agents.model import McpServer
from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.model import Rule, SecretBinding


def server(name: str = "it", **fields: Any) -> McpServer:
    return McpServer(name=name, **fields)


def test_a_command_runs_inside_and_reaches_nothing_by_itself() -> None:
    it = server(command=["npx", "-y", "@x/mcp"], env={"MODE": "fast"})
    made = servers_for([it], sandbox_tools=False)
    assert (made.servers, made.rules, made.secrets) == ((it,), (), ())
    named = server(command=["x"], allow=["api.example.org", "db.example.org:5432"])
    rules = servers_for([named], sandbox_tools=False).rules
    assert [(rule.host, rule.ports) for rule in rules] == [
        ("api.example.org", (80, 443)),
        ("db.example.org", (5432,)),
    ]


@pytest.mark.parametrize(
    ("url", "inside", "path"),
    [
        ("http://127.0.0.1:3000/mcp", "http://mcp.agentkernel.internal:3000/mcp", "/mcp"),
        ("http://localhost:3000", "http://mcp.agentkernel.internal:3000/", "/"),
        ("http://[::1]:3000/a/b?x=1", "http://mcp.agentkernel.internal:3000/a/b?x=1", "/a/b"),
        ("http://0.0.0.0:3000/x", "http://mcp.agentkernel.internal:3000/x", "/x"),
        ("http://localhost.:3000/x", "http://mcp.agentkernel.internal:3000/x", "/x"),
        ("http://LocalHost:3000/x", "http://mcp.agentkernel.internal:3000/x", "/x"),
        ("http://host.agentkernel.internal:3000/x", "http://mcp.agentkernel.internal:3000/x", "/x"),
        ("http://app.localhost:3000/x", "http://mcp.agentkernel.internal:3000/x", "/x"),
    ],
)
def test_one_of_this_machine_has_a_name_a_port_and_a_path(url: str, inside: str, path: str) -> None:
    made = servers_for([server(url=url)], sandbox_tools=False)
    assert made.servers[0].url == inside
    (rule,) = made.rules
    assert rule == Rule(
        host="mcp.agentkernel.internal",
        ports=(3000,),
        paths=(path,),
        private=True,
        source="the MCP server it",
    )


def test_one_elsewhere() -> None:
    made = servers_for([server(url="https://mcp.example.org/v1")], sandbox_tools=False)
    assert made.servers[0].url == "https://mcp.example.org/v1"
    assert [(rule.host, rule.ports, rule.private) for rule in made.rules] == [
        ("mcp.example.org", (443,), False)
    ]
    made = servers_for([server(url="http://10.0.0.8:8080/mcp")], sandbox_tools=False)
    (rule,) = made.rules
    assert (rule.host, rule.private, rule.paths) == ("10.0.0.8", True, ("/mcp",))


def test_the_sandboxes_own_tools() -> None:
    made = servers_for([], sandbox_tools=True)
    assert [(each.name, each.url) for each in made.servers] == [
        ("agentkernel", "http://tools.agentkernel.internal/mcp")
    ]
    assert servers_for([], sandbox_tools=False).servers == ()
    taken = server("agentkernel", command=["x"])
    with pytest.raises(InvalidInputError, match="the sandbox's own tools"):
        servers_for([taken], sandbox_tools=True)
    assert servers_for([taken], sandbox_tools=False).servers == (taken,)


def test_secrets_of_headers_are_placeholders_inside() -> None:
    headers = {"Authorization": "Bearer ${MY_TOKEN}", "X-Api-Key": "${OTHER}", "X-Mode": "fast"}
    made = servers_for(
        [server(url="https://mcp.example.org:8443/v1", headers=headers)], sandbox_tools=False
    )
    assert made.secrets == (
        "MY_TOKEN@mcp.example.org:8443",
        "OTHER@mcp.example.org:8443,header=x-api-key",
    )
    bound = [
        SecretBinding(reference=f"local/{name}", env=name, placeholder=f"ph-{name}", hosts=())
        for name in ("MY_TOKEN", "OTHER")
    ]
    (shown,) = with_placeholders(made.servers, bound)
    assert shown.headers == {
        "Authorization": "Bearer ph-MY_TOKEN",
        "X-Api-Key": "ph-OTHER",
        "X-Mode": "fast",
    }
    local = server(url="http://localhost:3000/mcp", headers={"Authorization": "${MY_TOKEN}"})
    made = servers_for([local], sandbox_tools=False)
    assert made.secrets == ("MY_TOKEN@mcp.agentkernel.internal:3000",)


def test_secrets_of_variables() -> None:
    known = server(command=["x"], env={"GH": "${GITHUB_TOKEN}"})
    assert servers_for([known], sandbox_tools=False).secrets == ("GITHUB_TOKEN",)
    other = server(command=["x"], env={"KEY": "${MINE}"})
    with pytest.raises(InvalidInputError, match="where that may go"):
        servers_for([other], sandbox_tools=False)
    assert servers_for([other], sandbox_tools=False, secrets=["MINE@a.example"]).secrets == ()
    own = msgspec.structs.replace(other, secrets=["MINE@a.example"])
    assert servers_for([own], sandbox_tools=False).secrets == ("MINE@a.example",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "a command or a url"),
        ({"command": ["x"], "url": "http://a.example/"}, "a command or a url"),
        ({"command": ["x"], "headers": {"a": "b"}}, "a command does not get"),
        ({"url": "https://a.example/", "env": {"a": "b"}}, "elsewhere does not get"),
        ({"url": "ftp://a.example/"}, "neither http"),
        ({"url": "file:///etc/passwd"}, "neither http"),
        ({"url": "http:///x"}, "neither http"),
        ({"url": "http://a.example:99999/"}, "no proper url"),
        ({"url": "https://user:pw@a.example/"}, "a user"),
        ({"url": "https://a.example/#x"}, "a fragment"),
        ({"url": "http://a.example/\x1b"}, "neither http"),
        ({"url": "https://127.0.0.1:3000/mcp"}, "speaks TLS"),
        ({"url": "http://127.0.0.1:3000/a/../b"}, "not a path"),
        ({"url": "http://127.0.0.1:3000/*x"}, "a \\* in its path"),
        ({"url": "http://127.0.0.1:3000/*"}, "a \\* in its path"),
        ({"url": "http://tools.agentkernel.internal./"}, "no host's own name"),
        ({"url": "https://*.example.org/"}, "no host's own name"),
        ({"url": "http://tools.agentkernel.internal/mcp"}, "no host's own name"),
        ({"url": "https://a.example/", "headers": {"Authorization": "Bearer abc"}}, "no value may"),
        ({"url": "https://a.example/", "headers": {"x-API-key": "abc"}}, "no value may"),
        ({"url": "http://a.example/", "headers": {"Authorization": "${A}"}}, "by https"),
        ({"url": "https://a.example/", "headers": {"a\nb": "c"}}, "a header that is none"),
        ({"url": "https://a.example/", "headers": {"a": "c\r\nd"}}, "a header that is none"),
        ({"url": "https://a.example/", "headers": {"Host": "${A}"}}, "secret"),
        ({"command": ["x"], "allow": ["http://x"]}, "URL"),
    ],
)
def test_what_can_not_be(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        servers_for([server(**fields)], sandbox_tools=False)


def test_names() -> None:
    with pytest.raises(InvalidInputError, match="two MCP servers"):
        servers_for([server(command=["x"]), server(command=["y"])], sandbox_tools=True)
    with pytest.raises(InvalidInputError, match="at most"):
        servers_for([server(f"s{n}", command=["x"]) for n in range(40)], sandbox_tools=False)


def test_those_of_a_configuration() -> None:
    known: dict[str, dict[str, Any]] = {
        "docs": {"url": "https://a.example/mcp"},
        "fs": {"command": ["fs"], "env": {}},
    }
    assert [each.name for each in chosen_servers(["fs,docs"], known)] == ["fs", "docs"]
    assert [each.name for each in chosen_servers(["all"], known)] == ["docs", "fs"]
    assert chosen_servers(["none"], known) == [] == chosen_servers([], known)
    with pytest.raises(InvalidInputError, match="no MCP server 'x'") as caught:
        chosen_servers(["fs", "x"], known)
    assert "docs, fs" in (caught.value.hint or "")


def test_those_of_a_project(tmp_path: Path) -> None:
    assert project_servers(str(tmp_path)) == []
    (tmp_path / ".mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}},'
        ' "b": {"type": "http", "url": "https://b.example/", "headers": {"X-Mode": "1"}}}}'
    )
    found = project_servers(str(tmp_path))
    assert found[0] == server("a", command=["npx", "-y", "x"], env={"K": "v"})
    assert found[1] == server("b", url="https://b.example/", headers={"X-Mode": "1"})
    os.replace(tmp_path / ".mcp.json", tmp_path / "real")
    (tmp_path / ".mcp.json").symlink_to(tmp_path / "real")
    with pytest.raises(InvalidInputError, match="can't be read"):
        project_servers(str(tmp_path))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'{"mcpServers": []}', b'{"mcpServers": {"a": 1}}',
        b'{"mcpServers": {"a": {}}}', b'{"mcpServers": {"a b": {"command": "x"}}}',
        b'{"mcpServers": {"a": {"command": 1}}}', b'{"mcpServers": {"a": {"command": ["x"]}}}',
        b'{"mcpServers": {"a": {"command": "x", "args": "y"}}}',
        b'{"mcpServers": {"a": {"command": "x", "env": {"a": 1}}}}',
        b'{"mcpServers": {"a": {"command": "x\\u0000"}}}', b'{"mcpServers": {"a": {"url": 7}}}',
        b'{"mcpServers": {"a": {"type": "sse", "url": "https://a.example/"}}}',
        b'{"mcpServers": {"\xff": {}}}', b"[" * 100_000,
        b'{"mcpServers": {' + b",".join(b'"s%d": {"command": "x"}' % n for n in range(40)) + b"}}",
    ],
)  # fmt: skip
def test_hostile_files(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_servers(data)
