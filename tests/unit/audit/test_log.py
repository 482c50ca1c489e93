"""The writer: rotation, retention, crashes, a full disk, and one writer at a time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentkernel.audit.entries import SEQ_LEAP, Entry, decode_line
from agentkernel.audit.files import log_files
from agentkernel.audit.log import AuditLog, Retention
from agentkernel.audit.verify import verify
from agentkernel.errors import InvalidInputError, ResourceExhaustedError, StateLockedError

SMALL = Retention(file_bytes=64 << 10, keep_bytes=256 << 10)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def entries(directory: Path) -> list[Entry]:
    found = []
    for path in log_files(directory):
        for line in path.read_bytes().splitlines():
            entry = decode_line(line)
            assert entry is not None, line
            found.append(entry)
    return found


def actions(directory: Path) -> list[str]:
    return [entry.action for entry in entries(directory)]


@contextmanager
def open_log(directory: Path, retention: Retention = SMALL) -> Iterator[AuditLog]:
    log = AuditLog(directory, retention)
    try:
        yield log
    finally:
        log.close()


def abandon(log: AuditLog) -> None:
    """As if the process were killed: nothing is said or tidied up."""
    log._closing.set()
    log._dirty.set()
    log._syncer.join()
    log._let_go()


def test_lines_go_on_over_sessions(directory: Path) -> None:
    with open_log(directory) as log:
        assert not log.crashed
        assert log.append("a") == 2
    with open_log(directory) as log:
        assert not log.crashed
        assert log.append("b") == 3
        head = log.head
    assert actions(directory) == ["log.file", "a", "b"]
    report = verify(directory, head)
    assert report.ok and report.head == head and report.gaps == []


def test_files_are_private(directory: Path) -> None:
    with open_log(directory):
        pass
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_rotation_and_retention(directory: Path) -> None:
    heads = []
    with open_log(directory) as log:
        for _ in range(2000):
            log.append("a", args={"text": "x" * 300})
            heads.append(log.head)
    files = log_files(directory)
    assert 2 <= len(files) <= 4
    assert sum(path.stat().st_size for path in files) <= SMALL.keep_bytes + (1 << 12)
    report = verify(directory, heads[-1])
    assert report.ok, report.problems
    assert report.pruned_before == report.first != 1
    # A head of the part that is gone can't be proven any more, and the reason is named.
    assert "retention" in verify(directory, heads[0]).problems[0].message
    # What somebody else removes is not taken for retention.
    files[0].unlink()
    assert [problem.kind for problem in verify(directory).problems] == ["missing"]


def test_a_file_that_should_be_pruned_is_gone_after_the_next_start(directory: Path) -> None:
    big = Retention(file_bytes=64 << 10, keep_bytes=64 << 20)
    with open_log(directory, big) as log:
        for _ in range(2000):
            log.append("a", args={"text": "x" * 300})
    before = len(log_files(directory))
    with open_log(directory) as log:
        pass
    assert len(log_files(directory)) < before
    assert verify(directory).ok


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_torn_line_is_cut_off_and_said(directory: Path, cut: int) -> None:
    log = AuditLog(directory, SMALL)
    log.append("a")
    kept = log.head
    log.append("b")
    abandon(log)
    path = log_files(directory)[-1]
    os.truncate(path, path.stat().st_size - cut)
    assert [problem.kind for problem in verify(directory).problems] == ["torn"]
    with open_log(directory) as log:
        assert log.crashed
        log.append("c")
    assert actions(directory) == ["log.file", "a", "log.repaired", "c"]
    note = entries(directory)[2]
    assert note.details["bytes"] > 0 and len(note.details["sha256"]) == 64
    report = verify(directory, kept)
    assert report.ok and report.gaps == ["line 3: log.repaired"]


def test_a_file_without_its_first_line(directory: Path) -> None:
    with open_log(directory) as log:
        log.append("a")
    (directory / "0000000000000003.jsonl").write_bytes(b'{"seq":3,"ti')
    with open_log(directory) as log:
        log.append("b")
    assert actions(directory) == ["log.file", "a", "log.repaired", "b"]
    assert verify(directory).ok


def test_whole_lines_that_are_wrong_are_left_as_they_are(directory: Path) -> None:
    with open_log(directory) as log:
        log.append("a")
    path = log_files(directory)[-1]
    with path.open("ab") as handle:
        handle.write(b'{"seq":3,"time":1,"prev":"x","action":"forged"}\nnoise\n')
    before = path.read_bytes()
    with open_log(directory) as log:
        log.append("b")
    assert path.read_bytes() == before
    problems = verify(directory).problems
    assert [problem.kind for problem in problems[:2]] == ["changed", "changed"]
    last = log_files(directory)[-1]
    first = decode_line(last.read_bytes().splitlines()[0])
    assert first and first.details["damaged"]["file"] == path.name


def test_a_stop_of_the_machine_is_a_gap(directory: Path) -> None:
    log = AuditLog(directory, SMALL)
    log.append("a")
    log.append("lost with the power")
    seen = log.head
    abandon(log)
    path = log_files(directory)[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    (directory / "session").write_text("another-boot\n")
    with open_log(directory) as log:
        log.append("b")
    found = entries(directory)
    assert [entry.action for entry in found] == ["log.file", "a", "log.gap", "b"]
    assert found[2].seq == found[1].seq + 1 + SEQ_LEAP
    report = verify(directory)
    assert report.ok and len(report.gaps) == 1
    # The number of the lost line is nobody else's: the head that was seen is missing, not wrong.
    (problem,) = verify(directory, seen).problems
    assert problem.kind == "head" and "machine stopped" in problem.message


def test_a_killed_process_is_no_gap(directory: Path) -> None:
    log = AuditLog(directory, SMALL)
    log.append("a")
    abandon(log)
    with open_log(directory) as log:
        assert log.crashed
    assert actions(directory) == ["log.file", "a"]


def test_kill_loses_nothing_that_was_said(directory: Path) -> None:
    said = 0
    for round in range(3):
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("children.py")), str(directory)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout
        for _ in range(400 + 100 * round):
            said = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split(b"\n")
        child.stdout.close()
        assert child.wait(10) == -signal.SIGKILL
        said = max([said, *(int(word) for word in rest[:-1])])
        report = verify(directory)
        assert report.head and report.head.seq >= said
        assert not [problem for problem in report.problems if problem.kind != "torn"]
    with open_log(directory) as log:
        log.append("after")
    report = verify(directory)
    assert report.ok, report.problems
    assert report.files > 1


@contextmanager
def full_disk(bytes: int) -> Iterator[None]:
    """Files can't grow beyond `bytes`: writes fail, the last one in the middle of a line."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_no_half_line(directory: Path) -> None:
    with open_log(directory) as log:
        written = 0
        with full_disk(8000), pytest.raises(ResourceExhaustedError, match="audit log"):
            while written < 1000:
                log.append("a", args={"text": "x" * 100})
                written += 1
        assert 10 < written < 999
        assert verify(directory).ok
        log.lost()
        log.lost()
        log.append("b")
    found = entries(directory)
    assert [entry.action for entry in found[-2:]] == ["log.lost", "b"]
    assert found[-2].details["lines"] == 2
    assert len(found) == 1 + written + 2
    report = verify(directory)
    assert report.ok and len(report.gaps) == 1


def test_a_file_that_can_not_be_rotated_is_gone_on_with(directory: Path) -> None:
    with open_log(directory) as log:
        while log._size < SMALL.file_bytes:
            log.append("a", args={"text": "x" * 1000})
        with full_disk(10), pytest.raises(ResourceExhaustedError):
            log.append("b")
        assert len(log_files(directory)) == 1
        log.append("c")
    assert len(log_files(directory)) == 2
    assert actions(directory)[-1] == "c"
    assert verify(directory).ok


def test_one_writer(directory: Path) -> None:
    with open_log(directory), pytest.raises(StateLockedError):
        AuditLog(directory)
    with open_log(directory):
        pass


def test_a_failed_sync_is_said(directory: Path) -> None:
    with open_log(directory) as log:
        log._failed_syncs = 1
        log.append("a")
    assert actions(directory) == ["log.file", "log.unsynced", "a"]


def test_lines_are_ascii_whatever_is_in_them(directory: Path) -> None:
    nasty = "é\x1b]0;x\x07\u202e\x9b\x7f\n\udc80"
    with open_log(directory) as log:
        log.append("a", args={"path": nasty, nasty: [nasty]})
    data = log_files(directory)[0].read_bytes()
    assert data.count(b"\n") == 2
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in data)
    entry = entries(directory)[-1]
    assert entry.args["path"] == nasty.replace("\udc80", "\\udc80")
    assert verify(directory).ok


def test_retention_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKERNEL_AUDIT_FILE_BYTES", "100000")
    monkeypatch.setenv("AGENTKERNEL_AUDIT_KEEP_BYTES", "300000")
    assert Retention.from_environment() == Retention(file_bytes=100_000, keep_bytes=300_000)
    monkeypatch.setenv("AGENTKERNEL_AUDIT_KEEP_BYTES", "much")
    with pytest.raises(InvalidInputError, match="KEEP_BYTES"):
        Retention.from_environment()
    monkeypatch.setenv("AGENTKERNEL_AUDIT_KEEP_BYTES", "1")
    with pytest.raises(InvalidInputError):
        Retention.from_environment()
