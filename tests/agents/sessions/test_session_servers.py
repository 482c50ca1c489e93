"""The MCP servers of a session: what its sandbox reaches for them, and what the agent is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentkernel.agents.model import McpServer
from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.kernel.agents.model import AgentRequest, AgentSession
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.network.secrets.store import Hidden

from .conftest import events

VALUE = "the-real-value-of-the-header-0123456789"
AGENT = """
name = "served"
title = "Served"
version = "1"
events = "text"
[command]
headless = ["cat", "{home}/.served/mcp.json"]
resume_headless = ["cat", "{home}/.served/mcp.json"]
[network]
presets = []
setup = []
[mcp]
format = "claude"
file = "~/.served/mcp.json"
project = ".mcp.json"
"""


@pytest.fixture(scope="module", autouse=True)
def agent(fake_agent: None) -> None:
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents"
    (place / "served.toml").write_text(AGENT)


async def run(kernel: Kernel, **fields: Any) -> tuple[AgentSession, dict[str, Any]]:
    """The session, and what the agent was told of its servers."""
    asked = AgentRequest(agent="served", task="-", **fields)
    session = await kernel.agents.sessions.start(asked)
    text = "".join(
        str(event.body.get("text", ""))
        for event in await events(kernel, session.id)
        if event.kind == "output"
    )
    servers: dict[str, Any] = json.loads(text)["mcpServers"]
    return session, servers


async def rules(kernel: Kernel, session: AgentSession) -> dict[str, list[str]]:
    shown = await kernel.network.show(session.sandbox)
    return {
        name: [f"{rule.host}:{rule.ports[0]}{''.join(rule.paths)}" for rule in policy.rules]
        for name, policy in shown.phases.items()
    }


async def test_all_kinds(kernel: Kernel) -> None:
    await kernel.secrets.set("DOCS_KEY", Hidden(VALUE.encode()), owner="local")
    servers = [
        McpServer(name="tiny", command=["python3", "x.py"], env={"MODE": "fast"}),
        McpServer(name="here", url="http://localhost:3210/mcp"),
        McpServer(
            name="docs",
            url="https://docs.example/mcp",
            headers={"Authorization": "Bearer ${DOCS_KEY}"},
        ),
    ]
    session, told = await run(kernel, mcp=servers)
    assert list(told) == ["tiny", "here", "docs", "agentkernel"]
    assert told["tiny"] == {"command": "python3", "args": ["x.py"], "env": {"MODE": "fast"}}
    assert told["here"]["url"] == "http://mcp.agentkernel.internal:3210/mcp"
    assert told["agentkernel"]["url"] == "http://tools.agentkernel.internal/mcp"
    header = told["docs"]["headers"]["Authorization"]
    assert header.startswith("Bearer ") and "$" not in header and VALUE not in json.dumps(told)
    found = await rules(kernel, session)
    assert found["default"][:3] == [
        "mcp.agentkernel.internal:3210/mcp",
        "docs.example:443",
        "tools.agentkernel.internal:80/mcp",
    ]
    assert "mcp.agentkernel.internal:3210/mcp" not in found.get("setup", [])
    # In the same sandbox there are these and no others.
    again, told = await run(kernel, resume=session.id)
    assert again.sandbox == session.sandbox and list(told) == ["agentkernel"]
    with pytest.raises(ConflictError, match="does not reach the MCP server more"):
        more = McpServer(name="more", url="http://localhost:3211/mcp")
        await run(kernel, sandbox=session.sandbox, mcp=[more])


async def test_without_the_tools(kernel: Kernel) -> None:
    session, told = await run(kernel, sandbox_tools=False)
    assert told == {} and "tools.agentkernel.internal:80/mcp" not in str(
        await rules(kernel, session)
    )
    # Whoever wants no network has none, and an agent in a sandbox without tools is not told of any.
    closed, told = await run(kernel, spec=SandboxSpec(network=NetworkRequest(presets=["none"])))
    assert told == {} and not any((await rules(kernel, closed)).values())
    assert (await run(kernel, sandbox=session.sandbox))[1] == {}


async def test_those_of_the_project_if_it_is_trusted(kernel: Kernel, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    file = project / ".mcp.json"
    file.write_text('{"mcpServers": {"its": {"url": "http://127.0.0.1:3212/x"}}}')
    spec = SandboxSpec(workspace=str(project))
    session, told = await run(kernel, spec=spec)
    assert list(told) == ["agentkernel"]
    assert not any("3212" in rule for rule in (await rules(kernel, session))["default"])
    session, told = await run(kernel, spec=spec, trust_project_mcp=True)
    assert told["its"]["url"] == "http://mcp.agentkernel.internal:3212/x"
    assert "mcp.agentkernel.internal:3212/x" in (await rules(kernel, session))["default"]
    file.write_text("{")
    before = len((await kernel.list()).records)
    with pytest.raises(InvalidInputError, match="is no JSON"):
        await run(kernel, spec=spec, trust_project_mcp=True)
    assert len((await kernel.list()).records) == before
