"""The real agents use MCP servers: the sandbox's own tools, one inside, one of the host."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ..scripted import Say, Script, ScriptedModels, Turn, Use
from .lab import Lab, make_project

AGENTS = ("claude", "codex", "gemini", "opencode")
TOOL = {
    "name": "lucky_number",
    "description": "tells the lucky number",
    "inputSchema": {"type": "object", "properties": {}},
}
# The smallest server of the protocol there is, on stdio.
TINY = """
import json, sys
tool = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    version = asked.get("params", {}).get("protocolVersion")
    answer = {
        "initialize": {"protocolVersion": version, "capabilities": {"tools": {}},
                       "serverInfo": {"name": "tiny", "version": "1"}},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "it is 4711"}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


@pytest.fixture(scope="module")
def host_server() -> Iterator[int]:
    """The same of this machine, by HTTP, with another number."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            version = asked.get("params", {}).get("protocolVersion")
            named = {"name": "house", "version": "1"}
            results: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": named,
                },
                "tools/list": {"tools": [{**TOOL, "name": "house_number"}]},
                "tools/call": {"content": [{"type": "text", "text": "it is 221b"}]},
            }
            body = b""
            if "id" in asked:
                told = {"jsonrpc": "2.0", "id": asked["id"]}
                body = json.dumps({**told, "result": results.get(asked["method"], {})}).encode()
            self.send_response(200 if body else 202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *words: Any) -> None:
            """Clients end their connections as they like."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def _turns(agent: str) -> list[Turn]:
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("agentkernel", "network_why", {"host": "docs.example"}),
        ("agentkernel", "ask_for_host", {"host": "docs.example", "reason": "to read them"}),
        ("tiny", "lucky_number", {}),
        ("house", "house_number", {}),
    ]
    long = agent in ("claude", "codex")
    uses = [
        Use(f"mcp__{server}__{tool}" if long else tool, given) for server, tool, given in wanted
    ]
    return [*uses, Say("I know it all now.")]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_uses_its_servers(
    agent: str, lab: Lab, models: ScriptedModels, tmp_path: Path, host_server: int
) -> None:
    project = make_project(tmp_path / "project", **{"tiny.py": TINY})
    config = lab.config_home / "agentkernel" / "config.toml"
    before = config.read_text()
    config.write_text(
        f"{before}\n"
        f"[mcp.tiny]\ncommand = ['python3', '{project}/tiny.py', '{json.dumps(TOOL)}']\n"
        f'[mcp.house]\nurl = "http://127.0.0.1:{host_server}/mcp"\n'
    )
    models.play(Script(_turns(agent)))
    try:
        done = lab.run(agent, "Find out", project, "--mcp", "all")
    finally:
        config.write_text(before)
    assert done.code == 0, (done.stdout[-3000:], done.stderr[-3000:])
    last = models.work()[-1].conversation
    assert last is not None
    seen = "\n".join(last.results)
    assert "no rule of the sandbox's policy allows docs.example:443" in seen, seen
    assert "The user is told" in seen and "it is 4711" in seen and "it is 221b" in seen, seen
    (wish,) = done.summary["asked"]
    assert (wish["host"], wish["reason"]) == ("docs.example", "to read them")
    assert "asks for  docs.example:443: to read them" in done.stderr
