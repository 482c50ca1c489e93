"""Lines behind a number, over files that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.audit.entries import Actor
from agentkernel.audit.files import log_files
from agentkernel.audit.log import AuditLog, Retention
from agentkernel.audit.reading import follow_after, lines_after

SMALL = Retention(file_bytes=64 << 10, keep_bytes=1 << 20)
COUNT = 900


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of several files."""
    log = AuditLog(tmp_path / "audit", SMALL)
    for number in range(COUNT):
        log.append(f"act.{number}", actor=Actor(door="test"), args={"text": "x" * 100})
    log.close()
    assert len(log_files(tmp_path / "audit")) > 3
    return tmp_path / "audit"


def numbers(directory: Path, after: int | None, most: int) -> list[int]:
    return [line.entry.seq for line in lines_after(directory, after, most)]


@pytest.mark.parametrize("most", [1, 7, 400, 5000])
def test_pages_are_the_whole_in_order(directory: Path, most: int) -> None:
    everything = numbers(directory, 0, 100_000)
    assert len(everything) >= COUNT and everything == sorted(everything)
    seen: list[int] = []
    after = 0
    while len(seen) < 60 or most > 60:
        page = numbers(directory, after, most)
        if not page:
            break
        seen += page
        after = page[-1]
    assert seen == everything[: len(seen)]
    assert numbers(directory, None, most) == everything[-most:]


def test_what_is_removed_or_not_there(directory: Path, tmp_path: Path) -> None:
    everything = numbers(directory, 0, 100_000)
    log_files(directory)[0].unlink()
    left = numbers(directory, 0, 100_000)
    assert left == everything[-len(left) :] and len(left) < len(everything)
    assert numbers(directory, everything[-1], 10) == []
    assert numbers(tmp_path / "nowhere", 0, 10) == numbers(tmp_path / "nowhere", None, 10) == []


def test_followers_begin_where_they_are_told(directory: Path, tmp_path: Path) -> None:
    everything = numbers(directory, 0, 100_000)
    follower = follow_after(directory, everything[500])
    got = [line.entry.seq for line in follower.more() if line.entry.seq > everything[500]]
    follower.close()
    assert got == everything[501:]
    latest = follow_after(directory, None)
    assert list(latest.more()) == []
    log = AuditLog(directory, SMALL)
    log.append("act.new", actor=Actor(door="test"))
    log.close()
    assert "act.new" in [line.entry.action for line in latest.more()]
    latest.close()
    assert list(follow_after(tmp_path / "nowhere", 5).more()) == []
