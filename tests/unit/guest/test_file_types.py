"""Records and entries of a hostile guest: checked, or a protocol error, and never anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.errors import GuestFileTooLargeError, GuestProtocolError
from agentkernel.guest.channel import Control, End, GuestChannel, Message, Output
from agentkernel.guest.file_types import (
    RECORD_MAX,
    RecordReader,
    parse_change,
    parse_named_entry,
    parse_tree_entry,
    record,
)
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.protocol import Channel
from agentkernel.trees.entries import TreeEntry

ENTRY: dict[str, Any] = {
    "name": b"f",
    "path": b"d/f",
    "type": "file",
    "size": 3,
    "mode": 0o644,
    "uid": 0,
    "gid": 0,
    "mtime_ms": 1,
}


def test_a_good_entry() -> None:
    assert parse_named_entry(ENTRY).name == "f"
    assert parse_tree_entry(ENTRY).path == "d/f"
    assert parse_named_entry(ENTRY | {"name": b"\xff"}).name == "\udcff"


@pytest.mark.parametrize(
    "change",
    [
        {"type": "door"},
        {"type": 1},
        {"type": None},
        {"size": -1},
        {"size": "3"},
        {"size": True},
        {"size": 1.0},
        {"size": 1 << 63},
        {"mode": 0o10000},
        {"uid": 1 << 32},
        {"mtime_ms": -1},
        {"target": "text"},
        {"target": b"x" * 5000},
        {"target": b"a\0b"},
    ],
)
def test_a_bad_entry(change: dict[str, Any]) -> None:
    for parse in (parse_named_entry, parse_tree_entry):
        with pytest.raises(GuestProtocolError):
            parse(ENTRY | change)
    for key in change:
        if key != "target":
            with pytest.raises(GuestProtocolError):
                parse_named_entry({k: v for k, v in ENTRY.items() if k != key})


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"a\0", b"x" * 256, "text", 7])
def test_a_bad_name(name: object) -> None:
    with pytest.raises(GuestProtocolError):
        parse_named_entry(ENTRY | {"name": name})


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/etc/passwd",
        b"..",
        b"../x",
        b"a/../x",
        b"a//b",
        b"a/",
        b".",
        b"a/./b",
        b"a\0",
        b"x" * 256,
    ]
    + [b"/".join([b"x" * 200] * 21), "text"],
)
def test_a_path_that_leads_out(path: object) -> None:
    with pytest.raises(GuestProtocolError):
        parse_tree_entry(ENTRY | {"path": path})


@pytest.mark.parametrize("kind", ["fifo", "socket", "char", "block"])
def test_a_tree_has_no_specials(kind: str) -> None:
    with pytest.raises(GuestProtocolError):
        parse_tree_entry(ENTRY | {"type": kind})
    with pytest.raises(GuestProtocolError):
        parse_tree_entry(ENTRY | {"type": "link", "target": b""})


def test_changes() -> None:
    assert parse_change({"kind": "move", "path": b"a", "to": b"b"}).to == "b"
    for body in ({}, {"kind": "x"}, {"kind": "create"}, {"kind": "move", "path": b"a"}):
        with pytest.raises(GuestProtocolError):
            parse_change(body)


@settings(database=None)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_are_records_or_a_protocol_error(pieces: list[bytes]) -> None:
    for trees in (False, True):
        reader = RecordReader()
        try:
            for piece in pieces:
                for _ in reader.tree(piece) if trees else reader.records(piece):
                    pass
            reader.finish()
        except GuestProtocolError:
            pass


@settings(database=None)
@given(st.integers(1, 40), st.binary(max_size=2000))
def test_pieces_of_any_size_make_the_same_tree(step: int, content: bytes) -> None:
    file = ENTRY | {"size": len(content)}
    data = (record(file) + content) * 2 + record(ENTRY | {"type": "dir", "path": b"d"})
    reader = RecordReader()
    parts = [
        part
        for start in range(0, len(data), step)
        for part in reader.tree(data[start : start + step])
    ]
    reader.finish()
    assert [part.path for part in parts if isinstance(part, TreeEntry)] == ["d/f", "d/f", "d"]
    assert b"".join(part for part in parts if isinstance(part, bytes)) == content * 2


def test_a_record_is_bounded() -> None:
    with pytest.raises(GuestProtocolError):
        list(RecordReader().records((RECORD_MAX + 1).to_bytes(4, "little")))


# -- GuestFiles against an agentd that lies -------------------------------------------------------


class LyingStream:
    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.released = False

    async def next(self) -> Message:
        return self.messages.pop(0)

    async def send(self, data: bytes) -> None:
        pass

    def control(self, **body: Any) -> None:
        pass

    def consumed(self, channel: Channel, amount: int) -> None:
        pass

    def release(self) -> None:
        self.released = True


class LyingChannel:
    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.streams: list[LyingStream] = []

    def open(self, op: str, **arguments: Any) -> LyingStream:
        self.streams.append(LyingStream(self.messages))
        return self.streams[-1]

    async def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        message = self.messages.pop(0)
        assert isinstance(message, End)
        return message.body


def out(data: bytes) -> Output:
    return Output(Channel.STDOUT, data)


async def drain(files: Any) -> None:
    async for _ in files:
        pass


PAGE = record(ENTRY | {"name": b"b"})
LIES: list[tuple[str, Callable[[GuestFiles], Awaitable[object]], list[Message]]] = [
    ("a stat of nothing", lambda f: f.stat("/x"), [End({})]),
    ("made is a number", lambda f: f.mkdir("/x"), [End({"made": 1})]),
    ("removed below zero", lambda f: f.remove("/x"), [End({"removed": -1})]),
    ("more than asked for", lambda f: f.read("/x", length=2), [out(b"abc"), End({"sent": 3})]),
    ("fewer than said", lambda f: f.read("/x"), [out(b"abc"), End({"sent": 4})]),
    ("stderr", lambda f: f.read("/x"), [Output(Channel.STDERR, b"abc"), End({"sent": 3})]),
    ("a size that is none", lambda f: f.write("/x", b""), [End({"size": "big"})]),
    ("content for a write", lambda f: f.write("/x", b""), [out(b"x"), End({"size": 0})]),
    ("in circles", lambda f: f.list("/x"), [out(PAGE), End({"more": True})] * 2),
    ("unsorted", lambda f: f.list("/x"), [out(PAGE + PAGE), End({"more": False})]),
    ("empty pages", lambda f: f.list("/x"), [End({"more": True})] * 2),
    ("too long a page", lambda f: f.list("/x"), [out(PAGE * 1001), End({"more": False})]),
    ("half a record", lambda f: f.list("/x"), [out(PAGE[:-1]), End({"more": False})]),
    ("a change of nothing", lambda f: drain(f.watch("/x")), [out(record({})), End({})]),
    ("a lost file", lambda f: drain(f.tree_read("/x")), [End({"files": 1, "bytes": 0})]),
    ("half a file", lambda f: drain(f.tree_read("/x")), [out(record(ENTRY) + b"ab"), End({})]),
]


@pytest.mark.parametrize(
    ("call", "messages"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES]
)
def test_a_lie_is_a_protocol_error(
    call: Callable[[GuestFiles], Awaitable[object]], messages: list[Message]
) -> None:
    channel = LyingChannel(*messages)

    async def run() -> None:
        with pytest.raises(GuestProtocolError):
            await call(GuestFiles(cast(GuestChannel, channel)))

    asyncio.run(run())
    assert all(stream.released for stream in channel.streams)


def test_limits_hold_whatever_the_guest_sends() -> None:
    many = record(ENTRY | {"type": "dir"}) * 11
    large = record(ENTRY | {"size": 1001})

    async def run(data: bytes) -> None:
        channel = LyingChannel(out(data), End({"files": 1, "bytes": 0, "skipped": 0}))
        files = GuestFiles(cast(GuestChannel, channel))
        with pytest.raises(GuestFileTooLargeError):
            await drain(files.tree_read("/x", limit_files=10, limit_bytes=1000))

    for data in (many, large):
        asyncio.run(run(data))


def test_control_messages_are_ignored() -> None:
    channel = LyingChannel(Control({"ev": "new"}), out(b"ab"), Control({}), End({"sent": 2}))

    async def run() -> None:
        assert await GuestFiles(cast(GuestChannel, channel)).read("/x") == b"ab"

    asyncio.run(run())
