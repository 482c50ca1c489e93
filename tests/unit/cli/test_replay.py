"""Recordings and logs of sessions, which come from inside, shown again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkernel.cli.casts import frames_of, play
from agentkernel.cli.replay import event_lines

CAST = [
    {"version": 2, "width": 80, "height": 24},
    [0.5, "o", "one"],
    [0.6, "i", "typed"],
    [1.0, "o", "two"],
    [100.0, "o", "three"],
    [101.0, "r", "90x30"],
    [50.0, "o", "back"],
]


def played(frames: list[Any], **options: Any) -> tuple[list[bytes], list[float]]:
    shown: list[bytes] = []
    pauses: list[float] = []
    play(frames, shown.append, **{"pause": pauses.append, "speed": 1.0, "idle": 2.0, **options})
    return shown, pauses


def test_the_pauses_there_were_but_no_long_ones() -> None:
    shown, pauses = played(CAST[1:])
    assert shown == [b"one", b"two", b"three", b"back"]
    assert pauses == [0.5, 0.5, 2.0]
    assert played(CAST[1:], speed=4.0)[1] == [0.125, 0.125, 0.5]
    assert played(CAST[1:], pause=None)[0] == shown


@pytest.mark.parametrize(
    "frame",
    [1, None, {}, [], [1, "o"], ["a", "o", "x"], [1, "o", 5], [True, "o", "x"], [1, 2, "x"],
     [float("nan"), "o", "x"], [float("inf"), "o", "x"]],
)  # fmt: skip
def test_what_is_no_frame_is_left_out(frame: Any) -> None:
    assert played([frame, [1, "o", "fine"]])[0] == [b"fine"]


@pytest.mark.parametrize("size", [1, 10, 1 << 20])
def test_frames_come_in_any_pieces(size: int) -> None:
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in CAST).rstrip(b"\n")
    data = data.replace(b"\n", b"\n{broken\n", 1)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(frames_of(pieces)) == CAST


def test_a_line_without_an_end_takes_a_bounded_amount() -> None:
    pieces = [b"[" * (1 << 20)] * 8 + [b"\n[1]\n"]
    assert list(frames_of(pieces)) == [[1]]


def test_a_log_as_text() -> None:
    events: list[dict[str, Any]] = [
        {"kind": "session", "body": {}},
        {"kind": "prompt", "body": {"text": "do\x1b[31m it"}},
        {"kind": "agent", "body": {"type": "text", "part": {"text": "hello"}}},
        {"kind": "output", "body": {"text": "plain"}},
        {"kind": "output", "body": {"text": "lines"}},
        {"kind": "agent", "body": "no object"},
        {"kind": "ended", "body": {"exit_code": 3}},
    ]
    assert list(event_lines(events)) == [
        "> do\ufffd[31m it",
        "hello",
        "plain",
        "lines",
        "── exit 3",
    ]


def test_a_log_of_an_agent_that_speaks_acp() -> None:
    def update(**fields: Any) -> dict[str, Any]:
        return {"kind": "agent", "body": {"sessionId": "x", "update": fields}}

    def chunk(text: Any) -> dict[str, Any]:
        return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    events = [
        chunk("I wi"), chunk("ll\nnow"),
        update(sessionUpdate="tool_call", title="edit \x1b[31m a.py"),
        update(sessionUpdate="tool_call_update", status="failed"),
        update(sessionUpdate="agent_message_chunk", content=None), update(), chunk(None),
        {"kind": "agent", "body": {"update": 1}},
        {"kind": "ended", "body": {"exit_code": None, "reason": "lost"}},
    ]  # fmt: skip
    assert list(event_lines(events)) == [
        "I will", "now", "● edit \ufffd[31m a.py", "  failed", "None", "── lost",
    ]  # fmt: skip
