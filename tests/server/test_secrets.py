"""Secrets over HTTP: each caller's own, and no value in any answer, file or log."""

from __future__ import annotations

import base64
import resource
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from .daemon_process import Daemon
from .network_process import NetworkDaemon

VALUE = "ghp_k3Jx9Qm/Zt7+Vb2NcR5Ld8WfY1=="
ROTATED = "ghp_Rot4tedRot4tedRot4tedRot4ted"
REFUSED = "planted in a request\nthat is refused"


def forms(value: str) -> list[bytes]:
    data = value.encode()
    found = [data, data.hex().encode(), data.hex().upper().encode(), quote(value, "").encode()]
    for shift in range(3):
        # The characters at both ends depend on what stands beside.
        found.append(base64.b64encode(bytes(shift) + data)[4:-4])
        found.append(base64.urlsafe_b64encode(bytes(shift) + data)[4:-4])
    return found


def places(directory: Path, value: str) -> list[Path]:
    """The files that have the value in any form."""
    sought = forms(value)
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
        for content in [path.read_bytes()]
        if any(form in content for form in sought)
    ]


@pytest.fixture
def secret(daemon: Daemon) -> Iterator[str]:
    status, made = daemon.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE})
    assert status == 200 and made["name"] == "TOKEN"
    yield "TOKEN"
    daemon.request("DELETE", "/v1/secrets/TOKEN")


def test_set_listed_rotated_removed(daemon: Daemon) -> None:
    assert daemon.request("GET", "/v1/secrets") == (200, {"secrets": []})
    status, made = daemon.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE})
    assert status == 200
    assert made == {
        "name": "TOKEN", "created_at": made["created_at"], "rotated_at": None, "kept": "file",
        "sandboxes": [],
    }  # fmt: skip
    body = {"value": ROTATED, "rotate": True}
    status, rotated = daemon.request("PUT", "/v1/secrets/TOKEN", body)
    assert status == 200 and rotated["rotated_at"] >= made["created_at"]
    assert daemon.request("GET", "/v1/secrets") == (200, {"secrets": [rotated]})
    assert daemon.request("DELETE", "/v1/secrets/TOKEN") == (200, rotated)
    status, body = daemon.request("DELETE", "/v1/secrets/TOKEN")
    assert (status, body["code"]) == (404, "not_found")
    status, body = daemon.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE, "rotate": True})
    assert (status, body["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/secrets/TOKEN", {"value": "short"}),
        ("/v1/secrets/TOKEN", {"value": REFUSED}),
        ("/v1/secrets/TOKEN", {"value": REFUSED.replace("\n", " ") + "\ud800"}),
        ("/v1/secrets/TOKEN", {"value": [REFUSED]}),
        ("/v1/secrets/TOKEN", {"value": VALUE, "more": 1}),
        ("/v1/secrets/TOKEN", {}),
        ("/v1/secrets/a%20b", {"value": VALUE}),
        ("/v1/secrets/" + "x" * 65, {"value": VALUE}),
    ],
)
def test_what_is_refused(daemon: Daemon, path: str, body: dict[str, object]) -> None:
    status, answer = daemon.request("PUT", path, body)
    assert (status, answer["code"]) == (400, "invalid_input")
    assert "planted" not in str(answer) and VALUE not in str(answer)
    assert daemon.request("GET", "/v1/secrets") == (200, {"secrets": []})


def test_each_caller_has_its_own(network_daemon: NetworkDaemon) -> None:
    first, second = network_daemon.caller("first"), network_daemon.caller("second")
    reader = network_daemon.caller("reader", scopes=["read", "exec"])
    assert first.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE})[0] == 200
    for other in (second, network_daemon):
        assert other.request("GET", "/v1/secrets") == (200, {"secrets": []})
        assert other.request("DELETE", "/v1/secrets/TOKEN")[0] == 404
        assert other.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE, "rotate": True})[0] == 404
    for method, path, body in (
        ("GET", "/v1/secrets", None),
        ("PUT", "/v1/secrets/TOKEN", {"value": VALUE}),
        ("DELETE", "/v1/secrets/TOKEN", None),
    ):
        assert reader.request(method, path, body)[0] == 403
    assert first.request("DELETE", "/v1/secrets/TOKEN")[0] == 200


def test_a_value_is_in_no_file(daemon: Daemon, secret: str) -> None:
    assert daemon.request("PUT", "/v1/secrets/OTHER", {"value": REFUSED})[0] == 400
    assert daemon.request("GET", "/v1/events?follow=0")[0] == 200
    for value in (VALUE, REFUSED):
        assert places(daemon.state_dir, value) == []
    assert "secret.set" in "".join(
        path.read_text() for path in (daemon.state_dir / "audit").glob("*.jsonl")
    )
    # The control: a copy in any form is found.
    for number, form in enumerate(forms(VALUE)):
        planted = daemon.state_dir / f"planted-{number}"
        planted.write_bytes(b"x" * number + form + b"y")
        assert places(daemon.state_dir, VALUE) == [planted]
        planted.unlink()


def test_nothing_of_the_process_shows_a_value(daemon: Daemon, secret: str) -> None:
    process = Path(f"/proc/{daemon.pid}")
    for name in ("cmdline", "environ"):
        assert not any(form in (process / name).read_bytes() for form in forms(VALUE))
    soft, _ = resource.prlimit(daemon.pid, resource.RLIMIT_CORE)
    assert soft <= 1, "a dump of its memory would have it"


def test_secrets_are_there_after_a_kill(own_daemon: Daemon) -> None:
    assert own_daemon.request("PUT", "/v1/secrets/TOKEN", {"value": VALUE})[0] == 200
    own_daemon.kill()
    own_daemon.start()
    _, listed = own_daemon.request("GET", "/v1/secrets")
    assert [each["name"] for each in listed["secrets"]] == ["TOKEN"]
    # Damaged: said, not written over, and the daemon goes on.
    sealed = own_daemon.state_dir / "secrets.enc"
    content = sealed.read_bytes()
    own_daemon.kill()
    sealed.write_bytes(content[:-1])
    own_daemon.start()
    for method, path, body in (
        ("GET", "/v1/secrets", None),
        ("PUT", "/v1/secrets/TOKEN", {"value": VALUE}),
    ):
        status, answer = own_daemon.request(method, path, body)
        assert (status, answer["code"]) == (500, "state_corrupt") and answer["hint"]
    assert sealed.read_bytes() == content[:-1]
    assert own_daemon.request("GET", "/v1/version")[0] == 200
