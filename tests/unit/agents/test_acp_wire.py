"""JSON-RPC lines of an agent that may write anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.agents.acp import wire
from agentkernel.agents.acp.wire import Answer, Failure, Lines, Request


@pytest.mark.parametrize(
    "message",
    [
        Request("session/new", {"cwd": "/a"}, 1),
        Request("session/update", {"x": [1, None, "ü"]}),
        Request("initialize", None, "one"),
        Answer(1, {"stopReason": "end_turn"}),
        Answer("x", None),
        Answer(2, error=Failure(-32000, "log in", {"a": 1})),
    ],
)
def test_there_and_back(message: wire.Message) -> None:
    line = wire.encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line)["jsonrpc"] == "2.0"
    assert wire.decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"hello", b"{", b"[]", b"1", b"null", b"\xff\xfe", b"\0", b'"x"', b"{}",
        b'{"id":1}', b'{"method":5}', b'{"method":""}', b'{"id":null,"method":"a"}',
        b'{"id":{"a":1},"result":{}}', b'{"id":1.5,"result":{}}', b'{"id":true,"result":{}}',
        b'{"id":99999999999999999999,"result":{}}', b'{"id":"' + b"x" * 300 + b'","result":{}}',
        b'{"method":"' + b"x" * 300 + b'"}', b'{"result":NaN,"id":1}',
        b'{"id":1,"result":' + b"[" * 101 + b"]" * 101 + b"}",
        b'{"id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id":1,"result":' + b'{"a":' * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_message(line: bytes) -> None:
    assert wire.decode(line) is None


def test_half_a_character_does_not_lose_the_message() -> None:
    """As JavaScript writes a text that was cut in the middle of a pair."""
    assert wire.decode(b'{"id":1,"result":{"text":"a\\ud83d"}}') == Answer(1, {"text": "a\ufffd"})
    assert wire.decode(b'{"id":1,"result":{"text":"\xff"}}') == Answer(1, {"text": "\ufffd"})


def test_an_error_is_one_whatever_it_is() -> None:
    errors: list[Any] = [True, "no", {"code": "x", "message": 5}, {"code": 1 << 40}, []]
    for error in errors:
        answer = wire.decode(json.dumps({"id": 1, "error": error}).encode())
        assert isinstance(answer, Answer) and answer.error is not None
        assert answer.error.code == wire.INTERNAL_ERROR


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50)))
def test_lines_in_any_pieces(lines: list[bytes], cuts: list[int]) -> None:
    whole = [line.replace(b"\n", b" ") for line in lines]
    data = b"".join(line + b"\n" for line in whole)
    reader, found = Lines(30), []
    while data:
        size = cuts.pop() if cuts else 7
        found += list(reader.feed(data[:size]))
        data = data[size:]
    assert found == [line for line in whole if line.strip() and len(line) <= 30]
    assert reader.dropped == sum(len(line) > 30 for line in whole)


def test_a_line_that_does_not_end_is_not_held() -> None:
    reader = Lines(1000)
    for _ in range(100):
        assert list(reader.feed(b"x" * 999)) == []
        assert len(reader._rest) <= 1000
    assert list(reader.feed(b"\n{}\n")) == [b"{}"]
    assert reader.dropped == 1


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    for line in Lines().feed(data + b"\n"):
        wire.decode(line)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), _JSON))
def test_no_object_raises(body: dict[str, Any]) -> None:
    message = wire.decode(json.dumps(body).encode())
    if message is not None:
        assert wire.decode(wire.encode(message)) == message


def test_a_line_of_more_parts_than_anybody_needs() -> None:
    def line(parts: int) -> bytes:
        return b'{"jsonrpc":"2.0","method":"x","params":[' + b"[]," * parts + b"[]]}"

    assert wire.decode(line(1000)) is not None
    assert wire.decode(line(wire.MAX_PARTS)) is None
