"""MCP servers of this machine, by a name inside: that one port and path, and nothing beside it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from agentkernel.agents.mcp_servers import servers_for, with_placeholders
from agentkernel.agents.model import McpServer
from agentkernel.network.policy.model import SecretBinding

from .daemon_process import Daemon

VALUE = "the-real-value-of-it-0123456789"
# Asks for each of a list of addresses and prints the status of every answer, 0 for none.
FETCH = """
import http.client, json, sys
for host, port, path, headers in json.load(sys.stdin):
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("POST", path, "{}", headers)
        answer = connection.getresponse()
        print(json.dumps([answer.status, answer.read().decode()]))
    except (OSError, http.client.HTTPException) as exc:
        print(json.dumps([0, type(exc).__name__]))
    connection.close()
"""


class Local:
    """A server of this machine that, as those of MCP do, answers to its own name only."""

    def __init__(self) -> None:
        seen = self.seen = []  # type: list[dict[str, str]]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                host = (self.headers["host"] or "").rpartition(":")[0]
                seen.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
                body = b"served"
                self.send_response(200 if host in ("localhost", "127.0.0.1") else 421)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Local, Local]]:
    """One that the agent is given, and one that it is not."""
    given, other = Local(), Local()
    yield given, other
    given.close()
    other.close()


def fetch(daemon: Daemon, id: str, *asked: tuple[str, int, str, dict[str, str]]) -> list[Any]:
    body = {"argv": ["python3", "-SIc", FETCH], "stdin": json.dumps(asked)}
    done = daemon.request("POST", f"/v1/sandboxes/{id}/exec", body)[1]
    found = [json.loads(line) for line in done["stdout"].splitlines()]
    assert len(found) == len(asked), done
    return found


def test_one_port_and_one_path(daemon: Daemon, servers: tuple[Local, Local]) -> None:
    given, other = servers
    assert daemon.request("PUT", "/v1/secrets/MCP_KEY", {"value": VALUE})[0] < 300
    wanted = McpServer(
        name="docs",
        url=f"http://127.0.0.1:{given.port}/mcp",
        headers={"Authorization": "Bearer ${MCP_KEY}"},
    )
    made = servers_for([wanted], sandbox_tools=True)
    # Beside rules for every name, which must not make it wider.
    rules = [*msgspec.to_builtins(made.rules), {"host": "*"}]
    network = {"presets": [], "rules": rules}
    id = daemon.create(network=network, secrets=list(made.secrets), ephemeral=True)
    shown = daemon.exec(id, "echo $MCP_KEY")["stdout"].strip()
    assert shown and VALUE not in shown
    binding = SecretBinding(reference="local/MCP_KEY", env="MCP_KEY", placeholder=shown, hosts=())
    inside = with_placeholders(made.servers, [binding])[0]
    assert inside.url == f"http://mcp.agentkernel.internal:{given.port}/mcp"
    name, headers = "mcp.agentkernel.internal", dict(inside.headers)
    found = fetch(
        daemon,
        id,
        (name, given.port, "/mcp", headers),
        (name, given.port, "/mcp?x=1", {}),
        (name, given.port, "/admin", {}),
        (name, given.port, "/mcp/../admin", {}),
        (name, given.port, "/mcp/", {}),
        (name, other.port, "/mcp", {}),
        ("host.agentkernel.internal", given.port, "/mcp", {}),
        ("host.agentkernel.internal", other.port, "/mcp", {}),
        ("localhost", given.port, "/mcp", {}),
        ("127.0.0.1", given.port, "/mcp", {}),
        # The secret is for the one server and the one header: nobody else is shown it.
        ("tools.agentkernel.internal", 80, "/mcp", headers),
        (name, given.port, "/mcp", {"x-else": headers["Authorization"]}),
    )
    statuses = [status for status, _ in found]
    assert statuses[:2] == [200, 200] and statuses[-1] == 200, found
    assert not set(statuses[2:-1]) - {0, 403}, statuses
    assert [each["path"] for each in given.seen] == ["/mcp", "/mcp?x=1", "/mcp"]
    assert other.seen == []
    assert given.seen[0]["authorization"] == f"Bearer {VALUE}"
    assert VALUE not in given.seen[2]["x-else"]  # in the header that it is for, and no other
    assert given.seen[0]["host"] == f"localhost:{given.port}"
    # The control: from outside all of that is served.
    for port, path in ((given.port, "/admin"), (other.port, "/mcp")):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", path, "{}")
        assert connection.getresponse().status == 200
        connection.close()
    daemon.request("DELETE", f"/v1/sandboxes/{id}")
    daemon.request("DELETE", "/v1/secrets/MCP_KEY")
