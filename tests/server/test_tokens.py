"""Tokens: what each lets its holder do, whose sandboxes there are for it, and how it ends."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .daemon_process import eventually
from .network_process import Caller, NetworkDaemon

FORM = re.compile(r"ak_[a-z0-9]{20}_[0-9a-f]{64}")


def audit_lines(daemon: NetworkDaemon) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((daemon.state_dir / "audit").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_a_token_is_shown_once_and_kept_as_a_hash(network_daemon: NetworkDaemon) -> None:
    status, made = network_daemon.request("POST", "/v1/tokens", {"name": "once"})
    assert status == 201
    assert FORM.fullmatch(made["token"])
    secret = made["token"].rpartition("_")[2]
    assert (made["owner"], made["scopes"]) == ("token:once", ["read", "exec", "manage"])
    _, listed = network_daemon.request("GET", "/v1/tokens")
    assert "token" not in listed["tokens"][-1] and "sha256" not in listed["tokens"][-1]
    with closing(sqlite3.connect(network_daemon.state_dir / "state.db")) as database:
        (kept,) = database.execute("SELECT sha256 FROM tokens WHERE id = ?", (made["id"],))
    assert len(kept[0]) == 64
    assert Caller(network_daemon, made["token"]).request("GET", "/v1/version")[0] == 200
    for path in network_daemon.state_dir.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_what_is_done_to_tokens_is_in_the_audit_log(network_daemon: NetworkDaemon) -> None:
    body = {"name": "seen", "scopes": ["read"], "expires_seconds": 60, "owner": "token:else"}
    _, made = network_daemon.request("POST", "/v1/tokens", body)
    network_daemon.request("DELETE", f"/v1/tokens/{made['id']}")
    lines = audit_lines(network_daemon)
    created = [line for line in lines if line["action"] == "token.create"][-2:]
    assert created[0]["args"] == {
        "name": "seen", "scopes": "read", "expires_seconds": 60, "acts_as": "token:else",
    }  # fmt: skip
    assert created[0]["actor"]["owner"] == "local"
    assert created[1]["details"] == {"token": made["id"]}
    revoked = [line for line in lines if line["action"] == "token.revoke"]
    assert revoked[-1]["result"] == "ok" and revoked[-2]["args"] == {"token": made["id"]}


@pytest.mark.parametrize(
    ("scope", "works", "refused"),
    [
        ("read", ("GET", "/v1/sandboxes", None), ("POST", "/v1/run", {"argv": ["true"]})),
        ("exec", ("POST", "/v1/run", {"argv": ["true"]}), ("POST", "/v1/sandboxes", {})),
        ("manage", ("POST", "/v1/sandboxes", {"ephemeral": True}), ("GET", "/v1/sandboxes", None)),
        ("admin", ("GET", "/v1/tokens", None), ("GET", "/v1/sandboxes", None)),
    ],
)
def test_a_scope_allows_what_it_says_and_nothing_else(
    network_daemon: NetworkDaemon, scope: str, works: tuple[str, str, object], refused: object
) -> None:
    caller = network_daemon.caller(f"only-{scope}", scopes=[scope])
    assert caller.request(*works)[0] in (200, 201)
    assert isinstance(refused, tuple)
    status, body = caller.request(*refused)
    assert (status, body["code"]) == (403, "policy_denied")
    network_daemon.remove_all()


def test_directories_of_the_host_need_their_scope(network_daemon: NetworkDaemon) -> None:
    wanted = {"image": "/etc", "argv": ["true"]}
    status, refused = network_daemon.caller("plain").request("POST", "/v1/run", wanted)
    assert (status, refused["details"]) == (403, {"needed": "host-paths"})
    allowed = network_daemon.caller("wide", scopes=["exec", "host-paths"])
    status, body = allowed.request("POST", "/v1/run", wanted)
    assert body.get("details") != {"needed": "host-paths"}  # /etc is no root, which is another no
    assert status != 403


def test_workspaces_need_the_scope_of_directories(
    network_daemon: NetworkDaemon, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("seen\n")
    plain = network_daemon.caller("no-workspace")
    allowed = network_daemon.caller("workspace", scopes=["exec", "host-paths"])
    for mode in ("cow", "ro", "rw"):
        wanted = {"workspace": f"{tmp_path}:{mode}", "argv": ["cat", "file"]}
        status, refused = plain.request("POST", "/v1/run", wanted)
        assert (status, refused["details"]) == (403, {"needed": "host-paths"}), mode
        status, body = allowed.request("POST", "/v1/run", wanted)
        assert (status, body["stdout"]) == (200, "seen\n"), mode
    # Neither by way of a branch.
    wanted = {"workspace": f"{tmp_path}:cow", "workspace_branch": "main", "argv": ["true"]}
    status, refused = plain.request("POST", "/v1/run", wanted)
    assert (status, refused["details"]) == (403, {"needed": "host-paths"})
    status, refused = plain.request("POST", "/v1/run", {"workspace_branch": "x", "argv": ["true"]})
    assert refused["code"] == "invalid_input", refused


def test_servers_of_this_machine_need_the_scope_of_directories(
    network_daemon: NetworkDaemon,
) -> None:
    """An agent's MCP server is reached by a rule, which the caller has to be allowed to make."""
    plain = network_daemon.caller("no-server")
    allowed = network_daemon.caller("server", scopes=["exec", "manage", "host-paths"])
    for url in ("http://127.0.0.1:3210/mcp", "http://localhost:1/", "http://10.0.0.8:80/x"):
        wanted = {"agent": "no-such", "mcp": [{"name": "it", "url": url}]}
        status, refused = plain.request("POST", "/v1/agent-sessions", wanted)
        assert (status, refused["details"]) == (403, {"needed": "host-paths"}), url
        assert allowed.request("POST", "/v1/agent-sessions", wanted)[0] == 404, url
    public = {"agent": "no-such", "mcp": [{"name": "it", "url": "https://mcp.example.org/"}]}
    assert plain.request("POST", "/v1/agent-sessions", public)[0] == 404


def test_nobody_gives_away_what_they_have_not(network_daemon: NetworkDaemon) -> None:
    admin = network_daemon.caller("small-admin", scopes=["read", "admin"])
    status, refused = admin.request("POST", "/v1/tokens", {"name": "x", "scopes": ["host-paths"]})
    assert (status, refused["details"]) == (403, {"needed": "host-paths"})
    assert admin.request("POST", "/v1/tokens", {"name": "y", "scopes": ["read"]})[0] == 201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "Upper"},
        {"name": "x" * 64},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "a", "expires_seconds": 0},
        {"name": "a", "expires_seconds": -1},
        {"name": "a", "owner": "Upper"},
        {"name": "a", "owner": "a b"},
        {"name": "a", "secret": "mine"},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(
    network_daemon: NetworkDaemon, body: dict[str, object]
) -> None:
    status, refused = network_daemon.request("POST", "/v1/tokens", body)
    assert (status, refused["code"]) == (400, "invalid_input")


def test_two_valid_tokens_have_two_names(network_daemon: NetworkDaemon) -> None:
    network_daemon.token("twice")
    status, refused = network_daemon.request("POST", "/v1/tokens", {"name": "twice"})
    assert (status, refused["code"]) == (409, "conflict")
    assert network_daemon.request("DELETE", "/v1/tokens/twice")[0] == 200
    assert network_daemon.request("POST", "/v1/tokens", {"name": "twice"})[0] == 201


def test_an_owner_is_shared_only_on_purpose(network_daemon: NetworkDaemon) -> None:
    first = network_daemon.caller("first")
    other = network_daemon.caller("other")
    second = network_daemon.caller("second", owner="token:first")
    local = network_daemon.caller("me", owner="local")
    status, made = first.request("POST", "/v1/sandboxes", {"name": "mine", "ephemeral": True})
    assert status == 201 and made["owner"] == "token:first"
    path = f"/v1/sandboxes/{made['id']}"
    assert [c.request("GET", path)[0] for c in (first, second, other, local)] == [
        200, 200, 404, 404,
    ]  # fmt: skip
    assert other.request("GET", "/v1/sandboxes/mine")[0] == 404
    for method, below, body in (
        ("POST", "/exec", {"argv": ["true"]}),
        ("POST", "/stop", {}),
        ("DELETE", "", None),
        ("GET", "/files?path=/etc/passwd", None),
        ("POST", "/jobs", {"argv": ["true"]}),
    ):
        assert other.request(method, path + below, body)[0] == 404, below
    assert first.request("POST", f"{path}/exec", {"argv": ["true"]})[0] == 200
    assert first.request("DELETE", path)[0] == 204


def test_who_may_do_everything_finds_everybodys_by_id(network_daemon: NetworkDaemon) -> None:
    owner = network_daemon.caller("owner")
    admin = network_daemon.caller("boss", scopes=["read", "exec", "manage", "admin"])
    _, made = owner.request("POST", "/v1/sandboxes", {"name": "box", "ephemeral": True})
    _, mine = network_daemon.request("POST", "/v1/sandboxes", {"name": "box", "ephemeral": True})
    path = f"/v1/sandboxes/{made['id']}"
    for look in (network_daemon.request, admin.request):
        assert look("GET", path)[1]["owner"] == "token:owner"
        _, listed = look("GET", "/v1/sandboxes?owner=token:owner")
        assert [entry["id"] for entry in listed["sandboxes"]] == [made["id"]]
        _, listed = look("GET", "/v1/sandboxes?owner=*")
        assert {made["id"], mine["id"]} <= {entry["id"] for entry in listed["sandboxes"]}
    # A name is one's own; that of another is not found by it.
    assert network_daemon.request("GET", "/v1/sandboxes/box")[1]["id"] == mine["id"]
    assert admin.request("GET", "/v1/sandboxes/box")[0] == 404
    assert admin.request("POST", f"{path}/exec", {"argv": ["true"]})[0] == 200
    for wanted in ("*", "local"):
        status, refused = owner.request("GET", f"/v1/sandboxes?owner={wanted}")
        assert (status, refused["details"]) == (403, {"needed": "admin"})
    assert owner.request("GET", "/v1/sandboxes?owner=token:owner")[0] == 200
    assert network_daemon.request("DELETE", path)[0] == 204
    assert network_daemon.request("DELETE", f"/v1/sandboxes/{mine['id']}")[0] == 204


def test_what_is_revoked_is_refused_at_once_and_for_ever(network_daemon: NetworkDaemon) -> None:
    caller = network_daemon.caller("gone")
    assert caller.request("GET", "/v1/version")[0] == 200
    assert network_daemon.request("DELETE", "/v1/tokens/gone")[1]["revoked_at"] is not None
    status, refused = caller.request("GET", "/v1/version")
    assert (status, refused["code"]) == (401, "unauthenticated")
    assert "revoked" in refused["detail"]


def test_what_has_expired_is_refused(network_daemon: NetworkDaemon) -> None:
    caller = network_daemon.caller("short", expires_seconds=0.5)

    def refused() -> bool:
        status, body = caller.request("GET", "/v1/version")
        return status == 401 and "expired" in body["detail"]

    eventually(refused)


def test_revoking_ends_what_a_token_holds_open(network_daemon: NetworkDaemon) -> None:
    caller = network_daemon.caller("open")
    kept = network_daemon.caller("stays")
    _, made = caller.request("POST", "/v1/sandboxes", {"ephemeral": True})
    path = f"/v1/sandboxes/{made['id']}/exec/stream"
    stream = caller.stream(path, {"argv": ["sleep", "60"]})
    stream.event("started")
    events = caller.connection()
    events.request("GET", "/v1/events", headers=caller.headers())
    answer = events.getresponse()
    assert answer.readline() == b": ready\n"
    others = kept.connection()
    others.request("GET", "/v1/events", headers=kept.headers())
    other = others.getresponse()
    assert other.readline() == b": ready\n"

    network_daemon.request("DELETE", "/v1/tokens/open")
    ended = stream.event("error")
    assert ended["code"] == "unauthenticated"
    stream.close()
    told = answer.read()
    assert b"event: error" in told and b'"unauthenticated"' in told
    # Another token's streams go on: the event of this removal comes.
    network_daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")
    _, mine = kept.request("POST", "/v1/sandboxes", {"ephemeral": True})
    while b"sandbox.created" not in (line := other.readline()):
        assert line, "the stream of another token ended"
    kept.request("DELETE", f"/v1/sandboxes/{mine['id']}")
    for connection in (events, others):
        connection.close()


def test_revoking_ends_an_upload(network_daemon: NetworkDaemon) -> None:
    caller = network_daemon.caller("sender")
    _, made = caller.request("POST", "/v1/sandboxes", {"ephemeral": True})
    with caller.raw() as connection:
        head = (
            f"PUT /v1/sandboxes/{made['id']}/files?path=/tmp/x HTTP/1.1\r\nHost: {caller.host}\r\n"
            f"Authorization: Bearer {caller.token}\r\nContent-Length: 1000000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x" * 1000)
        eventually(lambda: any(line["action"] == "file.write" and line.get("sandbox") == made["id"]
                               for line in audit_lines(network_daemon)))  # fmt: skip
        network_daemon.request("DELETE", "/v1/tokens/sender")
        told = b""
        while data := connection.recv(4096):
            told += data
    assert b" 401 " in told.split(b"\r\n")[0] and b"was revoked" in told
    _, listed = network_daemon.request("GET", f"/v1/sandboxes/{made['id']}/list?path=/tmp")
    assert listed["entries"] == [], "part of a file is no file"
    network_daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")


def test_an_expiring_token_ends_what_it_holds_open(network_daemon: NetworkDaemon) -> None:
    caller = network_daemon.caller("brief", expires_seconds=1.5)
    events = caller.connection()
    events.request("GET", "/v1/events", headers=caller.headers())
    answer = events.getresponse()
    assert answer.readline() == b": ready\n"
    assert b"the token has expired" in answer.read()
    events.close()


def test_tokens_survive_the_daemon(tmp_path: Path) -> None:
    daemon = NetworkDaemon(tmp_path)
    daemon.start()
    kept, revoked = daemon.caller("kept"), daemon.caller("revoked")
    assert kept.request("GET", "/v1/version")[0] == 200
    daemon.request("DELETE", "/v1/tokens/revoked")
    daemon.kill()
    daemon.start()
    assert kept.request("GET", "/v1/version")[0] == 200
    assert revoked.request("GET", "/v1/version")[0] == 401
    entries = {e["name"]: e for e in daemon.request("GET", "/v1/tokens")[1]["tokens"]}
    assert entries["kept"]["last_used_at"] is not None
    assert entries["revoked"]["revoked_at"] is not None
    assert daemon.terminate() == 0
    daemon.close()
