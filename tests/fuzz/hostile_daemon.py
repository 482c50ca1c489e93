"""What clients take from a daemon that may be anybody."""

from __future__ import annotations

import socket

from hypothesis import strategies as st

from agentkernel.client import frames, results, wire
from agentkernel.client._sync.transport import Connection
from agentkernel.client.socket_stream import Stream
from agentkernel.errors import DaemonError

from .making import bodies, damaged, pieces, texts
from .target import Target

_header_values = st.one_of(
    st.sampled_from(["0", "5", "chunked", "close", "-1", "²", "9" * 5000, "application/json"]),
    st.text(st.characters(max_codepoint=255), max_size=8),
)
_headers = st.lists(
    st.tuples(
        st.sampled_from(["Content-Length", "Transfer-Encoding", "Connection", "content-type", "x"]),
        _header_values,
    ),
    max_size=4,
)


def _answer(status: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


_problems = bodies(
    {
        "code": st.sampled_from(["not_found", "file_error", "command_failed", "new_one"]),
        "detail": st.text(max_size=9),
        "title": st.text(max_size=9),
        "hint": st.text(max_size=9),
        "details": bodies(
            {
                "errno_name": st.just("ENOENT"),
                "path": st.just("/a"),
                "self": st.just(1),
                "message": st.just(1),
                "result": st.just(1),
                "status": st.just(1),
                "code": st.just("x"),
            }
        ),
    }
)
_chunks = st.sampled_from(
    [b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffff\r\n", b"+1;a\r\nx\r\n"]
)
_answers = pieces(
    damaged(
        st.builds(
            _answer,
            st.sampled_from(["200", "404", "500", "101", "204", "2²0", "99999"]),
            _headers,
            st.one_of(_chunks, texts(_problems), st.binary(max_size=20)),
        )
    )
)


class _Pieces(Stream):
    """A stream that was recorded."""

    def __init__(self, parts: list[bytes]) -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        super().__init__(ours)
        self._parts = [part for part in parts if part]

    def write(self, data: bytes, deadline: float | None) -> None:
        pass

    def read(self, deadline: float | None) -> bytes:
        return self._parts.pop(0) if self._parts else b""


def read_answer(parts: list[bytes]) -> None:
    stream = _Pieces(parts)
    try:
        connection = Connection(stream)
        head = connection.send(b"x", None)
        assert 0 <= head.status <= 999
        body = b"".join(connection.body(head, None))
        assert len(body) <= sum(map(len, parts))
        if head.status >= 400:
            wire.raise_problem(head, body)
    finally:
        stream.close()


def read_problem(body: bytes) -> None:
    wire.raise_problem(wire.Head(500, {"content-type": "application/problem+json"}), body)


_ws = st.builds(
    lambda first, payload: bytes((first, min(len(payload), 125))) + payload[:125],
    st.sampled_from([0x81, 0x82, 0x02, 0x00, 0x80, 0x88, 0x89, 0x09, 0xC2]),
    st.binary(max_size=140),
)


def read_messages(parts: list[bytes]) -> None:
    decoder = frames.Decoder()
    for part in parts:
        decoder.feed(part)
        while (message := decoder.next()) is not None:
            assert len(message[1]) <= frames.MAX_MESSAGE


_results = bodies(
    {
        "id": st.just("a"),
        "state": st.just("running"),
        "outcome": st.sampled_from(["exited", "signaled", "lost"]),
        "exit_code": st.integers(0, 9),
        "usage": bodies({"cpu_seconds": st.floats(0, 1)}),
        "stdout": st.text(max_size=9),
        "stderr_b64": st.sampled_from(["YQ==", "a", "é"]),
        "name": st.text(max_size=4),
        "name_b64": st.sampled_from(["YQ==", "a", "é"]),
        "type": st.just("file"),
        "result": bodies({"outcome": st.just("exited")}),
        "labels": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        **dict.fromkeys(("size", "mode", "uid", "gid", "mtime_ms"), st.integers(0, 9)),
    }
)


def read_results(body: bytes) -> None:
    value = wire.parse_json(body)
    for kind in (results.CommandResult, results.SandboxInfo, results.JobInfo, results.Entry):
        try:
            kind.of(value)
        except DaemonError:
            continue


TARGETS = [
    Target("answers", _answers, read_answer),
    Target("problems", texts(_problems), read_problem),
    Target("websocket", pieces(damaged(st.lists(_ws, max_size=5).map(b"".join))), read_messages),
    Target("results", texts(_results), read_results),
]
