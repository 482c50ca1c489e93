"""`/metrics`: what it counts, that others can read it, and that it never says which sandbox."""

from __future__ import annotations

import re

import pytest

from .daemon_process import Daemon
from .network_process import Caller, NetworkDaemon

LINE = re.compile(
    r'([a-z_]+)(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(?:,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? ([0-9.e+-]+)'
)


def metrics(daemon: Daemon) -> dict[str, float]:
    """By name and labels. Every line has to be of the format."""
    status, text = daemon.request("GET", "/metrics")
    assert status == 200
    found: dict[str, float] = {}
    typed = set()
    for line in text.decode().splitlines():
        if line.startswith("# "):
            word, kind, name, *_ = line.split(" ")
            assert (word, kind in ("HELP", "TYPE")) == ("#", True)
            typed.add(name)
            continue
        match = LINE.fullmatch(line)
        assert match, line
        base = re.sub(r"_(bucket|sum|count)$", "", match[1])
        assert base in typed or match[1] in typed, line
        assert match[1] + (match[2] or "") not in found, "said twice"
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_what_happens_is_counted(daemon: Daemon) -> None:
    def of(name: str) -> float:
        return metrics(daemon).get(f"agentkernel_{name}", 0.0)

    exited = 'commands_total{outcome="exited"}'
    before = {name: of(name) for name in (
        exited, 'commands_total{outcome="timeout"}', 'sandbox_creates_total{result="ok"}',
        'sandbox_creates_total{result="error"}', 'failures_total{code="not_found"}',
        'failures_total{code="invalid_input"}',
        'requests_total{route="/v1/sandboxes/{id}",method="GET",status="404"}',
        'request_seconds_count{route="/v1/sandboxes/{id}/exec",method="POST"}',
    )}  # fmt: skip
    id = daemon.create(ephemeral=True)
    daemon.exec(id, "exit 3")
    daemon.exec(id, "sleep 60", timeout_seconds=0.2)
    assert daemon.request("POST", "/v1/sandboxes", {"image": "nonsense"})[0] >= 400
    assert daemon.request("POST", "/v1/sandboxes/nobody/stop", {})[0] == 404
    assert daemon.request("GET", "/v1/sandboxes/nobody")[0] == 404
    stream = daemon.stream(f"/v1/sandboxes/{id}/exec/stream", {"argv": ["cat"], "stdin": True})
    stream.event("started")
    assert of('streams{door="socket"}') == 1
    assert of('sandboxes{state="running"}') >= 1
    stream.close()
    after = {name: of(name) - count for name, count in before.items()}
    assert after[exited] >= 1 and after['commands_total{outcome="timeout"}'] == 1
    assert after['sandbox_creates_total{result="ok"}'] == 1
    assert after['sandbox_creates_total{result="error"}'] == 1
    assert after['failures_total{code="not_found"}'] == 1
    assert after['requests_total{route="/v1/sandboxes/{id}",method="GET",status="404"}'] == 1
    assert after['request_seconds_count{route="/v1/sandboxes/{id}/exec",method="POST"}'] == 2
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


def test_times_are_a_histogram(daemon: Daemon) -> None:
    daemon.request("GET", "/v1/version")
    found = metrics(daemon)
    labels = 'route="/v1/version",method="GET"'
    buckets = [value for name, value in found.items()
               if name.startswith(f"agentkernel_request_seconds_bucket{{{labels},")]  # fmt: skip
    assert buckets == sorted(buckets) and len(buckets) == 16
    assert buckets[-1] == found[f"agentkernel_request_seconds_count{{{labels}}}"] > 0


def test_nothing_says_which_sandbox_and_nobody_makes_series(daemon: Daemon) -> None:
    id = daemon.create(name="told-nowhere", ephemeral=True)
    daemon.exec(id, "true")
    daemon.request("GET", f"/v1/sandboxes/{id}")
    before = len(metrics(daemon))
    for number in range(50):
        daemon.request("GET", f"/v1/sandboxes/made-up-{number}")
        daemon.request("GET", f"/made/up/{number}")
        daemon.request("BREW", "/v1/version")
        daemon.request(f"M{number}", "/v1/nowhere")
    text = daemon.request("GET", "/metrics")[1].decode()
    for word in (id, "told-nowhere", "made-up", "/made"):
        assert word not in text
    assert len(metrics(daemon)) <= before + 60
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


def test_over_a_network_it_needs_a_token_that_may_read(network_daemon: NetworkDaemon) -> None:
    assert Caller(network_daemon, None).ask("GET", "/metrics")[0] in (401, 429)
    status, _ = network_daemon.caller("writer", scopes=["exec"]).request("GET", "/metrics")
    assert status == 403
    reader = network_daemon.caller("reader", scopes=["read"])
    status, told, text = reader.ask("GET", "/metrics")
    assert status == 200 and told["content-type"].startswith("text/plain; version=0.0.4")
    refused = dict(
        line.rsplit(" ", 1) for line in text.decode().splitlines() if "refusals_total{" in line
    )
    assert float(refused['agentkernel_refusals_total{code="unauthenticated"}']) >= 1
    assert 'agentkernel_body_bytes_total{direction="out",door="network"}' in text.decode()


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb"])
def test_labels_are_escaped(value: str) -> None:
    from agentkernel.server.metrics import _shown

    shown = _shown((("label", value),))
    assert LINE.fullmatch(f"name{shown} 1"), shown
