"""Events as a stream that can be taken up again."""

from __future__ import annotations

import json
from typing import Any

from .daemon_process import Daemon, UnixConnection


class Events:
    def __init__(self, daemon: Daemon, query: str = "", **headers: str) -> None:
        self.connection: UnixConnection = daemon.connection()
        self.connection.request("GET", f"/v1/events{query}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.getheader("Content-Type", "").startswith("text/event-stream")
        assert self.answer.readline().startswith(b":")  # it listens from here on

    def next(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and fields:
                fields["data"] = json.loads(fields["data"])
                return fields
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value

    def close(self) -> None:
        self.connection.close()


def test_events_as_they_happen(daemon: Daemon) -> None:
    events = Events(daemon)
    id = daemon.create()
    other = daemon.create()
    daemon.request("DELETE", f"/v1/sandboxes/{id}")
    seen = [events.next() for _ in range(3)]
    assert [event["event"] for event in seen] == [
        "sandbox.created", "sandbox.created", "sandbox.removed",
    ]  # fmt: skip
    assert seen[2]["data"]["sandbox_id"] == id
    events.close()

    again = Events(daemon, **{"Last-Event-ID": seen[0]["id"]})
    assert [again.next()["id"] for _ in range(2)] == [seen[1]["id"], seen[2]["id"]]
    again.close()

    one = Events(daemon, f"?after=0&sandbox={id}")
    assert [one.next()["event"] for _ in range(2)] == ["sandbox.created", "sandbox.removed"]
    one.close()
    daemon.request("DELETE", f"/v1/sandboxes/{other}")


def test_a_gap_is_told(daemon: Daemon) -> None:
    events = Events(daemon, "?after=1000000")
    gap = events.next()
    assert gap["event"] == "gap"
    assert gap["data"]["newest"] < 1000000
    id = daemon.create()
    assert events.next()["data"]["sandbox_id"] == id
    events.close()
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


def test_what_is_there_and_no_more(daemon: Daemon) -> None:
    id = daemon.create()
    connection = daemon.connection()
    connection.request("GET", f"/v1/events?after=0&sandbox={id}&follow=0")
    text = connection.getresponse().read().decode()  # to its end, which comes
    connection.close()
    assert [line for line in text.splitlines() if line.startswith("event: ")] == [
        "event: sandbox.created"
    ]
    connection = daemon.connection()
    connection.request("GET", "/v1/events?follow=0")
    assert connection.getresponse().read() == b": ready\n\n"
    connection.close()
    daemon.request("DELETE", f"/v1/sandboxes/{id}")
