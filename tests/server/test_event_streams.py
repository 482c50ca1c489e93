"""Commands and jobs as events: whole characters, exact offsets, an end that is said, and a pace
that is the reader's."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentkernel.guest.processes import Chunk
from agentkernel.guest.protocol import Channel
from agentkernel.server.output_events import Writer

from .daemon_process import Daemon, eventually

Event = tuple[str, dict[str, Any], str | None]
ACCEPT = {"Accept": "text/event-stream"}


@contextmanager
def open_stream(
    daemon: Daemon, method: str, path: str, body: Any = None, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    connection = daemon.connection()
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, path, body=data, headers=ACCEPT | headers)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def read_events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    name, id = "", None
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("id: "):
            id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: ")), id
            name, id = "", None


def events_of(
    daemon: Daemon, method: str, path: str, body: Any = None, **headers: str
) -> list[Event]:
    with open_stream(daemon, method, path, body, **headers) as answer:
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type", "").startswith("text/event-stream")
        return list(read_events(answer))


def content(body: dict[str, Any]) -> bytes:
    return body["text"].encode() if "text" in body else base64.b64decode(body["data_b64"])


def joined(events: list[Event], name: str) -> bytes:
    """All of a stream; that every piece is where its offset says is checked on the way."""
    whole = b""
    for kind, body, _ in events:
        if kind == name:
            assert body["offset"] == len(whole)
            whole += content(body)
    return whole


# -- of a command --------------------------------------------------------------------------------


def test_a_command_from_start_to_exit(daemon: Daemon, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/exec"
    events = events_of(daemon, "POST", path, {"shell": "echo out; echo err >&2; exit 3"})
    kinds = [kind for kind, _, _ in events]
    assert kinds[0] == "start" and kinds[-1] == "exit" and events[0][1]["pid"] > 0
    assert (joined(events, "stdout"), joined(events, "stderr")) == (b"out\n", b"err\n")
    end = events[-1][1]
    assert (end["outcome"], end["exit_code"], end["truncated"]) == ("exited", 3, False)


def test_without_asking_for_events_it_is_one_answer(daemon: Daemon, sandbox: str) -> None:
    assert daemon.exec(sandbox, "echo one")["stdout"] == "one\n"


def test_stdin_and_what_is_not_text(daemon: Daemon, sandbox: str) -> None:
    data = bytes(range(256)) * 300
    body = {"argv": ["cat"], "stdin_b64": base64.b64encode(data).decode()}
    events = events_of(daemon, "POST", f"/v1/sandboxes/{sandbox}/exec", body)
    assert joined(events, "stdout") == data


def test_characters_are_never_cut(daemon: Daemon, sandbox: str) -> None:
    text = "aé€😀" * 40_000
    command = "import sys; sys.stdout.buffer.write('aé€😀'.encode() * 40000)"
    events = events_of(
        daemon, "POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["python3", "-c", command]}
    )
    pieces = [body for kind, body, _ in events if kind == "stdout"]
    assert len(pieces) > 1 and all("text" in body for body in pieces)
    assert joined(events, "stdout").decode() == text


def test_what_is_beyond_the_bound_is_counted(daemon: Daemon, sandbox: str) -> None:
    body = {"shell": "printf 1234567890", "output_bytes": 4}
    events = events_of(daemon, "POST", f"/v1/sandboxes/{sandbox}/exec", body)
    assert joined(events, "stdout") == b"1234"
    assert (events[-1][1]["dropped_bytes"], events[-1][1]["truncated"]) == (6, True)


def test_what_is_wrong_at_the_start_has_a_status(daemon: Daemon, sandbox: str) -> None:
    for path, body, status in (
        ("/v1/sandboxes/nobody/exec", {"argv": ["true"]}, 404),
        (f"/v1/sandboxes/{sandbox}/exec", {"argv": ["a"], "shell": "b"}, 400),
        (f"/v1/sandboxes/{sandbox}/exec", {"argv": []}, 400),
        ("/v1/run", {"argv": ["true"], "image": "/nowhere"}, 404),
    ):
        with open_stream(daemon, "POST", path, body) as answer:
            problem = json.loads(answer.read())
            assert answer.status == problem["status"], problem
            assert problem["status"] == status or problem["code"] == "invalid_input", problem


def test_a_sandbox_that_ends_is_an_exit(daemon: Daemon) -> None:
    id = daemon.create()
    with open_stream(
        daemon, "POST", f"/v1/sandboxes/{id}/exec", {"argv": ["sleep", "60"]}
    ) as answer:
        events = read_events(answer)
        assert next(events)[0] == "start"
        assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204
        kind, body, _ = list(events)[-1]
    assert (kind, body["outcome"], body["exit_code"]) == ("exit", "lost", None)


def test_a_run_of_its_own(daemon: Daemon) -> None:
    events = events_of(daemon, "POST", "/v1/run", {"shell": "echo x; exit 4"})
    assert joined(events, "stdout") == b"x\n"
    assert events[-1][0] == "exit" and events[-1][1]["exit_code"] == 4
    assert {kind for kind, _, _ in events} <= {"progress", "notice", "start", "stdout", "exit"}
    assert daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []


def test_a_reader_that_stops_stops_the_command(daemon: Daemon) -> None:
    """And costs the daemon no memory; one that goes away ends the run and its sandbox."""
    daemon.forget_peak()
    before = daemon.peak_memory()
    with open_stream(daemon, "POST", "/v1/run", {"shell": "yes 0123456789"}) as answer:
        events = read_events(answer)
        for kind, _, _ in events:
            if kind == "stdout":
                break
        (id,) = (s["id"] for s in daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"])

        def written() -> int:
            shell = "cat /proc/[0-9]*/io 2>/dev/null | grep -a wchar | sort -k2 -n | tail -1"
            return int(daemon.exec(id, shell)["stdout"].split()[1])

        seen = [0, 1]

        def stands_still() -> bool:
            seen.append(written())
            return seen[-1] == seen[-2]

        eventually(stands_still)
        assert daemon.peak_memory() - before < 32 << 20
    eventually(lambda: daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == [])


def test_who_goes_away_ends_a_command_after_a_while(daemon: Daemon, sandbox: str) -> None:
    shell = "pgrep -x sleep; true"
    path = f"/v1/sandboxes/{sandbox}/exec"
    with open_stream(daemon, "POST", path, {"argv": ["sleep", "1000"]}) as answer:
        assert next(read_events(answer))[0] == "start"
        assert daemon.exec(sandbox, shell)["stdout"] != ""
    assert daemon.exec(sandbox, shell)["stdout"] != ""  # not at once
    eventually(lambda: daemon.exec(sandbox, shell)["stdout"] == "")


def test_the_end_of_the_daemon_is_said(own_daemon: Daemon) -> None:
    id = own_daemon.create()
    with open_stream(
        own_daemon, "POST", f"/v1/sandboxes/{id}/exec", {"argv": ["sleep", "60"]}
    ) as answer:
        events = read_events(answer)
        assert next(events)[0] == "start"
        own_daemon.request("POST", "/v1/shutdown")
        kind, body, _ = list(events)[-1]
    assert (kind, body["code"]) == ("error", "daemon_unavailable")
    assert own_daemon.wait() == 0


# -- of a job ------------------------------------------------------------------------------------


def start(daemon: Daemon, sandbox: str, shell: str) -> str:
    status, job = daemon.request("POST", f"/v1/sandboxes/{sandbox}/jobs", {"shell": shell})
    assert status == 201
    id = job["id"]
    assert isinstance(id, str)
    return id


def test_a_job_and_where_one_left_off(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, "echo one; echo two; echo bad >&2; echo three")
    path = f"/v1/jobs/{job}/output"
    events = events_of(daemon, "GET", path)
    assert joined(events, "stdout") == b"one\ntwo\nthree\n"
    assert events[-1][0] == "exit" and events[-1][1]["exit_code"] == 0
    last = [id for kind, _, id in events if kind in ("stdout", "stderr")][-1]
    assert last == "14-4"
    again = events_of(daemon, "GET", path, **{"Last-Event-ID": "4-0"})
    outs = [(body["offset"], body["text"]) for kind, body, _ in again if kind == "stdout"]
    assert outs[0][0] == 4 and "".join(text for _, text in outs) == "two\nthree\n"
    from_offsets = events_of(daemon, "GET", f"{path}?stdout_offset=8&stderr_offset=4")
    assert [body["text"] for kind, body, _ in from_offsets if "text" in body] == ["three\n"]
    assert daemon.request("GET", path, headers={"Last-Event-ID": "x"})[0] == 400


def test_a_running_job_without_following(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, "echo here; sleep 60")
    path = f"/v1/jobs/{job}/output?follow=0"
    eventually(lambda: any(kind == "stdout" for kind, _, _ in events_of(daemon, "GET", path)))
    events = events_of(daemon, "GET", path)
    assert events[-1][0] == "caught_up"
    assert events[-1][1] == {"stdout_offset": 5, "stderr_offset": 0}
    assert daemon.request("POST", f"/v1/jobs/{job}/signal", {"kill": True})[0] == 204


def test_all_jobs_of_an_owner(daemon: Daemon, sandbox: str) -> None:
    other = daemon.create()
    first, second = start(daemon, sandbox, "exit 1"), start(daemon, other, "sleep 60")
    mine = {"Agentkernel-Owner": "mcp:somebody"}
    assert daemon.request("GET", "/v1/jobs", headers=mine)[1] == {"jobs": [], "next": None}

    def states(query: str = "") -> dict[str, str]:
        status, body = daemon.request("GET", f"/v1/jobs{query}")
        assert status == 200
        return {job["id"]: job["state"] for job in body["jobs"] if job["id"] in (first, second)}

    eventually(lambda: states() == {first: "ended", second: "running"})
    assert states("?state=running") == {second: "running"}
    assert states(f"?sandbox={sandbox}") == {first: "ended"}
    page = daemon.request("GET", f"/v1/jobs?sandbox={other}&limit=1")[1]
    assert page["next"] is None and len(page["jobs"]) == 1
    assert daemon.request("GET", "/v1/jobs?state=odd")[0] == 400
    assert daemon.request("GET", "/v1/jobs?sandbox=nobody")[0] == 404
    assert daemon.request("DELETE", f"/v1/sandboxes/{other}")[0] == 204


# -- the writer ----------------------------------------------------------------------------------


def told(writer: Writer, *pieces: bytes) -> list[bytes]:
    """What the events of stdout hold, piece by piece."""
    offset, events = 0, []
    for piece in pieces:
        events += list(writer.feed(Chunk(Channel.STDOUT, piece, offset)))
        offset += len(piece)
    events += list(writer.rest())
    return [content(json.loads(event.partition(b"data: ")[2])) for event in events]


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ((b"a\xc3", b"\xa9b"), [b"a", b"\xc3\xa9b"]),
        ((b"\xf0", b"\x9f", b"\x98", b"\x80"), [b"\xf0\x9f\x98\x80"]),
        ((b"a\xe2\x82",), [b"a", b"\xe2\x82"]),
        ((b"\xff\xfe",), [b"\xff\xfe"]),
        ((b"\x80\x80\x80\x80",), [b"\x80\x80\x80\x80"]),
        ((b"x\xc0", b"\xaf"), [b"x\xc0", b"\xaf"]),
    ],
)
def test_cuts(pieces: tuple[bytes, ...], shown: list[bytes]) -> None:
    assert told(Writer(), *pieces) == shown


def test_a_jump_lets_go_of_what_was_held() -> None:
    writer = Writer(ids={Channel.STDOUT: 0, Channel.STDERR: 7})
    first = list(writer.feed(Chunk(Channel.STDOUT, b"a\xe2\x82", 0)))
    second = list(writer.feed(Chunk(Channel.STDOUT, b"b", 100)))
    assert first[0].startswith(b"id: 1-7\n")
    assert [event.split(b"\n")[0] for event in second] == [b"id: 3-7", b"id: 101-7"]
