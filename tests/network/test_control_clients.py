"""A sandbox's network by the command line, both SDKs of Python, files and MCP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import AsyncSandbox, AsyncTransport, Sandbox, Transport, errors

from .world.boxes import WorldDaemon, eventually
from .world.everything import World


@pytest.fixture(scope="module")
def work(daemon: WorldDaemon, world: World) -> Iterator[str]:
    """The name of a sandbox that the command line made."""
    target = f"good.test:{world.plain.port}"
    words = ["--network", "none", "--allow", target, "--deny", "gone.test"]
    made = daemon.cli("sandbox", "create", "work", *words)
    assert made.returncode == 0, made.stderr
    yield "work"
    assert daemon.cli("sandbox", "remove", "work").returncode == 0


def _fetch(host: str, port: int) -> str:
    """Words of a shell that prints what an HTTP server says."""
    return (
        'python3 -c \'import http.client as h; c = h.HTTPConnection("%s", %d, timeout=10); '  # noqa: UP031
        'c.request("GET", "/"); a = c.getresponse(); print(a.status, a.read().decode())\''
        % (host, port)
    )


def _asked(daemon: WorldDaemon, *words: str) -> Any:
    done = daemon.cli(*words, "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def _id(daemon: WorldDaemon, name: str) -> str:
    return str(_asked(daemon, "sandbox", "info", name)["id"])


def test_show_in_words_and_as_json(daemon: WorldDaemon, world: World, work: str) -> None:
    shown = _asked(daemon, "network", "show", work)
    rules = shown["phases"]["default"]["rules"]
    assert [(rule.get("action", "allow"), rule["host"]) for rule in rules] == [
        ("deny", "gone.test"),
        ("allow", "good.test"),
    ]
    text = daemon.cli("network", "show", work).stdout
    assert "phase default  (now)" in text and "everything else is denied" in text
    assert "the allow list" in text and str(world.plain.port) in text


def test_why_says_it_with_its_status(daemon: WorldDaemon, world: World, work: str) -> None:
    allowed = daemon.cli("network", "why", work, f"good.test:{world.plain.port}")
    assert allowed.returncode == 0 and "* 2" in allowed.stdout
    denied = daemon.cli("network", "why", work, "evil.test")
    assert denied.returncode == 1
    assert f"agentkernel network allow {work} evil.test:443" in denied.stdout
    answer = daemon.cli("network", "why", work, "gone.test:22", "--json")
    assert answer.returncode == 1
    assert json.loads(answer.stdout)["source"] == "the deny list"
    for bad in ("good.test:x", "good.test:0", "good..test"):
        assert daemon.cli("network", "why", work, bad).returncode == 125


def test_allow_deny_and_log(daemon: WorldDaemon, world: World, work: str) -> None:
    port = world.plain.port
    refused = daemon.cli("exec", work, "--", "sh", "-c", _fetch("twin.test", port))
    status, _, body = refused.stdout.partition(" ")
    assert status == "403", refused
    assert f"agentkernel network allow {_id(daemon, work)} twin.test:{port}" in body
    changed = daemon.cli("network", "allow", work, f"twin.test:{port}", "other.test")
    assert changed.returncode == 0 and "network allow" in changed.stdout
    assert "200 " in daemon.cli("exec", work, "--", "sh", "-c", _fetch("twin.test", port)).stdout
    state = _asked(daemon, "network", "deny", work, "twin.test")
    assert state["phases"]["default"]["rules"][0]["action"] == "deny"
    again = daemon.cli("exec", work, "--", "sh", "-c", _fetch("twin.test", port))
    assert again.stdout.startswith("403 ") and "network deny" in again.stdout

    def logged() -> list[dict[str, Any]]:
        lines = daemon.cli("network", "log", work, "--json").stdout.splitlines()
        return [json.loads(line) for line in lines]

    def about_twin() -> list[str]:
        return [e["kind"] for e in logged() if e["body"].get("host") == "twin.test"
                and e["body"].get("via") == "http"]  # fmt: skip

    wanted = ["network.deny", "network.allow", "network.deny"]
    eventually(lambda: about_twin() == wanted)
    text = daemon.cli("network", "log", work).stdout
    assert f"deny     twin.test:{port} GET /" in text and "rule 2 (network allow)" in text
    assert "changed" in text


def test_tail_follows(daemon: WorldDaemon, world: World, work: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", "network", "tail", work],
        env=daemon.environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    guard = threading.Timer(30, process.kill)
    guard.start()
    try:
        daemon.cli("exec", work, "--", "sh", "-c", _fetch("evil.test", world.plain.port))
        assert any("evil.test" in line and "deny" in line for line in process.stdout)
    finally:
        guard.cancel()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_nobodys_network(daemon: WorldDaemon) -> None:
    for words in (
        ("show", "nobody"),
        ("log", "nobody"),
        ("tail", "nobody"),
        ("why", "nobody", "good.test"),
        ("allow", "nobody", "good.test"),
        ("deny", "nobody", "good.test"),
        ("phase", "nobody", "agent"),
    ):
        done = daemon.cli("network", *words)
        assert done.returncode != 0 and "nobody" in done.stderr, words
        assert "Traceback" not in done.stderr


def test_run_has_the_network_of_its_flags(daemon: WorldDaemon, world: World) -> None:
    port = world.plain.port
    command = ("--", "sh", "-c", _fetch("good.test", port))
    plain = daemon.cli("run", *command)
    assert plain.stdout.startswith("403 ") and "no rule" in plain.stdout
    allowed = daemon.cli("run", "--allow", f"good.test:{port}", *command)
    assert allowed.stdout.startswith("200 "), allowed
    both = daemon.cli("run", "--allow", "*.test:*", "--deny", "good.test", *command)
    assert both.stdout.startswith("403 ") and "the deny list" in both.stdout
    none = daemon.cli("run", "--network", "none", *command)
    assert none.returncode == 1 and "403" not in none.stdout
    for bad in (("--network", "internet"), ("--allow", "http://x/"), ("--allow", "localhost"),
                ("--secret", "nothing@good.test")):  # fmt: skip
        done = daemon.cli("run", *bad, "--", "true")
        assert done.returncode == 125 and "Traceback" not in done.stderr, (bad, done)


def test_a_secret_of_a_flag_is_a_placeholder_inside(daemon: WorldDaemon) -> None:
    value = "sk-test-0123456789abcdefghij"
    assert daemon.cli("secret", "set", "KEY", stdin=value).returncode == 0
    try:
        done = daemon.cli("run", "--secret", "KEY@secret.test", "--", "printenv", "KEY")
        inside = done.stdout.strip()
        assert done.returncode == 0 and len(inside) == len(value) and inside != value
    finally:
        daemon.cli("secret", "remove", "KEY")


def test_a_projects_network(daemon: WorldDaemon, world: World, tmp_path: Path) -> None:
    """What it narrows holds; what it widens has to be trusted; phases are switched."""
    port = world.plain.port
    file = tmp_path / "agentkernel.toml"
    command = ("--", "sh", "-c", _fetch("good.test", port))
    file.write_text('[network]\npresets = ["none"]\n')
    narrow = daemon.cli("run", "-c", str(file), *command)
    assert narrow.returncode == 1 and "403" not in narrow.stdout
    file.write_text(
        '[network]\npresets = []\nphase = "setup"\n'
        f'[network.phases.setup]\nallow = ["good.test:{port}"]\n'
        "[network.phases.agent]\npresets = []\n"
    )
    wide = daemon.cli("run", "-c", str(file), *command)
    assert wide.returncode != 0 and "200" not in wide.stdout
    assert "trust" in wide.stderr, wide.stderr
    assert daemon.cli("trust", str(file)).returncode == 0
    trusted = daemon.cli("run", "-c", str(file), *command)
    assert trusted.stdout.startswith("200 "), trusted
    made = daemon.cli("sandbox", "create", "phased", "-c", str(file))
    assert made.returncode == 0, made.stderr
    try:
        assert _asked(daemon, "network", "phase", "phased", "agent")["phase"] == "agent"
        closed = daemon.cli("exec", "phased", *command)
        assert closed.stdout.startswith("403 "), closed
        unknown = daemon.cli("network", "phase", "phased", "later")
        assert unknown.returncode == 125 and "setup" in unknown.stderr
        assert daemon.cli("network", "phase", "phased", "setup").returncode == 0
        assert daemon.cli("exec", "phased", *command).stdout.startswith("200 ")
    finally:
        daemon.cli("sandbox", "remove", "phased")


# -- Python ----------------------------------------------------------------------------------------


@pytest.fixture
def transport(daemon: WorldDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(daemon.state_dir))
    transport = Transport(str(daemon.state_dir))
    yield transport
    transport.close()


def test_the_sdk(transport: Transport, world: World) -> None:
    port = world.plain.port
    network = {"phases": {"setup": {"allow": [f"good.test:{port}"]}, "agent": {}}, "phase": "setup"}
    with Sandbox.create(network=network, transport=transport) as sandbox:
        assert sandbox.exec(_fetch("good.test", port)).stdout.startswith("200 ")
        assert sandbox.network.show()["phase"] == "setup"
        assert sandbox.network.why("good.test", port)["outcome"] == "allow"
        assert sandbox.network.why("good.test", port, method="GET", path="/x")["rule"] == 1
        sandbox.network.deny("good.test")
        assert sandbox.exec(_fetch("good.test", port)).stdout.startswith("403 ")
        sandbox.network.allow(f"good.test:{port}", phase="agent")
        assert sandbox.network.phase("agent")["phase"] == "agent"
        assert sandbox.exec(_fetch("good.test", port)).stdout.startswith("200 ")
        for event in sandbox.network.log(follow=True):
            if event.kind == "network.deny" and event.body.get("via") == "http":
                assert event.body["source"] == "network deny"
                break
        sandbox.network.replace({"presets": ["none"]})
        assert sandbox.network.why("good.test", port)["outcome"] == "deny"
        with pytest.raises(errors.InvalidInputError, match="phase"):
            sandbox.network.phase("later")
        with pytest.raises(errors.InvalidInputError, match="URL"):
            sandbox.network.allow("https://good.test/")


async def test_the_sdk_without_blocking(daemon: WorldDaemon, world: World) -> None:
    transport = AsyncTransport(str(daemon.state_dir))
    port = world.plain.port
    try:
        network = {"presets": [], "allow": [f"good.test:{port}"]}
        async with await AsyncSandbox.create(network=network, transport=transport) as sandbox:
            done = await sandbox.exec(_fetch("good.test", port))
            assert done.stdout.startswith("200 ")
            await sandbox.network.deny("good.test")
            done = await sandbox.exec(_fetch("good.test", port))
            assert done.stdout.startswith("403 ")
            assert (await sandbox.network.why("good.test", port))["source"] == "network deny"
            async for event in sandbox.network.log(follow=True):
                if event.kind == "network.changed":
                    break
            state = await sandbox.network.replace({"presets": ["none"]})
            assert "rules" not in state["phases"]["default"]
    finally:
        transport.close()


# -- MCP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [("--network", "none"), ("--allow", "{good}")], ids=str)
async def test_a_model_has_the_operators_network(
    daemon: WorldDaemon, world: World, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """What the flags of `agentkernel mcp` say; no tool has a word for it."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp.client.stdio import StdioServerParameters

    port = world.plain.port
    words = [flag.format(good=f"good.test:{port}") for flag in flags]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "agentkernel", "mcp", "-c", "none", *words],
        env=daemon.environment(),
        cwd=str(tmp_path),
    )
    async with mcp.Client(server) as client:
        tools = (await client.list_tools()).tools
        assert not [
            t.name for t in tools if {"network", "allow"} & set(t.input_schema["properties"])
        ]
        for host, status in (("good.test", "200"), ("evil.test", "403")):
            done = await client.call_tool("run", {"command": _fetch(host, port)})
            out = done.structured_content["stdout"]
            if flags[0] == "--network":
                assert out == "" and done.structured_content["exit_code"] == 1
            else:
                assert out.startswith(status), done
        refused = await client.call_tool("run", {"command": "true", "network": {"presets": []}})
        assert refused.is_error


async def test_the_operators_word_counts_and_not_the_models(
    daemon: WorldDaemon, world: World, tmp_path: Path
) -> None:
    """Services of this machine and the user's secrets, which the client's owner could not ask
    for by itself."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp.client.stdio import StdioServerParameters

    value, port, machine = "sk-operator-0123456789", world.plain.port, "host.agentkernel.internal"
    assert daemon.cli("secret", "set", "OPERATORS", stdin=value).returncode == 0
    flags = ["--allow", f"{machine}:{port}", "--secret", "OPERATORS@secret.test"]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "agentkernel", "mcp", "-c", "none", *flags],
        env=daemon.environment(),
        cwd=str(tmp_path),
    )
    try:
        async with mcp.Client(server) as client:
            command = f"{_fetch(machine, port)}; printenv OPERATORS"
            done = await client.call_tool("run", {"command": command})
            reached, *_, inside = done.structured_content["stdout"].splitlines()
            assert reached.startswith("200 "), done
            assert len(inside) == len(value) and inside != value
            made = await client.call_tool("create", {"name": "kept"})
            assert not made.is_error, made
            id = made.structured_content["id"]
        [secret] = [s for s in _asked(daemon, "secret", "list")["secrets"]]
        assert secret["sandboxes"] == [id]
        # The same owner by itself, without the operator's word.
        claude = {"Agentkernel-Owner": _asked_raw(daemon, id)["owner"]}
        for network in ({"allow": [f"{machine}:{port}"]}, None):
            body = {"network": network} if network else {"secrets": ["OPERATORS@secret.test"]}
            status, _ = daemon.request("POST", "/v1/sandboxes", body, claude)
            assert status in (403, 404), body
        wrong = {**claude, "Agentkernel-Spec": "everything"}
        assert daemon.request("POST", "/v1/sandboxes", {}, wrong)[0] == 400
        rule = {"target": f"{machine}:1"}
        path = f"/v1/sandboxes/{id}/network/rules"
        as_user = {**claude, "Agentkernel-Spec": "user"}
        assert daemon.request("POST", path, rule, as_user)[0] == 403, "for making sandboxes only"
        daemon.request("DELETE", f"/v1/sandboxes/{id}")
    finally:
        daemon.cli("secret", "remove", "OPERATORS")


def _asked_raw(daemon: WorldDaemon, id: str) -> dict[str, Any]:
    status, body = daemon.request("GET", f"/v1/sandboxes/{id}")
    assert status == 200, body
    assert isinstance(body, dict)
    return body
