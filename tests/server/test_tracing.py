"""Whose request a command belongs to: told to the command, and to a collector if there is one."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .daemon_process import Daemon, eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
HEADERS = {"traceparent": PARENT}
SHOW = 'printf %s "${TRACEPARENT-none}"'


def test_a_command_is_told(daemon: Daemon, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/exec"
    assert daemon.request("POST", path, {"shell": SHOW}, HEADERS)[1]["stdout"] == PARENT
    assert daemon.request("POST", path, {"shell": SHOW})[1]["stdout"] == "none"
    _, ran = daemon.request("POST", "/v1/run", {"shell": SHOW}, HEADERS)
    assert ran["stdout"] == PARENT
    for where, first in (
        (f"{path}/stream", {"shell": SHOW}),
        ("/v1/run/stream", {"command": {"shell": SHOW}}),
    ):
        stream = daemon.stream(where, first, additional_headers=HEADERS)
        assert stream.rest()[0] == PARENT.encode()
        stream.close()
    _, job = daemon.request("POST", f"/v1/sandboxes/{sandbox}/jobs", {"shell": SHOW}, HEADERS)
    stream = daemon.stream(f"/v1/jobs/{job['id']}/attach")
    assert stream.rest()[0] == PARENT.encode()
    stream.close()


def test_what_the_caller_says_itself_holds(daemon: Daemon, sandbox: str) -> None:
    body: dict[str, Any] = {"shell": SHOW, "env": {"TRACEPARENT": "mine"}}
    path = f"/v1/sandboxes/{sandbox}/exec"
    assert daemon.request("POST", path, body, HEADERS)[1]["stdout"] == "mine"
    assert daemon.request("POST", "/v1/run", body, HEADERS)[1]["stdout"] == "mine"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-00f067aa0ba902b7-01; rm -rf /",
        "00-" + "a" * 60000,
    ],
)
def test_what_is_none_is_not_told(daemon: Daemon, sandbox: str, header: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/exec"
    headers = {"traceparent": header}
    assert daemon.request("POST", path, {"shell": SHOW}, headers)[1]["stdout"] == "none"


def test_a_later_version_may_say_more(daemon: Daemon, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/exec"
    later = f"01{PARENT[2:]}"
    headers = {"traceparent": f"{later}-what-comes-then"}
    assert daemon.request("POST", path, {"shell": SHOW}, headers)[1]["stdout"] == later


class Collector(http.server.BaseHTTPRequestHandler):
    received: list[bytes] = []

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.received = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def spans() -> list[Any]:
    messages = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="agentkernel[otel] is not installed: no spans are made",
    )
    found = []
    for data in Collector.received:
        request = messages.ExportTraceServiceRequest()
        request.ParseFromString(data)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                found += scope.spans
    return found


def test_spans_for_who_collects_them(
    tmp_path: Path, collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        reason="agentkernel[otel] is not installed: no spans are made",
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    daemon = Daemon(tmp_path)
    daemon.start()
    _, ran = daemon.request("POST", "/v1/run", {"shell": SHOW + "; : secret-word"}, HEADERS)
    daemon.request("POST", "/v1/sandboxes/nobody/exec", {"argv": ["true"]}, HEADERS)
    eventually(lambda: len(spans()) >= 5)
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    daemon.close()
    found = {span.name: span for span in spans()}
    assert {"POST /v1/run", "sandbox.create", "exec", "POST /v1/sandboxes/{id}/exec"} <= set(found)
    request = found["POST /v1/run"]
    assert request.trace_id.hex() == TRACE and request.parent_span_id.hex() == "00f067aa0ba902b7"
    children = [span for span in spans() if span.parent_span_id == request.span_id]
    assert {span.name for span in children} == {"sandbox.create", "exec"}
    # The guest's parent is our request, in the caller's trace.
    assert ran["stdout"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    assert all(b"secret-word" not in data for data in Collector.received)


def test_who_wants_none_loads_nothing(daemon: Daemon) -> None:
    maps = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert "opentelemetry" not in maps and "google/_upb" not in maps


def test_without_the_packages_it_is_said_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that can't be imported stands in the place of the real one."""
    fake = tmp_path / "path" / "opentelemetry"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('hidden', name='opentelemetry')")
    paths = [str(fake.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    state = tmp_path / "state"
    state.mkdir()
    daemon = Daemon(state)
    daemon.start()
    assert daemon.request("GET", "/v1/version")[0] == 200
    assert daemon.terminate() == 0
    assert "install agentkernel[otel]" in daemon.log()
    daemon.close()
