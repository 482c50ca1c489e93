"""A sandbox's own tools: what it can do with them, and that it can do nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from agentkernel.agents.mcp_servers import servers_for
from agentkernel.server.guest_tools import MOST_JOBS

from .daemon_process import SECONDS, Daemon

HOST = "tools.agentkernel.internal"
# Posts the messages it is given, one after another, and prints what each answer was.
CLIENT = """
import http.client, json, sys
asked = json.load(sys.stdin)
connection = http.client.HTTPConnection("tools.agentkernel.internal", 80, timeout=20)
for message in asked["messages"]:
    headers = {"content-type": "application/json",
               "accept": "application/json, text/event-stream", **asked.get("headers", {})}
    body = message if isinstance(message, str) else json.dumps(message)
    try:
        connection.request(asked.get("method", "POST"), asked.get("path", "/mcp"), body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        print(json.dumps([answer.status, json.loads(text) if text else None]))
        if answer.getheader("connection", "").lower() == "close":
            connection.close()
    except (OSError, http.client.HTTPException) as exc:
        print(json.dumps([0, type(exc).__name__]))
        connection.close()
"""
RULES = msgspec.to_builtins(list(servers_for([], sandbox_tools=True).rules))


class Box:
    """A sandbox, asked as an agent in it would ask."""

    def __init__(self, daemon: Daemon, id: str) -> None:
        self.daemon = daemon
        self.id = id

    def post(self, *messages: Any, **more: Any) -> list[tuple[int, Any]]:
        asked = json.dumps({"messages": messages, **more})
        done = self.daemon.request(
            "POST",
            f"/v1/sandboxes/{self.id}/exec",
            {
                "argv": ["python3", "-SIc", CLIENT],
                "stdin": asked,
                "timeout_seconds": SECONDS,
            },
        )[1]
        lines = done["stdout"].splitlines()
        assert len(lines) == len(messages), done
        return [tuple(json.loads(line)) for line in lines]

    def ask(self, *methods: tuple[str, dict[str, Any]]) -> list[Any]:
        """What each method answers."""
        messages = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in enumerate(methods)
        ]
        answers = self.post(*messages)
        assert [(status, body["id"]) for status, body in answers] == [
            (200, number) for number in range(len(methods))
        ], answers
        return [body["result"] for _, body in answers]

    def calls(self, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """The data of each tool's answer; of one that failed, its words as `error`."""
        asked = [("tools/call", {"name": name, "arguments": given}) for name, given in calls]
        found = []
        for result in self.ask(*asked):
            text = result["content"][0]["text"]
            assert isinstance(text, str)
            failed = result.get("isError")
            found.append({"error": text} if failed else result.get("structuredContent", {}))
        return found

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.calls((tool, arguments))[0]

    def works(self) -> bool:
        return self.ask(("ping", {})) == [{}]


def make(daemon: Daemon, *, rules: Any = RULES, **fields: Any) -> Box:
    network = {"presets": ["none"] if not rules else [], "rules": rules}
    return Box(daemon, daemon.create(network=network, **fields))


@pytest.fixture(scope="module")
def box(shared_daemon: Daemon) -> Iterator[Box]:
    box = make(shared_daemon, name="mine")
    yield box
    shared_daemon.remove_all()


@pytest.fixture(scope="module")
def other(shared_daemon: Daemon) -> Box:
    return make(shared_daemon, name="other")


def eventually(look: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    assert found
    return found


def test_the_protocol(box: Box) -> None:
    hello, newer, pong, listed = box.ask(
        ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}),
        ("initialize", {"protocolVersion": "1"}),
        ("ping", {}),
        ("tools/list", {}),
    )
    assert hello["protocolVersion"] == "2025-06-18" and hello["serverInfo"]["name"] == "agentkernel"
    assert newer["protocolVersion"] == "2025-11-25" and pong == {}
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert set(tools) == {
        "network_policy", "network_why", "network_denied", "ask_for_host", "ask_for_port", "ports",
        "secrets", "limits", "job_start", "job_list", "job_output", "job_stop",
    }  # fmt: skip
    assert all("sandbox" not in tool["inputSchema"]["properties"] for tool in tools.values())
    assert tools["job_start"]["inputSchema"]["required"] == ["command"]
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert box.post(told) == [(202, None)]
    assert box.post("", method="GET") == [(405, None)]


def test_what_is_no_message(box: Box) -> None:
    wrong: list[tuple[Any, int]] = [
        ("{", -32700),
        ("[" * 5000, -32700),
        ([], -32600),
        ({}, -32600),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}, -32602),
    ]
    *answers, (status, body) = box.post(*(message for message, _ in wrong), "x" * (300 << 10))
    assert [body["error"]["code"] for _, body in answers] == [code for _, code in wrong]
    assert status == 413 and body["code"] == "invalid_input"
    failed = box.calls(
        ("job_start", {"command": 7}),
        ("job_list", {"sandbox": "other"}),
        ("job_start", {"command": "x", "user": "root"}),
        ("job_output", {"job": "../x"}),
        ("ask_for_host", {"host": "..", "reason": "x"}),
        ("ask_for_host", {"host": "a b", "reason": "x"}),
        ("ask_for_host", {"host": "x" * 300, "reason": "x"}),
    )
    assert all("error" in each for each in failed), failed
    assert "unknown field" in failed[1]["error"] and "unknown field" in failed[2]["error"]


def test_the_network_is_told_and_asked_for_and_stays_as_it_is(daemon: Daemon, box: Box) -> None:
    before = daemon.request("GET", f"/v1/sandboxes/{box.id}/network")[1]["phases"]
    daemon.exec(box.id, "python3 -SIc 'import socket; socket.getaddrinfo(\"api.example.org\", 1)'")
    policy, why, asked, port, ports, secrets, limits = box.calls(
        ("network_policy", {}),
        ("network_why", {"host": "api.example.org"}),
        ("ask_for_host", {"host": "API.example.org", "reason": "to read\nits \x1b[31mdocs"}),
        ("ask_for_port", {"port": 3000, "reason": "a page"}),
        ("ports", {}),
        ("secrets", {}),
        ("limits", {}),
    )
    assert policy["rules"] == [f"allow {HOST}:80 /mcp"]
    command = "agentkernel network allow mine api.example.org:443"
    assert (why["outcome"], why["change"]) == ("deny", [command])
    assert asked["change"] == command and port["told"]
    assert ports == {"ports": []} and secrets == {"secrets": []}
    assert limits["limits"]["memory"] and limits["usage"]["counted_by"]
    denied = eventually(lambda: box.call("network_denied")["denied"])
    assert denied[0]["host"] == "api.example.org" and "no rule" in denied[0]["reason"]
    log = daemon.request("GET", f"/v1/sandboxes/{box.id}/network/log")[1].decode()
    told = [json.loads(line[5:]) for line in log.splitlines() if line.startswith("data:")]
    events = [event["body"] for event in told if event["kind"] == "network.asked"]
    assert [event["what"] for event in events] == ["host", "port"]
    assert events[0]["host"] == "api.example.org" and events[0]["reason"] == "to read its  [31mdocs"
    assert daemon.request("GET", f"/v1/sandboxes/{box.id}/network")[1]["phases"] == before
    many = box.calls(*[("ask_for_host", {"host": "a.example.org", "reason": "x"})] * 10)
    assert "often enough" in many[-1]["error"]


# So many calls at once, each of its own connection.
TOGETHER = """
import http.client, json, sys, threading
asked, started = sys.argv[1], []
def call():
    connection = http.client.HTTPConnection("tools.agentkernel.internal", 80, timeout=30)
    for _ in range(3):
        connection.request("POST", "/mcp", asked, {"content-type": "application/json"})
        result = json.loads(connection.getresponse().read())["result"]
        if not result.get("isError"):
            started.append(result)
threads = [threading.Thread(target=call) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(started))
"""


def test_no_more_jobs_at_once_than_one_after_another(shared_daemon: Daemon) -> None:
    own = make(shared_daemon, name="many")
    call = {"name": "job_start", "arguments": {"command": "exec sleep 1000"}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    done = shared_daemon.request(
        "POST",
        f"/v1/sandboxes/{own.id}/exec",
        {"argv": ["python3", "-SIc", TOGETHER, asked], "timeout_seconds": SECONDS},
    )[1]
    assert 1 <= int(done["stdout"]) <= MOST_JOBS, done
    assert len(own.call("job_list")["jobs"]) == int(done["stdout"])


def test_jobs(daemon: Daemon, box: Box) -> None:
    job = box.call("job_start", command="echo out; echo err >&2; exec sleep 1000", cwd="/tmp")
    assert job["state"] == "running"

    def written() -> Any:
        shown = box.call("job_output", job=job["job"])
        return shown if shown["stdout"] and shown["stderr"] else None

    shown = eventually(written)
    assert (shown["stdout"], shown["stderr"], shown["stdout_offset"]) == ("out\n", "err\n", 4)
    again = box.call("job_output", job=job["job"], stdout_offset=4, stderr_offset=4)
    assert (again["stdout"], again["stderr"]) == ("", "")
    assert [each["job"] for each in box.call("job_list")["jobs"]] == [job["job"]]
    # Whatever the user has started there is not the guest's to read or to end.
    users = daemon.request("POST", f"/v1/sandboxes/{box.id}/jobs", {"argv": ["sleep", "1000"]})[1]
    tried = box.calls(*((tool, {"job": users["id"]}) for tool in ("job_output", "job_stop")))
    assert all("no such job" in each["error"] for each in tried)
    box.call("job_stop", job=job["job"])
    eventually(lambda: box.call("job_list")["jobs"][0]["state"] == "ended")
    assert box.call("job_output", job=job["job"])["stdout"] == "out\n"


def test_another_sandbox_is_out_of_reach(daemon: Daemon, box: Box, other: Box) -> None:
    job = other.call("job_start", command="exec sleep 1000")["job"]
    tried = box.calls(*((tool, {"job": job}) for tool in ("job_output", "job_stop")))
    assert all("no such job" in each["error"] for each in tried)
    assert box.call("job_list")["jobs"] != other.call("job_list")["jobs"]
    # Words that mean something at the daemon's other doors, and those of the gateway itself.
    lies = {
        "Agentkernel-Owner": "local",
        "Agentkernel-Sandbox": other.id,
        "Authorization": "Bearer x",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "job_list"}}
    ((status, body),) = box.post(message, headers=lies)
    assert status == 200
    assert job not in json.dumps(body)
    raw = (
        "import socket, sys\n"
        f"s = socket.create_connection(('{HOST}', 80), 10)\n"
        f"s.sendall(b'agentkernel-tools/1 {other.id}\\n' + b'POST /mcp HTTP/1.1\\r\\n"
        f"Host: {HOST}\\r\\nContent-Length: 0\\r\\n\\r\\n')\n"
        "print(s.recv(4096))"
    )
    done = daemon.exec(box.id, f"python3 -c {json.dumps(raw)} 2>&1".replace("\\n", "\n"))
    assert "200 OK" not in done["stdout"] and other.id not in done["stdout"], done
    # The control: whose job it is can end it.
    other.call("job_stop", job=job, signal="KILL")
    eventually(lambda: other.call("job_list")["jobs"][0]["state"] == "ended")


def test_nothing_else_of_the_daemon_is_there(daemon: Daemon, box: Box) -> None:
    for path in ("/v1/sandboxes", "/mcp/", "/mcp/x", "/", "/%6dcp/../v1/sandboxes"):
        ((status, _),) = box.post("", path=path, method="GET")
        assert status in (400, 403), path
    # Where a rule leaves the path open, the door itself has nothing but the tools.
    wide = make(daemon, rules=[{"host": HOST, "ports": [80]}])
    ((status, body),) = wide.post("", path="/v1/sandboxes", method="GET")
    assert (status, body["code"]) == (404, "not_found")
    assert wide.works()  # the control
    ((status, _),) = wide.post({}, headers={"Origin": "https://example.org"})
    assert status == 403


def test_a_sandbox_that_has_none(daemon: Daemon) -> None:
    """Not by a rule for every name, either: such a rule never means this machine."""
    for rules in ([{"host": "*"}], [{"host": "*.agentkernel.internal"}, {"host": "*.internal"}]):
        without = make(daemon, rules=rules)
        ((status, body),) = without.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert status == 403 and "no rule" in body["error"]["message"], body
    # The control: with the rule, and beside such a one.
    assert make(daemon, rules=[*RULES, {"host": "*"}]).works()
    # Taken away, they are gone at once.
    box = make(daemon)
    assert box.works()
    body = {"action": "deny", "target": HOST}
    assert daemon.request("POST", f"/v1/sandboxes/{box.id}/network/rules", body)[0] == 200
    ((status, _),) = box.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert status == 403


def test_calls_are_bounded(daemon: Daemon, box: Box, other: Box) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    many = make(daemon)
    statuses = [status for status, _ in many.post(*([ping] * 90))]
    assert statuses[0] == 200 and 429 in statuses
    assert other.works()  # who is not at fault is served
    flood = (
        "import socket\n"
        f"held = [socket.create_connection(('{HOST}', 80), 10) for _ in range(60)]\n"
        "for s in held: s.sendall(b'POST /mcp HTTP/1.1\\r\\nHost: " + HOST + "\\r\\n"
        "Content-Length: 9\\r\\n\\r\\n')\n"
        "print(len(held))"
    )
    done = daemon.request(
        "POST", f"/v1/sandboxes/{many.id}/exec", {"argv": ["python3", "-c", flood]}
    )[1]
    assert done["stdout"] == "60\n", done
    assert other.works()


def test_what_was_done_is_in_the_log(daemon: Daemon, box: Box) -> None:
    box.call("job_start", command="true")
    entries = daemon.request("GET", f"/v1/audit?sandbox={box.id}&limit=1000")[1]["entries"]
    own = [each for each in entries if (each.get("actor") or {}).get("door") == "sandbox"]
    assert {"job.start", "network.ask"} <= {each["action"] for each in own}
    assert {each["actor"]["client"] for each in own} >= {box.id}


def test_after_the_daemons_end(own_daemon: Daemon) -> None:
    """A client inside goes on with the next daemon as if nothing had been."""
    box = make(own_daemon, name="mine")
    assert box.works()
    own_daemon.kill()
    own_daemon.start()
    assert box.works()
    assert box.call("network_policy")["rules"]
