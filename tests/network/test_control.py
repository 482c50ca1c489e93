"""A sandbox's network over HTTP: shown, changed, asked about, refused; kept whatever ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon, eventually
from .world.everything import World
from .world.processes import gateway_pid

CLAUDE = {"Agentkernel-Owner": "mcp:claude"}
HOLD = """
with connect('good.test', V['port']) as held:
    held.sendall(b'<first>')
    first = held.recv(100)
    open('/tmp/held', 'w').write('x')
    answer(first=first.decode(), **finish(held, []))
"""


@pytest.fixture(scope="module")
def mine(daemon: WorldDaemon, world: World) -> Iterator[Box]:
    rules = [{"host": "good.test", "ports": [world.recorder.port, world.plain.port]}]
    phases = {"setup": {"rules": rules}, "agent": {"presets": []}}
    box = daemon.box(network={"presets": [], "phases": phases, "phase": "setup"}, name="mine")
    yield box
    box.remove()


def _said(box: Box, world: World, name: str = "good.test") -> bool:
    """Whether a raw connection comes through."""
    found = box.try_all(
        "{'it': lambda: talk(V['name'], V['port'], '<x>', until='<x>')}",
        port=world.recorder.port,
        name=name,
    )
    return bool(found["it"]["got"] == "<x>")


def _refusal(daemon: WorldDaemon, status: int, *request: Any) -> dict[str, Any]:
    found, body = daemon.request(*request)
    assert (found, "detail" in body) == (status, True), body
    assert isinstance(body, dict)
    return body


def test_what_is_shown(mine: Box, world: World) -> None:
    shown = mine.network()
    assert (shown["phase"], set(shown["phases"])) == ("setup", {"setup", "agent", "default"})
    [rule] = shown["phases"]["setup"]["rules"]
    assert (rule["host"], rule["source"]) == ("good.test", "the rules")
    assert "rules" not in shown["phases"]["agent"] and shown["secrets"] == []
    assert _said(mine, world) and not _said(mine, world, "evil.test")
    shown = mine.network()
    assert shown["gateway"] == "running"
    traffic = shown["traffic"]
    assert traffic["connections"] >= 2 and traffic["denied"] >= 1
    assert traffic["up"] >= 3 and traffic["down"] >= 3 and traffic["names"] >= 2


def test_every_decision_is_an_event_with_its_rule(mine: Box, world: World) -> None:
    assert _said(mine, world) and not _said(mine, world, "evil.test")
    allowed = mine.event("network.allow", host="good.test", port=world.recorder.port)
    assert (allowed["rule"], allowed["source"]) == (1, "the rules")
    denied = mine.event("network.deny", host="evil.test", port=world.recorder.port)
    assert "no rule" in denied["reason"] and "rule" not in denied


def test_what_the_kernel_refuses_is_counted(mine: Box) -> None:
    before = mine.network()["traffic"]["refused"]
    tried = mine.probe("answer(udp=send_udp('198.51.100.1', 123), quic=send_udp('9.9.9.9', 443))")
    assert set(tried.values()) <= {"EPERM", "ECONNREFUSED", "EACCES"}, "at once, not by waiting"
    after = mine.network()["traffic"]["refused"]
    assert after["udp"] == before["udp"] + 2
    assert after["icmp"] == before["icmp"]
    assert "refused by the kernel: " in mine.daemon.cli("network", "show", "mine").stdout


@pytest.mark.parametrize(
    ("method", "path", "body", "word"),
    [
        ("POST", "/phase", {"phase": "later"}, "agent, default, setup"),
        ("POST", "/phase", {"phase": ""}, "phase"),
        ("POST", "/phase", {}, "phase"),
        ("POST", "/rules", {"target": "https://good.test/"}, "URL"),
        ("POST", "/rules", {"target": "good.test:70000"}, "port"),
        ("POST", "/rules", {"target": "localhost"}, "port"),
        ("POST", "/rules", {"target": "10.0.0.1/8"}, "10.0.0.0/8"),
        ("POST", "/rules", {}, "target"),
        ("POST", "/rules", {"target": "a.test", "rule": {"host": "a.test"}}, "not both"),
        ("POST", "/rules", {"target": "a.test", "phase": "../x"}, "phase"),
        ("POST", "/rules", {"target": "a.test", "phase": ""}, "phase"),
        ("POST", "/rules", {"rule": {"host": "bad_..name"}}, "name"),
        ("POST", "/rules", {"rule": {"host": "a.test", "methods": ["G ET"]}}, "method"),
        ("POST", "/rules", {"rule": {"host": "a.test", "paths": ["/../x"]}}, "path"),
        ("POST", "/rules", {"rule": {"host": "a.test", "ports": [0]}}, "1"),
        ("POST", "/rules", {"action": "perhaps", "target": "a.test"}, "perhaps"),
        ("PUT", "", {"presets": ["internet"]}, "preset"),
        ("PUT", "", {"presets": ["none", "github"]}, "alone"),
        ("PUT", "", {"phases": {"UP": {}}}, "phase"),
        ("PUT", "", {"phase": "later"}, "later"),
        ("PUT", "", {"caps": {"connections": 0}}, "1"),
        ("PUT", "", {"allowed": []}, "allowed"),
    ],
)
def test_what_is_no_network_changes_nothing(
    mine: Box, method: str, path: str, body: Any, word: str
) -> None:
    before = {**mine.network(), "traffic": None}
    said = _refusal(mine.daemon, 400, method, f"/v1/sandboxes/mine/network{path}", body)
    assert said["code"] == "invalid_input" and word in f"{said['detail']} {said.get('hint')}"
    assert {**mine.network(), "traffic": None} == before


def test_rules_in_full_are_put_in_one_form(daemon: WorldDaemon) -> None:
    box = daemon.create(network={"presets": []})
    path = f"/v1/sandboxes/{box}/network/rules"
    rule = {"host": "ÄPI.test", "ports": [443, 80, 443], "methods": ["get"], "paths": ["/a%41/*"]}
    status, shown = daemon.request("POST", path, {"rule": rule})
    assert status == 200, shown
    [kept] = shown["phases"]["default"]["rules"]
    assert kept == {
        "host": "xn--pi-uia.test", "ports": [80, 443], "methods": ["GET"], "paths": ["/aA/*"],
        "source": "network allow",
    }  # fmt: skip
    # The same again does not add up, and the other word takes its place.
    daemon.request("POST", path, {"rule": rule})
    _, shown = daemon.request("POST", path, {"rule": rule, "action": "deny"})
    assert [rule["action"] for rule in shown["phases"]["default"]["rules"]] == ["deny"]


@pytest.mark.parametrize(
    ("allow", "rule"),
    [
        ("10.1.2.3", {"host": "10.1.2.3"}),
        ("localhost:5432", {"host": "localhost", "ports": [5432]}),
        ("host.agentkernel.internal:80", {"host": "host.agentkernel.internal", "ports": [80]}),
        ("127.0.0.1:80", {"host": "127.0.0.1", "ports": [80]}),
        ("169.254.169.254", {"host": "169.254.169.254"}),
        ("[fd00::1]:443", {"host": "fd00::/8", "ports": [443]}),
        ("private:intra.test:443", {"host": "intra.test", "ports": [443], "private": True}),
    ],
)
def test_what_is_not_public_is_for_those_who_may_see_the_host(
    daemon: WorldDaemon, allow: str, rule: dict[str, Any]
) -> None:
    """Somebody who acts on another's word: neither in words nor in full, nor in another phase."""
    status, made = daemon.request("POST", "/v1/sandboxes", {"network": {"presets": []}}, CLAUDE)
    assert status == 201, made
    path = f"/v1/sandboxes/{made['id']}/network"
    tries: list[tuple[str, str, Any]] = [
        ("POST", f"{path}/rules", {"target": allow}),
        ("POST", f"{path}/rules", {"rule": rule}),
        ("PUT", path, {"allow": [allow]}),
        ("PUT", path, {"rules": [rule]}),
        ("PUT", path, {"phases": {"later": {"rules": [rule]}}}),
        ("POST", "/v1/sandboxes", {"network": {"allow": [allow]}}),
        ("POST", "/v1/sandboxes", {"network": {"rules": [rule]}}),
    ]
    for method, where, body in tries:
        said = _refusal(daemon, 403, method, where, body, CLAUDE)
        assert (said["code"], said["details"]["needed"]) == ("policy_denied", "host-paths")
    # What is denied is nobody's to refuse, and the user may do all of it.
    denied = {"action": "deny", "target": rule["host"]}
    assert daemon.request("POST", f"{path}/rules", denied, CLAUDE)[0] == 200
    for method, where, body in tries[:5]:
        status, said = daemon.request(method, where, body)
        assert status == 200, said
    daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PUT", "", {"presets": ["none"]}),
        ("POST", "/rules", {"target": "evil.test"}),
        ("POST", "/phase", {"phase": "agent"}),
        ("GET", "/why?host=good.test", None),
    ],
)
def test_anothers_network_does_not_exist(mine: Box, method: str, path: str, body: Any) -> None:
    before = {**mine.network(), "traffic": None}
    for who in (mine.id, "mine"):
        where = f"/v1/sandboxes/{who}/network{path}"
        assert _refusal(mine.daemon, 404, method, where, body, CLAUDE)["code"] == "not_found"
    # Events outlive their sandbox: of an id there may be some. Of this one there are none to see.
    log = f"/v1/sandboxes/{mine.id}/network/log"
    assert mine.daemon.request("GET", log, headers=CLAUDE) == (200, b": ready\n\n")
    assert _refusal(mine.daemon, 404, "GET", "/v1/sandboxes/mine/network/log", None, CLAUDE)
    assert {**mine.network(), "traffic": None} == before


def test_why(mine: Box, world: World) -> None:
    def why(query: str) -> dict[str, Any]:
        status, body = mine.daemon.request("GET", f"/v1/sandboxes/mine/network/why?{query}")
        assert status == 200, body
        assert isinstance(body, dict)
        return body

    allowed = why(f"host=GOOD.test.&port={world.recorder.port}")
    assert (allowed["host"], allowed["outcome"], allowed["rule"]) == ("good.test", "allow", 1)
    denied = why("host=good.test")
    assert (denied["outcome"], denied["port"]) == ("deny", 443)
    assert denied["change"] == ["agentkernel network allow mine good.test:443"]
    assert not denied["rules"][0]["port"], "there is a rule for the host, not for the port"
    assert why("host=10.0.0.1&port=80&method=GET&path=/x")["outcome"] == "deny"
    for bad in ("host=a..b", "host=", "port=1", "host=a.test&port=0", "host=a.test&port=x"):
        where = f"/v1/sandboxes/mine/network/why?{bad}"
        assert _refusal(mine.daemon, 400, "GET", where)["code"] == "invalid_input"


def test_the_log_is_followed(mine: Box, world: World) -> None:
    """From where one was, and on while it is open."""
    assert _said(mine, world)
    mine.event("network.allow", host="good.test")
    connection = mine.daemon.connection()
    connection.request("GET", f"/v1/sandboxes/{mine.id}/network/log?follow=1")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    seen: list[dict[str, Any]] = []

    def told(**wanted: Any) -> dict[str, Any]:
        while True:
            line = answer.readline()
            assert line, "it ended"
            if line.startswith(b"data: "):
                event: dict[str, Any] = json.loads(line[6:])
                seen.append(event)
                if all(event["body"].get(key) == value for key, value in wanted.items()):
                    return event

    try:
        told(host="good.test")
        mine.try_all("{'it': lambda: talk('notgood.test', 7, '<x>')}")
        last = told(host="notgood.test", via="tcp")
        assert last["kind"] == "network.deny" and last["sandbox_id"] == mine.id
        assert {event["kind"] for event in seen} <= {
            "network.allow", "network.deny", "network.changed",
        }  # fmt: skip
    finally:
        connection.close()
    _, text = mine.daemon.request("GET", f"/v1/sandboxes/mine/network/log?after={last['seq'] - 1}")
    assert [json.loads(line[6:])["seq"] for line in text.splitlines() if line[:5] == b"data:"][
        0
    ] == last["seq"]


def test_an_open_connection_is_closed_at_the_switch(mine: Box, world: World) -> None:
    mine.shell("rm -f /tmp/held")
    result: dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: result.update(mine.probe(HOLD, port=world.recorder.port, limit=30))
    )
    thread.start()
    mine.shell("while ! [ -e /tmp/held ]; do sleep 0.02; done")
    assert thread.is_alive(), "control: it is open"
    try:
        assert mine.change("POST", "/phase", phase="agent")["phase"] == "agent"
        thread.join(30)
        assert (result["first"], result["got"]) == ("<first>", "")
        assert result["end"] in ("eof", "ECONNRESET")
        assert not _said(mine, world)
        changed = mine.event("network.changed", what="phase")
        assert changed["phase"] == "agent"
        page = mine.shell("cat /etc/agentkernel/network.md")["stdout"]
        assert 'phase "agent"' in page and "Nothing." in page, "and it is told so"
    finally:
        mine.change("POST", "/phase", phase="setup")
    assert _said(mine, world)


def test_this_machine_by_its_name(daemon: WorldDaemon, world: World) -> None:
    """Only by a rule that names it with a port: every name and every address is not that."""
    name = "host.agentkernel.internal"
    wide = [{"host": host, "ports": [world.recorder.port]} for host in ("*", "*.internal")]
    box = daemon.box(network={"presets": ["public"], "rules": wide})
    try:
        assert not _said(box, world, name)
        assert "no rule" in box.event("network.deny", host=name, via="tcp")["reason"]
        box.change("POST", "/rules", target=f"{name}:{world.plain.port}")
        assert not _said(box, world, name), "another port"
        box.change("POST", "/rules", target=f"{name}:{world.recorder.port}")
        assert _said(box, world, name)
        assert box.event("network.allow", host=name, via="tcp")["address"] == "127.0.0.1"
    finally:
        box.remove()


@pytest.mark.parametrize("network", [{"presets": ["none"]}, {"presets": []}], ids=["none", "empty"])
def test_a_network_that_comes_later(
    daemon: WorldDaemon, world: World, network: dict[str, Any]
) -> None:
    box = daemon.box(network=network, ephemeral=False)
    try:
        shown = box.network()
        assert (shown["gateway"], shown["phases"], shown.get("traffic")) == ("none", {}, None)
        assert box.probe("answer(it=lookup('good.test'))")["it"].startswith("name: ")
        assert _refusal(
            daemon, 400, "POST", f"/v1/sandboxes/{box.id}/network/phase", {"phase": "agent"}
        )["hint"]
        shown = box.change("POST", "/rules", target=f"good.test:{world.recorder.port}")
        assert len(shown["phases"]["default"]["rules"]) == 1
        assert _said(box, world) and not _said(box, world, "evil.test")
        assert "good.test" in box.shell("cat /etc/agentkernel/network.md")["stdout"]
        _, info = daemon.request("GET", f"/v1/sandboxes/{box.id}")
        [line] = [line for line in info["effective"] if line["what"] == "network"]
        assert line["value"].startswith("through the gateway")
        # Now it has it for good, with variables and trust stores.
        for verb in ("stop", "start"):
            assert daemon.request("POST", f"/v1/sandboxes/{box.id}/{verb}", {})[0] == 200
        assert _said(box, world) and not _said(box, world, "evil.test")
        assert box.shell('test -n "$HTTPS_PROXY" && test -s $SSL_CERT_FILE')["exit_code"] == 0
    finally:
        box.remove()


def test_a_stopped_sandbox_is_changed_for_its_next_start(daemon: WorldDaemon, world: World) -> None:
    box = daemon.box(profile="restrictive", ephemeral=False)
    try:
        assert daemon.request("POST", f"/v1/sandboxes/{box.id}/stop", {})[0] == 200
        box.change("POST", "/rules", target=f"good.test:{world.recorder.port}")
        assert box.network()["gateway"] in ("running", "waiting")
        assert daemon.request("POST", f"/v1/sandboxes/{box.id}/start", {})[0] == 200
        assert _said(box, world)
    finally:
        box.remove()


def test_the_user_may_name_less_than_the_profile_and_the_floor_is_shown(
    daemon: WorldDaemon,
) -> None:
    id = daemon.create(profile="permissive", network={"presets": ["pip"]})
    _, shown = daemon.request("GET", f"/v1/sandboxes/{id}/network")
    sources = [rule["source"] for rule in shown["phases"]["default"]["rules"]]
    assert sources and all(source.startswith("registries: pip") for source in sources)
    assert shown["floor"] is None
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


def test_profiles_have_the_network_that_is_said(daemon: WorldDaemon) -> None:
    def rules(profile: str) -> list[dict[str, Any]]:
        id = daemon.create(profile=profile)
        _, shown = daemon.request("GET", f"/v1/sandboxes/{id}/network")
        daemon.request("DELETE", f"/v1/sandboxes/{id}")
        return [rule for policy in shown["phases"].values() for rule in policy.get("rules", ())]

    assert rules("restrictive") == []
    moderate = rules("moderate")
    assert moderate and all(set(rule["methods"]) == {"GET", "HEAD"} for rule in moderate)
    assert {"*", "0.0.0.0/0", "::/0"} <= {rule["host"] for rule in rules("permissive")}


def test_changes_are_kept_whatever_ends(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rules, a replaced network and a phase: over a daemon's end and its death."""
    daemon = WorldDaemon(tmp_path_factory.mktemp("kept"), world)
    daemon.start()
    try:
        box = daemon.box(network={"presets": ["none"]}, ephemeral=False)
        box.change("POST", "/rules", target=f"good.test:{world.recorder.port}")
        assert _said(box, world)
        before = {**box.network(), "traffic": None, "gateway": None}
        assert daemon.terminate() == 0
        daemon.start()
        assert {**box.network(), "traffic": None, "gateway": None} == before
        assert _said(box, world)
        box.change("PUT", "", phases={"agent": {"allow": [f"twin.test:{world.recorder.port}"]}})
        box.change("POST", "/phase", phase="agent")
        daemon.kill()
        daemon.start()
        assert box.network()["phase"] == "agent"
        assert _said(box, world, "twin.test") and not _said(box, world)
        box.remove()
        eventually(lambda: not list((daemon.state_dir / "network" / "names").iterdir()))
    finally:
        if not daemon.alive():
            daemon.start()
        daemon.remove_all()
        assert daemon.terminate() == 0
        eventually(lambda: gateway_pid(daemon.state_dir) is None, 30)
        assert "Traceback" not in daemon.log()
        daemon.close()


def test_decisions_are_in_the_metrics(mine: Box, world: World) -> None:
    def counted() -> dict[str, float]:
        text = mine.daemon.request("GET", "/metrics")[1].decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    allowed = 'agentkernel_network_decisions_total{kind="allow"}'
    before = counted().get(allowed, 0.0)
    assert _said(mine, world)
    eventually(lambda: counted().get(allowed, 0.0) > before)
    assert counted()["agentkernel_gateway_running"] == 1
    assert counted()["agentkernel_network_sandboxes"] >= 1
