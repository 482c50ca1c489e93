"""What the API says of the machine: engines, health, and the log of actions."""

from __future__ import annotations

import json

from agentkernel.audit.entries import split_hash

from .daemon_process import Daemon
from .test_event_streams import open_stream, read_events

THEIRS = {"Agentkernel-Owner": "mcp:somebody"}


def test_engines_are_looked_for_then_tried(own_daemon: Daemon) -> None:
    status, body = own_daemon.request("GET", "/v1/backends")
    assert status == 200
    engines = {engine["name"]: engine for engine in body["backends"]}
    assert engines.keys() >= {"native", "runc", "gvisor"}
    assert engines["native"]["found"] and engines["native"]["features"]["pty"] is True
    assert all(engine["works"] is None for engine in engines.values())
    assert own_daemon.request("GET", "/v1/backends?check=1")[0] == 200
    native = own_daemon.request("GET", "/v1/backends")[1]["backends"][0]
    assert (native["name"], native["works"]) == ("native", True) and native["checked_at"] > 0
    assert own_daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []


def test_health(daemon: Daemon) -> None:
    status, body = daemon.request("GET", "/v1/doctor")
    assert status == 200 and body["fit"] is True
    findings = {finding["what"]: finding["state"] for finding in body["findings"]}
    assert findings["native backend"] == "ok" and {"kernel", "records", "leftovers"} <= set(
        findings
    )
    assert daemon.request("GET", "/v1/doctor", headers=THEIRS)[0] == 403


def test_the_log_page_by_page(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "true")
    newest = daemon.request("GET", "/v1/audit?limit=3")[1]
    assert len(newest["entries"]) == 3 and newest["next"] is None
    seen: list[int] = []
    after = 0
    while after is not None:
        page = daemon.request("GET", f"/v1/audit?after={after}&limit=50")[1]
        seen += [entry["seq"] for entry in page["entries"]]
        after = page["next"]
    assert seen == sorted(set(seen)) and newest["entries"][-1]["seq"] <= seen[-1]
    mine = daemon.request("GET", f"/v1/audit?sandbox={sandbox}&limit=1000")[1]["entries"]
    assert {entry["action"] for entry in mine} >= {"sandbox.create", "exec"}
    assert daemon.request("GET", "/v1/audit", headers=THEIRS)[0] == 403
    assert daemon.request("GET", "/v1/audit?limit=0")[0] == 400


def test_lines_are_as_they_stand(daemon: Daemon, sandbox: str) -> None:
    """So that their hashes can be checked by whoever reads them."""
    connection = daemon.connection()
    connection.request("GET", "/v1/audit?limit=20")
    text = connection.getresponse().read()
    connection.close()
    lines = text.removeprefix(b'{"entries":[').rpartition(b"],")[0].replace(b"\n", b"")
    whole = [b'{"seq":' + part.rstrip(b",") for part in lines.split(b'{"seq":')[1:]]
    assert len(whole) == 20 and all(split_hash(line) for line in whole)


def test_the_log_as_it_is_written(daemon: Daemon, sandbox: str) -> None:
    with open_stream(daemon, "GET", f"/v1/audit?sandbox={sandbox}") as answer:
        assert answer.readline() == b": ready\n"
        daemon.exec(sandbox, "exit 5")
        events = read_events(answer)
        begin, end = next(events), next(events)
    assert begin[1]["action"] == end[1]["action"] == "exec"
    assert end[1]["of"] == begin[1]["seq"] == int(begin[2] or 0)
    assert end[1]["details"]["exit_code"] == 5
    path = f"/v1/audit?sandbox={sandbox}&follow=0"
    with open_stream(daemon, "GET", path, **{"Last-Event-ID": begin[2] or ""}) as answer:
        again = list(read_events(answer))
    assert [json.dumps(body) for _, body, _ in again] == [json.dumps(end[1])]
