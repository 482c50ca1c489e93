"""What is kept of a session on disk: whole lines, bounded, and as a crash leaves them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import NotFoundError
from agentkernel.kernel.agents import files as session_files
from agentkernel.kernel.agents.files import Position, SessionFiles, SessionWriter


def writer(path: Path, *, size: tuple[int, int] | None = None) -> SessionWriter:
    return SessionWriter(SessionFiles(path), size=size, title="t")


def log(path: Path, after: int = 0) -> list[tuple[int, str, dict[str, Any]]]:
    return [(one.seq, one.kind, one.body) for one, _ in SessionFiles(path).read(after)]


def test_events_come_back_in_order(tmp_path: Path) -> None:
    one = writer(tmp_path / "s")
    for number in range(3):
        one.tell("agent", {"n": number})
    one.close()
    assert log(tmp_path / "s", 1) == [(2, "agent", {"n": 1}), (3, "agent", {"n": 2})]
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "s" / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_what_is_after_the_position_is_cut_off_and_numbered_anew(tmp_path: Path) -> None:
    one = writer(tmp_path, size=(24, 80))
    one.tell("agent", {"n": 1})
    one.show("o", "kept")
    one.keep(10, 0)
    one.tell("agent", {"n": 2})
    one.show("o", "lost")
    one.close()  # as a kill leaves it
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"seq":3,"half a li')
    two = writer(tmp_path, size=(24, 80))
    assert (two.position.out, two.seq) == (10, 1)
    two.tell("agent", {"n": "again"})
    two.close()
    assert log(tmp_path) == [(1, "agent", {"n": 1}), (2, "agent", {"n": "again"})]
    lines = (tmp_path / "session.cast").read_text().splitlines()
    assert [json.loads(line)[2] for line in lines[1:]] == ["kept"]


def test_half_a_line_is_nobody_s(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.tell("agent", {})
    one.close()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"seq":2,"at":1')
    assert [seq for seq, _, _ in log(tmp_path)] == [1]


def test_both_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_files, "MAX_EVENTS", 2000)
    monkeypatch.setattr(session_files, "MAX_CAST", 2000)
    one = writer(tmp_path, size=(24, 80))
    for _ in range(100):
        one.tell("agent", {"text": "x" * 100})
        one.show("o", "x" * 100)
    assert one.tell("agent", {"text": "x" * 100}) is None
    one.tell("ended", {"exit_code": 0})
    one.keep(0, 0)
    one.close()
    kinds = [kind for _, kind, _ in log(tmp_path)]
    assert kinds[-2:] == ["session", "ended"] and kinds.count("session") == 1
    assert (tmp_path / "events.jsonl").stat().st_size < 3000
    lines = (tmp_path / "session.cast").read_text().splitlines()
    assert json.loads(lines[-1])[1:] == ["m", "the recording ends here: it is full"]
    again = writer(tmp_path, size=(24, 80))
    assert again.tell("agent", {"text": "x" * 2000}) is None, "it forgot that it is full"
    again.close()


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"a": "\ud800x"}, {"a": "\\ud800x"}),
        ({"\udfff": ["\ud800", {"b": "\ud800"}]}, {"\\udfff": ["\\ud800", {"b": "\\ud800"}]}),
        ({"a": 1 << 80}, {"a": 1 << 80}),
        ({"a": float("nan")}, {"a": None}),
        ({"a": "\x1b]0;title\x07"}, {"a": "\x1b]0;title\x07"}),
    ],
)
def test_what_no_file_can_hold_ends_no_log(
    tmp_path: Path, body: dict[str, Any], kept: dict[str, Any]
) -> None:
    one = writer(tmp_path)
    one.tell("agent", body)
    one.tell("ended", {})
    one.close()
    assert log(tmp_path) == [(1, "agent", kept), (2, "ended", {})]
    assert b"\x1b" not in (tmp_path / "events.jsonl").read_bytes()


def test_a_full_disk_ends_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = writer(tmp_path)
    one.tell("agent", {"n": 1})
    real = os.write
    calls = iter((lambda fd, data: real(fd, data[:5]), _full))
    monkeypatch.setattr(os, "write", lambda fd, data: next(calls)(fd, data))
    assert one.tell("agent", {"n": 2}) is None
    monkeypatch.setattr(os, "write", real)
    one.tell("agent", {"n": 3})
    one.close()
    assert log(tmp_path) == [(1, "agent", {"n": 1}), (2, "agent", {"n": 3})]


def _full(fd: int, data: bytes) -> int:
    raise OSError(28, "No space left on device")


def test_a_position_that_is_none_is_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "position").write_bytes(b"{")
    assert SessionFiles(tmp_path).position() == Position()
    with pytest.raises(NotFoundError):
        SessionFiles(tmp_path).recording()
