"""Any single change to a log is found; what the chain alone can't show, a kept head does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkernel.audit.entries import Entry, Head, encode_line, parse_head
from agentkernel.audit.files import log_files
from agentkernel.audit.log import AuditLog, Retention
from agentkernel.audit.verify import verify
from agentkernel.errors import InvalidInputError

Content = dict[str, bytes]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Content, Head]:
    """Three files, the first of which is not the first ever."""
    directory = tmp_path_factory.mktemp("valid") / "audit"
    log = AuditLog(directory, Retention(file_bytes=64 << 10, keep_bytes=192 << 10))
    for number in range(700):
        log.append("exec", args={"argv": ["echo", str(number)], "text": "x" * 300}, result="ok")
    head = log.head
    log.close()
    content = {path.name: path.read_bytes() for path in log_files(directory)}
    assert len(content) >= 3 and min(content) != "0000000000000001.jsonl"
    assert verify(directory, head).ok
    return content, head


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed")


def kinds(place: Path, content: Content, against: Head | None = None) -> list[str]:
    for path in place.iterdir():
        if path.name not in content:
            path.unlink()
    for name, data in content.items():
        path = place / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return [problem.kind for problem in verify(place, against).problems]


fast = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@fast
@given(data=st.data())
def test_a_changed_byte(valid: tuple[Content, Head], place: Path, data: st.DataObject) -> None:
    content = dict(valid[0])
    name = data.draw(st.sampled_from(sorted(content)))
    at = data.draw(st.integers(0, len(content[name]) - 1))
    new = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[name][at]))
    content[name] = content[name][:at] + bytes([new]) + content[name][at + 1 :]
    assert kinds(place, content)


@fast
@given(data=st.data())
def test_bytes_put_in_or_taken_out(
    valid: tuple[Content, Head], place: Path, data: st.DataObject
) -> None:
    content = dict(valid[0])
    name = data.draw(st.sampled_from(sorted(content)))
    at = data.draw(st.integers(0, len(content[name]) - 1))
    if data.draw(st.booleans()):
        piece = data.draw(st.binary(min_size=1, max_size=20))
        content[name] = content[name][:at] + piece + content[name][at:]
    else:
        size = data.draw(st.integers(1, 2000))
        content[name] = content[name][:at] + content[name][at + size :]
    # A cut at the end of a line at the end of the log is all that needs the head.
    assert kinds(place, content, valid[1])


@fast
@given(data=st.data())
def test_a_line_removed_repeated_or_moved(
    valid: tuple[Content, Head], place: Path, data: st.DataObject
) -> None:
    content, head = dict(valid[0]), valid[1]
    name = data.draw(st.sampled_from(sorted(content)))
    lines = content[name].splitlines(keepends=True)
    one = data.draw(st.integers(0, len(lines) - 1))
    what = data.draw(st.sampled_from(["remove", "repeat", "swap", "move to another file"]))
    if what == "remove":
        del lines[one]
    elif what == "repeat":
        lines.insert(data.draw(st.integers(0, len(lines))), lines[one])
    elif what == "swap":
        other = data.draw(st.integers(0, len(lines) - 1).filter(lambda index: index != one))
        lines[one], lines[other] = lines[other], lines[one]
    else:
        other_name = data.draw(st.sampled_from(sorted(set(content) - {name})))
        content[other_name] += lines.pop(one)
    content[name] = b"".join(lines)
    assert kinds(place, content, head)


@fast
@given(data=st.data())
def test_a_line_of_somebody_elses_with_a_right_hash(
    valid: tuple[Content, Head], place: Path, data: st.DataObject
) -> None:
    """Changing a line and its hash needs every later line changed too."""
    content = dict(valid[0])
    name = data.draw(st.sampled_from(sorted(content)))
    lines = content[name].splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 2))
    entry = msgspec.json.decode(lines[at], type=Entry)
    forged, _ = encode_line(msgspec.structs.replace(entry, time=entry.time + 1))
    lines[at] = forged
    content[name] = b"".join(lines)
    assert "unlinked" in kinds(place, content)


def test_a_file_that_is_gone(valid: tuple[Content, Head], place: Path) -> None:
    content, head = valid
    for name in content:
        rest = {other: data for other, data in content.items() if other != name}
        assert kinds(place, rest, head), name
        if name != max(content):
            assert kinds(place, rest), name


def test_a_file_by_another_name(valid: tuple[Content, Head], place: Path) -> None:
    content = dict(valid[0])
    content["9999999999999999.jsonl"] = content.pop(max(content))
    assert kinds(place, content)


def test_a_cut_end_shows_against_a_kept_head_alone(
    valid: tuple[Content, Head], place: Path
) -> None:
    content, head = dict(valid[0]), valid[1]
    name = max(content)
    lines = content[name].splitlines(keepends=True)
    content[name] = b"".join(lines[:-1])
    assert kinds(place, content) == []
    assert kinds(place, content, head) == ["head"]


def test_a_log_written_anew_shows_against_a_kept_head_alone(tmp_path: Path) -> None:
    heads = []
    for words in ("one", "two"):
        directory = tmp_path / words
        log = AuditLog(directory)
        log.append(words)
        heads.append(log.head)
        log.close()
    assert verify(tmp_path / "two").ok
    (problem,) = verify(tmp_path / "two", heads[0]).problems
    assert problem.kind == "head"


def test_no_log_is_not_a_good_log(tmp_path: Path) -> None:
    assert [problem.kind for problem in verify(tmp_path / "nowhere").problems] == ["missing"]


def test_garbage_is_a_report_and_no_traceback(tmp_path: Path) -> None:
    name = "0000000000000001.jsonl"
    for data in (
        b"",
        b"\n",
        b"\0" * 300_000,
        b"[" * 100_000 + b"\n",
        b'{"seq":1}\n',
        b"{}\n" * 500,
    ):
        (tmp_path / name).write_bytes(data)
        report = verify(tmp_path)
        assert not report.ok and len(report.problems) <= 100


@pytest.mark.parametrize("text", ["", "1", "1:", ":" + "a" * 64, "x:" + "a" * 64, "1:" + "A" * 64])
def test_heads_are_checked(text: str) -> None:
    with pytest.raises(InvalidInputError, match="head"):
        parse_head(text)


def test_a_head_is_read_as_it_is_printed() -> None:
    head = Head(12, "ab" * 32)
    assert parse_head(f" {head}\n") == head
