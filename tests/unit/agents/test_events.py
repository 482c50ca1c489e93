"""What agents print, as they really do (recorded), and as nobody should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.agents.definition import EventFormat
from agentkernel.agents.events import (
    MAX_COMMANDS,
    MAX_FILES,
    MAX_LINE,
    MAX_TEXT,
    MAX_WORDS,
    AcpReader,
    EventReader,
)
from agentkernel.agents.model import AgentUsage

RECORDED = Path(__file__).parent / "recorded"
FORMATS: tuple[EventFormat, ...] = get_args(EventFormat)
TWICE = ["python3 test_calc.py"] * 2
DONE = "Fixed: add() adds now."


def _read(format: EventFormat, file: str) -> EventReader:
    reader = EventReader(format)
    for line in (RECORDED / file).read_bytes().splitlines(keepends=True):
        reader.feed(line)
    return reader


@pytest.mark.parametrize(
    ("format", "conversation", "commands", "usage"),
    [
        (
            "claude",
            "0d3a8507-4ee5-49b8-8dd9-fdc187eabc52",
            TWICE,
            AgentUsage(cost_usd=0.00375, input_tokens=500, output_tokens=50, turns=5),
        ),
        (
            "codex",
            "01a1e4a1-11af-7b82-b799-14f56d6d56f9",
            ["cat calc.py", *TWICE],
            AgentUsage(input_tokens=500, output_tokens=50, turns=1),
        ),
        (
            "gemini",
            "19a30b61-b48b-4fdc-9f97-febb583ba74a",
            TWICE,
            AgentUsage(input_tokens=500, output_tokens=50),
        ),
        (
            "opencode",
            "ses_e1b5e83ccffe1sA25pVYLV0EoU",
            TWICE,
            AgentUsage(cost_usd=0.00225, input_tokens=500, output_tokens=50, turns=5),
        ),
    ],
)
def test_recorded(
    format: EventFormat, conversation: str, commands: list[str], usage: AgentUsage
) -> None:
    reader = _read(format, f"{format}.jsonl")
    assert reader.conversation == conversation
    assert reader.commands == commands
    assert reader.files == ["/workspace/calc.py"]
    assert reader.text == DONE
    assert reader.usage == usage
    assert reader.complete


def test_aider_says_it_in_words() -> None:
    reader = _read("aider", "aider.txt")
    assert reader.files == ["calc.py"]
    assert reader.usage == AgentUsage(cost_usd=0.0014, input_tokens=300, output_tokens=30, turns=3)
    assert "Aider v0.86.2" in reader.text
    reader.feed(
        b"Tokens: 2.5k sent, 1.2k cache hit, 91 received. Cost: $0.01 message, $0.02 session."
    )
    assert reader.usage == AgentUsage(cost_usd=0.02, input_tokens=2800, output_tokens=121, turns=4)


@pytest.mark.parametrize(
    ("agent", "usage"),
    [
        ("claude", AgentUsage(cost_usd=0.00375, input_tokens=500, output_tokens=50, turns=1)),
        ("codex", AgentUsage(turns=1)),
        ("gemini", AgentUsage(input_tokens=500, output_tokens=50, turns=1)),
    ],
)
def test_recorded_acp(agent: str, usage: AgentUsage) -> None:
    reader = AcpReader()
    for line in (RECORDED / f"{agent}.acp.jsonl").read_text().splitlines():
        message = json.loads(line)
        if "update" in message:
            reader.update(message)
        else:
            reader.ended(message["result"])
    assert reader.conversation
    assert reader.commands == TWICE
    assert reader.files == ["/workspace/calc.py"]
    assert reader.text == DONE
    assert reader.usage == usage
    reader.ended({"usage": {"inputTokens": 5, "outputTokens": 1}})
    assert reader.usage.turns == 2
    assert reader.usage.input_tokens == (usage.input_tokens or 0) + 5


@pytest.mark.parametrize("value", ["--help", "a b", "", "x" * 200, "-", 5, None, ["x"], "a\n", "é"])
def test_an_id_that_would_be_an_option_is_none(value: object) -> None:
    reader = EventReader("claude")
    reader.feed(json.dumps({"session_id": value}).encode())
    assert reader.conversation is None
    reader.feed(b'{"session_id": "abc-1"}')
    assert reader.conversation == "abc-1"


def test_what_is_kept_is_bounded() -> None:
    reader = EventReader("claude")
    for number in range(MAX_COMMANDS + 5):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
        other = {"type": "tool_use", "id": f"u{number}", "name": "Write"}
        content = [
            {**use, "input": {"command": "x" * MAX_WORDS * 2 if number == 0 else f"c{number}"}},
            {**other, "input": {"file_path": f"/f{number}"}},
            {"type": "text", "text": "t" * (MAX_TEXT + 1)},
        ]
        reader.feed(json.dumps({"type": "assistant", "message": {"content": content}}).encode())
    assert len(reader.commands) == MAX_COMMANDS and len(reader.files) == MAX_FILES
    assert len(reader.commands[0]) == MAX_WORDS and len(reader.text) == MAX_TEXT
    assert not reader.complete
    long = EventReader("codex")
    assert long.feed(b'{"type": "' + b"x" * MAX_LINE + b'"}') is None
    assert not long.complete


@pytest.mark.parametrize(
    "number", [True, -1, 1 << 60, 10**400, float("inf"), float("nan"), "5", None, [], 1e300]
)
def test_numbers_that_are_none_count_for_nothing(number: object) -> None:
    reader = EventReader("codex")
    event = {"type": "turn.completed", "usage": {"input_tokens": number}}
    reader.feed(json.dumps(event).encode())
    assert reader.usage.input_tokens is None and reader.usage.turns == 1


def test_calls_count_once() -> None:
    reader = EventReader("opencode")
    part = {"tool": "bash", "callID": "a", "state": {"input": {"command": "ls"}}}
    for _ in range(3):
        reader.feed(json.dumps({"type": "tool_use", "part": part}).encode())
    assert reader.commands == ["ls"]


def test_deep_and_broken_json_is_no_event() -> None:
    reader = EventReader("gemini")
    for line in (b"{" * 10_000, b'{"a":' * 10_000, b"{", b"[]", b"", b"\xff\xfe", b'{"a": 1}x'):
        assert reader.feed(line) is None
    assert reader.feed(b'{"type": "x"}\r\n') == {"type": "x"}


_WORDS = st.sampled_from(
    """
    type session_id sessionID message content item part state input usage tool_use assistant
    result item.completed command command_execution changes file_change stats tokens
    step_finish turn.completed name Bash tool bash update sessionUpdate tool_call toolCallId
    kind execute edit rawInput locations path diff cost amount currency USD text usage_update
    agent_message_chunk status completed title cache _meta quota token_count input_tokens
    output_tokens turns delta role
    """.split()  # noqa: SIM905
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=4), inner)
    ),
    max_leaves=25,
)


@settings(max_examples=60)
@given(st.lists(_JSON | st.dictionaries(_WORDS, _JSON), max_size=6))
def test_readers_never_raise(events: list[Any]) -> None:
    lines = [json.dumps(event).encode() for event in events]
    for format in FORMATS:
        reader = EventReader(format)
        for line in lines:
            reader.feed(line)
        assert all(isinstance(command, str) for command in reader.commands)
        assert reader.usage.turns is None or reader.usage.turns >= 0
    acp = AcpReader()
    for event in events:
        acp.update(event)
        acp.update({"sessionId": "s", "update": event})
        acp.ended(event)


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_bytes_never_raise(lines: list[bytes]) -> None:
    for format in FORMATS:
        reader = EventReader(format)
        for line in lines:
            reader.feed(line)
            reader.feed(b"{" + line)
