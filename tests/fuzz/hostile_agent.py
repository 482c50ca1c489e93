"""What the host takes from inside a sandbox, from an agentd that may be anybody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from agentkernel.errors import AgentKernelError
from agentkernel.guest import file_types, protocol
from agentkernel.guest.channel import End, GuestChannel
from agentkernel.guest.file_calls import file_errors
from agentkernel.guest.processes import GuestProcess, ProcessOptions, exit_status
from agentkernel.trees.local import TreeUnpacker

from .making import bodies, damaged, packed, pieces
from .target import Target

TOKEN = b"t" * protocol.TOKEN_BYTES
NONCE = b"n" * protocol.NONCE_BYTES

_names = st.one_of(
    st.sampled_from([b"a", b"b", b"a/b", b"..", b"", b"x" * 256]), st.binary(max_size=6)
)
_hellos = bodies(
    {
        "gen": st.just(1),
        "nonce": st.just(NONCE),
        "proof": st.binary(min_size=32, max_size=32),
        "version": st.text(max_size=5),
        "guard": bodies({"uid": st.just(0), "caps": st.just(0), "dumpable": st.just(0)}),
        "code": st.sampled_from(["generation", "refused"]),
    }
)
_ends = bodies(
    {
        "outcome": st.sampled_from(["exited", "signaled", "timeout", "not_started", "oom", "lost"]),
        "code": st.integers(0, 300),
        "signal": st.integers(0, 70),
        "errno": st.just("ENOENT"),
        "stage": st.just("exec"),
        **dict.fromkeys(("out", "err", "out_dropped", "cpu_us", "max_rss_kb"), st.integers(0, 9)),
    }
)
_events = bodies(
    {
        "ev": st.sampled_from(["started", "attached", "dropped", "eof", "connected"]),
        "pid": st.integers(1, 9),
        "credit": st.integers(0, 2**40),
        **dict.fromkeys(("out", "err", "ch", "offset", "bytes"), st.integers(0, 9)),
    }
)
_refusals = bodies(
    {
        "code": st.sampled_from(
            ["busy", "exists", "ENOENT", "limit", "special", "errorcode", "no_such_user"]
        ),
        "message": st.text(max_size=10),
        "path": st.binary(max_size=10),
    }
)
_entries = bodies(
    {
        "name": _names,
        "path": _names,
        "type": st.sampled_from(["file", "dir", "link", "fifo"]),
        "target": _names,
        **dict.fromkeys(("size", "mode", "uid", "gid", "mtime_ms"), st.integers(0, 9)),
    }
)
_changes = bodies(
    {"kind": st.sampled_from(["ready", "create", "move", "overflow"]), "path": _names, "to": _names}
)


def _frame(stream: int, kind: int, payload: bytes) -> bytes:
    return protocol._HEADER.pack(5 + len(payload), stream, kind) + payload


_payloads = st.one_of(
    packed(_ends),
    packed(_refusals),
    packed(_events).map(lambda data: b"\3" + data),
    st.binary(max_size=30).map(lambda data: b"\1" + data),
    st.integers(0, 2**32 - 1).map(lambda n: b"\0" + n.to_bytes(4, "little")),
)
_frames = st.builds(_frame, st.sampled_from([0, 1, 2, 3, 7]), st.integers(0, 8), _payloads)
_conversation = pieces(damaged(st.lists(_frames, max_size=6).map(b"".join)))


def read_frames(parts: list[bytes]) -> None:
    parser = protocol.FrameParser()
    for part in parts:
        for frame in parser.feed(part):
            assert len(frame.payload) <= protocol.MAX_LENGTH
            with contextlib.suppress(AgentKernelError):
                protocol.parse_map(frame.payload)
            with contextlib.suppress(AgentKernelError):
                protocol.parse_data(frame.payload)
            with contextlib.suppress(AgentKernelError):
                protocol.parse_credit(frame.payload)
        assert len(parser._buffer) <= protocol.MAX_LENGTH + len(part) + 4


def greet(payload: bytes) -> None:
    for kind in (protocol.FrameType.HELLO, protocol.FrameType.ERROR):
        protocol.check_agent_hello(protocol.Frame(0, kind, payload), TOKEN, NONCE)


class _Transport(asyncio.Transport):
    """Where a channel writes to when nobody is there."""

    def write(self, data: Any) -> None:
        assert data

    def abort(self) -> None:
        pass


async def _converse(parts: list[bytes]) -> None:
    channel = GuestChannel(TOKEN)
    channel.connection_made(_Transport())
    channel._greeting.set_result(protocol.AgentHello(1, "", NONCE, 0, 0))
    started = GuestProcess.start(channel, ["x"], ProcessOptions(stdin=True))
    attached = GuestProcess.attach(channel, "a" * 20)
    call = asyncio.ensure_future(channel.call("ping"))
    await asyncio.sleep(0)
    for part in parts:
        channel.data_received(part)
    channel.connection_lost(None)
    for process in (started, attached):
        with contextlib.suppress(AgentKernelError):
            await process.started()
            while await process.output() is not None:
                pass
    with contextlib.suppress(AgentKernelError):
        await call
    assert isinstance(channel.closed.result(), AgentKernelError)


def converse(parts: list[bytes]) -> None:
    asyncio.run(_converse(parts))


def read_end(payload: bytes) -> None:
    status = exit_status(End(protocol.parse_map(payload)))
    assert status.exit_code is None or 0 <= status.exit_code <= 255


def read_refusal(payload: bytes) -> None:
    from agentkernel.guest.channel import _request_error

    with file_errors("/a"):
        raise _request_error(protocol.parse_map(payload))


def read_file_answers(payload: bytes) -> None:
    body = protocol.parse_map(payload)
    parsers = (file_types.parse_named_entry, file_types.parse_tree_entry, file_types.parse_change)
    for parse in parsers:
        with contextlib.suppress(AgentKernelError):
            parse(body)


def read_list(payload: bytes) -> None:
    """The answers of `list`: see kernel/jobs.py, which takes its items one by one."""
    body = protocol.parse_map(payload)
    for entry in body.get("procs", []) if isinstance(body.get("procs"), list) else []:
        if isinstance(entry, dict):
            with contextlib.suppress(AgentKernelError):
                exit_status(End(entry))


def _record(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


_trees = pieces(
    damaged(
        st.lists(st.one_of(packed(_entries).map(_record), st.binary(max_size=9)), max_size=6).map(
            b"".join
        )
    )
)


def unpack_tree(parts: list[bytes]) -> None:
    """Whatever the tree says, nothing appears beside the directory it is unpacked to."""
    with tempfile.TemporaryDirectory(prefix="fuzz-tree-") as name:
        place = Path(name, "1", "2", "3", "place")
        place.mkdir(parents=True)
        reader = file_types.RecordReader()
        unpacker = TreeUnpacker(place, limit_bytes=10_000, limit_files=50)
        try:
            for part in parts:
                for item in reader.tree(part):
                    unpacker.feed(item)
            reader.finish()
            unpacker.summary(0)
        except OSError:
            pass  # of the local disk: names that clash, or that it does not take
        finally:
            unpacker.close()
            above = [sorted(os.listdir(Path(name, *path))) for path in ((), "1", ("1", "2"), "123")]
            assert above == [["1"], ["2"], ["3"], ["place"]], above
            for folder, folders, files in os.walk(os.fsencode(place)):
                for entry in (*folders, *files):
                    real = os.path.realpath(os.path.join(folder, entry))
                    assert real.startswith(os.fsencode(name) + b"/1/2/3/place"), real


TARGETS = [
    Target("frames", _conversation, read_frames),
    Target("greeting", packed(_hellos), greet),
    Target("channel", _conversation, converse),
    Target("exit-status", packed(_ends), read_end),
    Target("refusals", packed(_refusals), read_refusal),
    Target("file-answers", packed(st.one_of(_entries, _changes)), read_file_answers),
    Target("lists", packed(bodies({"procs": st.lists(_ends, max_size=3)})), read_list),
    Target("trees", _trees, unpack_tree),
]
