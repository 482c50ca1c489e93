"""Calls made from the API's own description: valid and invalid ones, against a real daemon.

Whatever comes is an answer that the description allows: never a 5xx, never a body it does not know,
and what the description forbids is refused. `AGENTKERNEL_SCHEMA_EXAMPLES=200` tries more of each.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from agentkernel.server import openapi

from .daemon_process import Daemon, UnixConnection

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: bootstrap with --group full"
)

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from requests import PreparedRequest, Session  # noqa: E402
from requests import Response as Answer  # noqa: E402
from requests.adapters import HTTPAdapter  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from urllib3 import HTTPResponse  # noqa: E402

EXAMPLES = int(os.environ.get("AGENTKERNEL_SCHEMA_EXAMPLES", "8"))
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
)
# Not called, each for its reason. Everything else is.
LEFT_OUT = {
    "shutDown": "it ends the daemon; test_daemon.py calls it",
    "installAgent": "it asks registries; tests/integration has what installs one",
    "pullImage": "it asks registries; tests/integration/test_image_pulls.py calls it",
}
# So that a command which happens to be one ends soon, a stream with what is there, and no name
# that happens to be an image's is asked for anywhere.
LIMITS: dict[str, dict[str, Any]] = {
    "execInSandbox": {"timeout_seconds": 1},
    "run": {"timeout_seconds": 1, "pull": "never"},
    "runBatch": {"spec": {"pull": "never"}},
    "createSandbox": {"pull": "never"},
    "importImage": {"directory": "/nonexistent"},
    "startJob": {"timeout_seconds": 1},
    "startAgentSession": {"command": [], "spec": {"pull": "never"}},
}
QUERIES: dict[str, dict[str, Any]] = {
    "streamEvents": {"follow": "false"},
    "streamSandboxLogs": {"follow": "false"},
    "streamJobOutput": {"follow": "false"},
    "streamNetworkLog": {"follow": "false"},
    "streamAgentSessionEvents": {"follow": "false"},
    "watchFiles": {"path": "/gone"},
}
AGENT = "known"
# One that has to be installed from nowhere, with every kind of login.
DEFINITION = """
name = "known"
title = "Known"
version = "1"
[command]
headless = ["true", "{task}"]
[login]
command = ["true"]
hosts = ["login.example.org"]
[[login.keys]]
secret = "AGENT_KEY"
binding = "example.org"
[login.oauth]
file = "~/.known.json"
access = "access"
hosts = ["example.org"]
"""


@pytest.fixture(autouse=True)
def known_agent() -> Iterator[None]:
    place = Path(os.environ["XDG_CONFIG_HOME"], "agentkernel", "agents", f"{AGENT}.toml")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(DEFINITION)
    yield
    place.unlink()


def _archive() -> bytes:
    whole = BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return whole.getvalue()


schemathesis.openapi.media_type("application/x-tar", st.just(_archive()) | st.binary(max_size=2000))
SCHEMA = schemathesis.openapi.from_dict(openapi.document())
DECLARED = {operation.id: operation for operation in openapi.operations()}
OPERATIONS = {
    operation.definition.raw["operationId"]: operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations())
}


class OnSocket(HTTPAdapter):
    """Carries requests to the daemon's socket, a connection for each."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self._daemon = daemon

    def send(self, request: PreparedRequest, **_: Any) -> Answer:  # type: ignore[override]
        connection: UnixConnection = self._daemon.connection()
        try:
            headers = {name: _word(value) for name, value in request.headers.items()}
            for framing in ("Content-Length", "Transfer-Encoding"):
                headers.pop(framing, None)
            connection.request(
                request.method or "GET",
                request.path_url,
                body=_whole(request.body),
                headers=headers,
            )
            told = connection.getresponse()
            raw = HTTPResponse(
                BytesIO(told.read()), dict(told.getheaders()), told.status, preload_content=False
            )
            return self.build_response(request, raw)
        finally:
            connection.close()

    def close(self) -> None:
        pass


def _can_be_wrong(operation: Any) -> bool:
    """Any text is a path, an id or a header: what has nothing else has no invalid call."""
    raw = operation.definition.raw
    queries = [one for one in raw.get("parameters", ()) if one["in"] == "query"]
    return "application/json" in raw.get("requestBody", {}).get("content", ()) or any(
        one["schema"].get("type") != "string" for one in queries
    )


def _whole(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return bytes(body.read()) if hasattr(body, "read") else b"".join(body)


def _check_events(name: str, text: bytes) -> None:
    """Each event is what is said of it."""
    kind = "*"
    for line in text.splitlines():
        if line.startswith(b"event: "):
            kind = line[7:].decode()
        elif line.startswith(b"data: "):
            types = DECLARED[name].events
            msgspec.json.decode(line[6:], type=types.get(kind) or types["*"])


def _word(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


@pytest.fixture(scope="module")
def session(shared_daemon: Daemon) -> Iterator[Session]:
    with Session() as session:
        session.mount("http://", OnSocket(shared_daemon))
        yield session


def test_every_operation_is_there() -> None:
    assert len(OPERATIONS) == len(openapi.operations())
    assert LEFT_OUT.keys() | LIMITS.keys() | QUERIES.keys() <= OPERATIONS.keys()


CALLED = {name: operation for name, operation in OPERATIONS.items() if name not in LEFT_OUT}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, GenerationMode.POSITIVE) for name in CALLED),
        *((name, GenerationMode.NEGATIVE) for name in CALLED if _can_be_wrong(CALLED[name])),
    ],
)
def test_calls_of_the_description(
    name: str, mode: GenerationMode, daemon: Daemon, session: Session
) -> None:
    operation = OPERATIONS[name]
    id = daemon.create(ephemeral=True, ports=["preview:8000"])
    daemon.exec(id, "echo text > /file; mkdir /directory")
    job = daemon.request("POST", f"/v1/sandboxes/{id}/jobs", {"shell": "echo job"})[1]["id"]
    token = daemon.request("POST", "/v1/tokens", {"name": id})[1]["id"]
    daemon.request("PUT", "/v1/secrets/KNOWN", {"value": "a value of 24 letters"})
    volume = daemon.request("POST", "/v1/volumes", {"name": id})[1]["id"]
    known = {"id": id, "job": job, "token": token, "name": "KNOWN", "port": "8000"}
    known |= {"volume": volume, "template": "web", "agent": AGENT, "session": ""}
    if "{session}" in operation.path:
        words = {"agent": "words", "mode": "acp", "drive": False, "command": ["echo"]}
        began = daemon.request("POST", "/v1/agent-sessions", {**words, "sandbox": id})
        known["session"] = began[1]["id"]

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def calls(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if case.path_parameters and data.draw(st.booleans(), label="known"):
            case.path_parameters = {key: known[key] for key in case.path_parameters}
        if "path" in (case.query or {}) and data.draw(st.booleans(), label="a path"):
            case.query["path"] = "/file"
        if name in QUERIES:
            case.query = {**(case.query or {}), **QUERIES[name]}
        if isinstance(case.body, dict):
            case.body.update(LIMITS.get(name, {}))
        answer = case.call(base_url="http://localhost", session=session)
        if answer.status_code == 201 and name in ("createSandbox", "beginAgentLogin"):
            made = answer.json()["id" if name == "createSandbox" else "sandbox"]
            assert daemon.request("DELETE", f"/v1/sandboxes/{quote(made)}")[0] == 204
        if answer.status_code == 413:
            return  # more than any body may have, whatever is in it
        case.validate_response(answer, checks=CHECKS)
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            _check_events(name, answer.content)

    try:
        calls()
    finally:
        assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] in (204, 404)
        assert daemon.request("DELETE", f"/v1/tokens/{token}")[0] == 200
        for secret in daemon.request("GET", "/v1/secrets")[1]["secrets"]:
            assert daemon.request("DELETE", f"/v1/secrets/{secret['name']}")[0] == 200
        for one in daemon.request("GET", "/v1/volumes")[1]["volumes"]:
            assert daemon.request("DELETE", f"/v1/volumes/{one['id']}")[0] == 204
    left = daemon.request("GET", "/v1/sandboxes?limit=1000")[1]["sandboxes"]
    assert not left, f"{name} left sandboxes behind"
