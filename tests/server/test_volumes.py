"""Volumes and the disk over HTTP: each caller's own, and bad requests that leave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .daemon_process import Daemon

CLAUDE = {"Agentkernel-Owner": "mcp:claude"}
CODEX = {"Agentkernel-Owner": "mcp:codex"}


@pytest.fixture
def claudes(daemon: Daemon) -> Iterator[str]:
    status, made = daemon.request("POST", "/v1/volumes", {"name": "mine"}, CLAUDE)
    assert status == 201, made
    assert made["state"] == "ready" and made["sandboxes"] == [] and made["used_bytes"] is not None
    yield made["id"]
    assert daemon.request("DELETE", f"/v1/volumes/{made['id']}", headers=CLAUDE)[0] == 204


def names(daemon: Daemon, headers: dict[str, str], query: str = "") -> list[str]:
    status, body = daemon.request("GET", f"/v1/volumes{query}", headers=headers)
    assert status == 200, body
    return [volume["name"] for volume in body["volumes"]]


def test_each_owner_has_its_own(daemon: Daemon, claudes: str) -> None:
    assert names(daemon, CLAUDE) == ["mine"] and names(daemon, CODEX) == names(daemon, {}) == []
    assert names(daemon, {}, "?owner=*&usage=1") == ["mine"], "the user sees everybody's"
    status, refused = daemon.request("GET", "/v1/volumes?owner=*", headers=CODEX)
    assert status == 403 and refused["code"] == "policy_denied"
    for name in ("mine", claudes):
        for method, path in (("GET", ""), ("DELETE", "?force=1"), ("GET", "/archive")):
            status, refused = daemon.request(method, f"/v1/volumes/{name}{path}", headers=CODEX)
            assert status == 404 and refused["code"] == "not_found"
    # A sandbox of another gets another volume of that name.
    spec = {"volumes": ["mine:/v"], "ephemeral": True}
    status, box = daemon.request("POST", "/v1/sandboxes", spec, CODEX)
    assert status == 201 and "is new" in box["notices"][-1]
    status, found = daemon.request("GET", "/v1/volumes/mine", headers=CODEX)
    assert found["id"] != claudes and [user["id"] for user in found["sandboxes"]] == [box["id"]]
    status, refused = daemon.request("DELETE", "/v1/volumes/mine?force=1", headers=CODEX)
    assert status == 409 and refused["details"]["holder"] == box["id"]
    assert daemon.request("DELETE", f"/v1/sandboxes/{box['id']}", headers=CODEX)[0] == 204
    assert daemon.request("DELETE", "/v1/volumes/mine", headers=CODEX)[0] == 204


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/volumes", {"name": "A"}, 400),
        ("POST", "/v1/volumes", {"name": "../x"}, 400),
        ("POST", "/v1/volumes", {"name": "a", "quota_bytes": 5}, 400),
        ("POST", "/v1/volumes", {"name": "a", "quota_bytes": -5}, 400),
        ("POST", "/v1/volumes", {"name": "a", "quota_bytes": 1 << 61}, 400),
        ("POST", "/v1/volumes", {"name": "a", "path": "/etc"}, 400),
        ("POST", "/v1/volumes", {}, 400),
        ("GET", "/v1/volumes/%2e%2e%2fx", None, 404),
        ("GET", "/v1/volumes/none", None, 404),
        ("DELETE", "/v1/volumes/none", None, 404),
        ("GET", "/v1/volumes/none/archive", None, 404),
        ("PUT", "/v1/volumes/new/archive", b"no archive at all", 400),
        ("PUT", "/v1/volumes/New/archive", b"", 400),
        ("PUT", "/v1/volumes/new/archive?quota_bytes=7", b"", 400),
        ("POST", "/v1/system/prune", {"everything": True}, 400),
        ("POST", "/v1/sandboxes", {"volumes": ["a:/proc"]}, 400),
        ("POST", "/v1/sandboxes", {"volumes": ["/etc:/a"]}, 400),
        ("POST", "/v1/sandboxes", {"volumes": ["a:/a"] * 65}, 400),
    ],
)
def test_what_is_refused(daemon: Daemon, method: str, path: str, body: Any, status: int) -> None:
    answered, refused = daemon.request(method, path, body)
    assert answered == status, refused
    assert refused["code"] in ("invalid_input", "not_found")
    assert names(daemon, {}) == []


def test_what_the_disk_has(daemon: Daemon, claudes: str) -> None:
    status, usage = daemon.request("GET", "/v1/system/df")
    assert status == 200 and usage["free_bytes"] > 0
    (volumes,) = [part for part in usage["parts"] if part["kind"] == "volumes"]
    assert volumes["count"] == 1
    # Another's loose volume is not the caller's to prune.
    body = {"volumes": True, "sandboxes": True, "dry_run": True}
    for headers, wanted in ((CODEX, []), (CLAUDE, ["mine"])):
        status, planned = daemon.request("POST", "/v1/system/prune", body, headers)
        found = [item["name"] for item in planned["items"] if item["kind"] == "volumes"]
        assert status == 200 and found == wanted
    assert names(daemon, CLAUDE) == ["mine"]
