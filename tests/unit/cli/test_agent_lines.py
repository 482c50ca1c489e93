"""Events of agents as lines for people; and as anything else that may come from inside."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agentkernel.cli.agent_lines import Lines, lines_of


def shown(*events: Any, size: int = 1 << 20) -> list[str]:
    data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    lines = Lines()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [line for piece in pieces for line in lines.feed(piece)] + list(lines.end())


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": list(blocks)}}


CLAUDE = [
    {"type": "system", "subtype": "init", "session_id": "x"},
    says({"type": "text", "text": "I look.\nNow."}),
    says({"type": "tool_use", "name": "Bash", "input": {"command": "make  test"}}),
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "is_error": True, "content": "no\nway"}]},
    },
    {"type": "result", "result": "I look.", "total_cost_usd": 1},
]
CODEX = [
    {"type": "thread.started", "thread_id": "x"},
    {"type": "item.started", "item": {"type": "command_execution", "command": "ls"}},
    {
        "type": "item.completed",
        "item": {"type": "command_execution", "command": "ls x", "exit_code": 2},
    },
    {
        "type": "item.completed",
        "item": {"type": "file_change", "changes": [{"path": "a.py", "kind": "update"}]},
    },
    {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
    {"type": "error", "message": "stream lost"},
]
GEMINI = [
    {"type": "message", "role": "user", "content": "do it"},
    {"type": "message", "role": "assistant", "content": "I wi", "delta": True},
    {"type": "message", "role": "assistant", "content": "ll\nnow", "delta": True},
    {"type": "tool_use", "tool_name": "read_file", "parameters": {"file_path": "a"}},
    {"type": "tool_result", "status": "error", "error": {"message": "none"}},
    {"type": "message", "role": "assistant", "content": "end", "delta": True},
]
OPENCODE = [
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"text": "hello"}},
    {"type": "tool_use", "part": {"tool": "edit", "state": {"input": {"filePath": "a"}}}},
]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_each_agents_events(size: int) -> None:
    assert shown(*CLAUDE, size=size) == ["I look.", "Now.", "● Bash  make test", "  failed: no way"]
    assert shown(*CODEX, size=size) == [
        "● run  ls x  (exit 2)", "● update  a.py", "done", "error: stream lost",
    ]  # fmt: skip
    assert shown(*GEMINI, size=size) == [
        "I will", "now", "● read_file  a", "  failed: none", "end",
    ]  # fmt: skip
    assert shown(*OPENCODE, size=size) == ["hello", "● edit  a"]


def test_a_model_that_does_not_answer_is_told_of() -> None:
    event = {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10}
    assert shown(event | {"error_status": 502}) == ["the model does not answer (502): try 2 of 10"]


def test_what_is_no_event_is_shown_as_it_is() -> None:
    lines = Lines()
    assert [*lines.feed(b"one\r\n{not json\ntw"), *lines.feed(b"o"), *lines.end()] == [
        "one", "{not json", "two",
    ]  # fmt: skip


def test_nothing_of_it_reaches_the_terminal_as_an_order() -> None:
    hostile = "a\x1b]52;c;aGk=\x07\x9b31m\u202e\rb"
    for event in (
        says({"type": "text", "text": hostile}),
        says({"type": "tool_use", "name": hostile, "input": {"command": hostile}}),
        {"type": "message", "role": "assistant", "content": hostile, "delta": True},
        {"type": "error", "message": hostile},
        "just " + hostile,
    ):
        text = "".join(shown(event))
        assert text and not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in text)
    lines = Lines()
    assert "\x1b" not in "".join(lines.feed(hostile.encode() + b"\n"))


def test_lines_without_an_end_take_a_bounded_amount() -> None:
    lines = Lines()
    for _ in range(64):
        assert list(lines.feed(b"x" * (1 << 16))) == []
    assert len(lines._rest) <= 1 << 20
    assert list(lines.feed(b"tail\nnext\n")) == ["next"]


def test_no_shape_of_an_event_breaks_it() -> None:
    chance = random.Random(8)
    leaves: list[Any] = [None, 1, "x", [], {}, True, 1e9, ["x"], {"text": 1}]
    kinds = ["assistant", "user", "result", "item.completed", "error", "turn.failed", "text",
             "tool_use", "tool_result", "message", None, 1]  # fmt: skip
    names = ["message", "content", "item", "part", "state", "input", "type", "text", "name",
             "changes", "error", "role", "tool", "tool_name", "parameters", "status"]  # fmt: skip

    def made(depth: int) -> Any:
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(leaves)
        if chance.random() < 0.3:
            return [made(depth - 1) for _ in range(2)]
        return {chance.choice(names): made(depth - 1) for _ in range(4)}

    for _ in range(3000):
        event = made(4)
        if isinstance(event, dict):
            for line in lines_of(event | {"type": chance.choice(kinds)}):
                assert isinstance(line, str)
    deep = b'{"type":' + b"[" * 50000
    assert list(Lines().feed(deep + b"\n"))


def test_a_line_in_pieces_is_one() -> None:
    lines = Lines()
    found = [line for piece in (b"a", b"b\nc", b"", b"d", b"\n\ne") for line in lines.feed(piece)]
    assert found == ["ab", "cd", ""]
    for _ in range(20):
        assert list(lines.feed(b"x" * 100_000)) == []
    assert list(lines.feed(b"the end of one that was too long\nnext\n")) == ["next"]
    assert list(lines.end()) == []
