"""`agentkernel sandbox …` and `job …`: what they print, for people and as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import COMMAND, Cli, Json


def test_life_of_a_sandbox(cli: Cli, ask: Json) -> None:
    made = ask("sandbox", "create", "life", "--label", "t=life", "--ttl", "1h", "-e", "A=1")
    assert (made["name"], made["state"], made["labels"]) == ("life", "running", {"t": "life"})
    assert (made["ephemeral"], made["ttl_seconds"]) == (False, 3600)
    assert cli("exec", "life", "--", "sh", "-c", "echo $A > /root/a").returncode == 0
    table = cli("sandbox", "list", "--label", "t=life").stdout.decode().splitlines()
    assert table[0].split() == ["NAME", "STATUS", "BACKEND", "IMAGE", "AGE", "ENDS", "IN", "LABELS"]
    assert table[1].split()[:4] == ["life", "running", "native", "host"]
    assert [entry["id"] for entry in ask("sandbox", "list", "--label", "t=life")["sandboxes"]] == [
        made["id"]
    ]
    stopped = ask("sandbox", "stop", "life")
    assert [entry["state"] for entry in stopped["sandboxes"]] == ["stopped"]
    assert cli("exec", "life", "--", "true").returncode == 125
    assert cli("sandbox", "start", "life").stdout == b"life\n"
    assert cli("exec", "life", "--", "cat", "/root/a").stdout == b"1\n"
    assert ask("sandbox", "extend", "life", "2h")["ttl_seconds"] == 7200
    info = ask("sandbox", "info", made["id"])
    assert info["effective"] and info["name"] == "life"
    assert b"effective" not in cli("sandbox", "info", "life").stdout
    kinds = [line.split()[2] for line in cli("sandbox", "logs", "life").stdout.splitlines()]
    assert kinds[:3] == [b"sandbox.created", b"sandbox.stopped", b"sandbox.started"]
    assert ask("sandbox", "remove", "life")["sandboxes"] == [{"name": "life", "id": made["id"]}]
    events = cli("sandbox", "logs", made["id"], "--json").stdout.splitlines()
    assert json.loads(events[-1])["kind"] == "sandbox.removed"


def test_what_can_be_changed(cli: Cli, ask: Json) -> None:
    made = ask("sandbox", "create", "old", "--label", "a=1", "--label", "b=2", "--ttl", "1h")
    words = ("--name", "new", "--label", "b=3", "--remove-label", "a", "--idle-timeout", "5m")
    changed = ask("sandbox", "update", *words, "old")
    assert (changed["id"], changed["name"], changed["labels"]) == (made["id"], "new", {"b": "3"})
    assert (changed["idle_seconds"], changed["ttl_seconds"]) == (300, 3600)
    shown = cli("sandbox", "update", "--ttl", "none", "--on-idle", "remove", "new")
    assert shown.stdout == b"new\n"
    info = ask("sandbox", "info", "new")
    assert (info["ttl_seconds"], info["expires_at"], info["on_idle"]) == (None, None, "remove")
    nothing = cli("sandbox", "update", "new")
    assert nothing.returncode == 125 and b"nothing to change" in nothing.stderr
    assert cli("sandbox", "update", "--ttl", "soon", "new").returncode == 2
    assert cli("sandbox", "remove", "new").returncode == 0


def test_jobs_of_all_sandboxes(cli: Cli, ask: Json) -> None:
    ids = {}
    for name in ("jobs-a", "jobs-b"):
        assert cli("sandbox", "create", name).returncode == 0
        ids[name] = cli("job", "start", name, "--", "true").stdout.decode().strip()
    assert set(ids.values()) <= {job["id"] for job in ask("job", "list")["jobs"]}
    assert [job["id"] for job in ask("job", "list", "jobs-a")["jobs"]] == [ids["jobs-a"]]
    assert all(id.encode() in cli("job", "list").stdout for id in ids.values())
    assert cli("sandbox", "remove", *ids).returncode == 0


def test_without_a_name_the_id_is_printed(cli: Cli) -> None:
    id = cli("sandbox", "create", "--ephemeral").stdout.decode().strip()
    assert len(id) == 20
    assert cli("sandbox", "remove", id).returncode == 0


def test_one_failure_of_many_is_said_and_the_others_are_done(cli: Cli) -> None:
    cli("sandbox", "create", "one")
    done = cli("sandbox", "remove", "no-such", "one")
    assert (done.stdout, done.returncode) == (b"one\n", 125)
    assert b"agentkernel: no sandbox no-such" in done.stderr
    assert cli("sandbox", "remove", "--force", "no-such").returncode == 0
    failed = json.loads(cli("sandbox", "remove", "no-such", "--json").stdout)["failed"]
    assert failed[0]["error"]["code"] == "not_found"


def test_gc_takes_what_it_is_told_and_nothing_else(cli: Cli, ask: Json) -> None:
    for name, label in (("gc-a", "t=gc"), ("gc-b", "t=gc"), ("gc-c", "t=other")):
        cli("sandbox", "create", name, "--label", label)
    assert cli("sandbox", "gc").returncode == 125
    assert cli("sandbox", "gc", "--label", "t=gc", "--older-than", "1d").stdout == (
        b"nothing to remove\n"
    )
    dry = ask("sandbox", "gc", "--label", "t=gc", "--dry-run")
    assert [entry["name"] for entry in dry["removed"]] == ["gc-a", "gc-b"]
    done = cli("sandbox", "gc", "--label", "t=gc", "--older-than", "1ms")
    assert done.stdout == b"removed gc-a\nremoved gc-b\n"
    assert cli("sandbox", "remove", "gc-c").returncode == 0


def test_jobs(cli: Cli, ask: Json, box: str) -> None:
    script = "echo out; echo err >&2; exit 5"
    id = cli("job", "start", box, "--", "sh", "-c", script).stdout.decode().strip()
    attached = cli("attach", id)
    assert (attached.stdout, attached.stderr, attached.returncode) == (b"out\n", b"err\n", 5)
    logs = cli("job", "logs", id)
    assert (logs.stdout, logs.stderr, logs.returncode) == (b"out\n", b"err\n", 0)
    (job,) = (entry for entry in ask("job", "list", box)["jobs"] if entry["id"] == id)
    assert (job["state"], job["status"]["exit_code"]) == ("ended", 5)
    assert id.encode() in cli("job", "list", box).stdout
    assert ask("job", "info", id)["id"] == id


def test_a_job_that_keeps_little(cli: Cli, ask: Json, box: str) -> None:
    script = "head -c 3000000 /dev/zero; printf end"
    started = cli("job", "start", "--output", "100k", box, "--", "sh", "-c", script)
    job = started.stdout.decode().strip()
    cli("attach", job)  # to its end
    info = ask("job", "info", job)
    assert (info["output_bytes"], info["status"]["truncated"]) == (102_400, True)
    logs = cli("job", "logs", job).stdout
    assert logs.endswith(b"end")
    assert info["status"]["dropped_bytes"] == 3_000_003 - len(logs)


def test_logs_of_a_running_job_end_and_attach_leaves_it_running(
    cli: Cli, ask: Json, box: str
) -> None:
    id = cli("job", "start", box, "--", "sh", "-c", "echo up; sleep 60").stdout.decode().strip()
    process = subprocess.Popen([*COMMAND, "attach", id], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    # It has written that, so it is there, and nothing is waited for.
    assert cli("job", "logs", id).stdout == b"up\n"
    assert ask("job", "info", id)["state"] == "running"
    assert cli("job", "kill", "-s", "TERM", id).returncode == 0
    assert cli("attach", id).returncode == 128 + signal.SIGTERM
    assert cli("job", "kill", "-s", "NOPE", id).returncode == 125


def test_follow_waits_for_more(cli: Cli, box: str, daemon_dir: Path) -> None:
    command = [*COMMAND, "sandbox", "logs", "--follow", box]
    # Whoever runs the tests in the background has SIGINT ignored, which a child would keep.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert b"sandbox.created" in process.stdout.readline()
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    process.stdout.close()


@pytest.mark.parametrize("words", [["sandbox", "list"], ["daemon", "status"], ["daemon", "logs"]])
def test_a_reader_that_goes_away_is_no_traceback(daemon_dir: Path, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *words], stdout=write, stderr=subprocess.PIPE, timeout=50, check=False
    )
    os.close(write)
    assert b"Traceback" not in done.stderr


def test_everybodys_sandboxes_are_found_by_id(cli: Cli, ask: Json, daemon_dir: Path) -> None:
    """Those of a program that acts for somebody else, as MCP does, are not in one's own list."""
    from agentkernel.client._sync.transport import Transport

    transport = Transport(str(daemon_dir))
    made = transport.call(
        "POST", "/v1/sandboxes", json={"name": "theirs", "ephemeral": True},
        headers={"Agentkernel-Owner": "mcp:claude"},
    )  # fmt: skip
    transport.close()
    assert "theirs" not in cli("sandbox", "list").stdout.decode()
    table = cli("sandbox", "list", "--all").stdout.decode()
    assert "OWNER" in table and made["id"] in table and "mcp:claude" in table
    listed = ask("sandbox", "list", "--owner", "mcp:claude")["sandboxes"]
    assert [entry["id"] for entry in listed] == [made["id"]]
    assert cli("sandbox", "info", "theirs").returncode == 125, "a name is one's own"
    assert ask("sandbox", "info", made["id"])["owner"] == "mcp:claude"
    assert cli("exec", made["id"], "--", "echo", "hi").stdout == b"hi\n"
    assert cli("sandbox", "remove", made["id"]).returncode == 0
    assert made["id"] not in cli("sandbox", "list", "--all").stdout.decode()
