"""Two changes of one text; a file put in another's place; git's index."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.workspaces import displacing, git_index, recording
from agentkernel.workspaces.base import Base
from agentkernel.workspaces.git import find_git
from agentkernel.workspaces.lines import line_blocks, merge


def merged(base: str, ours: str, theirs: str) -> tuple[str, int]:
    found = merge(base.encode(), ours.encode(), theirs.encode(), our_name="A", their_name="B")
    return found.content.decode(), found.conflicts


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "result"),
    [
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ("a\nb\nc\n", "a\nb\nc\n", "x\n", "x\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n", "a\nc\nd\n"),
        ("", "a\n", "a\n", "a\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nc\n", "a\nc\n"),
        ("a\nb\nc", "a\nb\nc", "0\na\nb\nc", "0\na\nb\nc"),
    ],
)
def test_what_does_not_meet(base: str, ours: str, theirs: str, result: str) -> None:
    assert merged(base, ours, theirs) == (result, 0)


def test_what_meets_stands_between_marks() -> None:
    text, conflicts = merged("a\nb\nc", "a\nX\nc", "a\nb\nY")
    assert conflicts == 1
    assert text == "a\n<<<<<<< A\nX\nc\n=======\nb\nY\n>>>>>>> B\n"


def test_as_git_merges(tmp_path: Path) -> None:
    chance = random.Random(7)

    def edited(lines: list[str]) -> list[str]:
        lines = list(lines)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(lines) + 1)
            if chance.random() < 0.5:
                lines.insert(at, f"new {chance.randrange(50)}\n")
            else:
                lines[at : at + 1] = [f"other {chance.randrange(50)}\n"] * chance.randrange(2)
        return lines

    for _ in range(40):
        base = [f"{chance.randrange(20)}\n" for _ in range(chance.randrange(40))]
        texts = ["".join(lines) for lines in (edited(base), base, edited(base))]
        for name, text in zip("abc", texts, strict=True):
            (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["git", "merge-file", "-p", "-q", "-L", "A", "-L", "O", "-L", "B", "a", "b", "c"],
            cwd=tmp_path, capture_output=True, check=False, timeout=20, text=True,
        )  # fmt: skip
        ours, conflicts = merged(texts[1], texts[0], texts[2])
        assert bool(conflicts) == bool(done.returncode), texts
        if not conflicts:
            assert ours == done.stdout


def test_blocks_rebuild_the_other_text() -> None:
    chance = random.Random(3)
    for _ in range(200):
        left = [chance.choice("abcde") for _ in range(chance.randrange(120))]
        right = [chance.choice("abcde") for _ in range(chance.randrange(120))]
        built, at = [], 0
        for i1, i2, j1, j2 in line_blocks(left, right):
            built += left[at:i1] + right[j1:j2]
            at = i2
        assert built + left[at:] == right


@pytest.mark.parametrize(
    "line",
    [lambda n, _: n * 7919 % 2, lambda n, r: n * r % 300, lambda n, r: (n * r * r + n // 3) % 9973],
)
def test_hostile_texts_take_no_longer(line: Callable[[int, int], int]) -> None:
    texts = ["".join(f"{line(n, r)}\n" for n in range(20_000)) for r in (3, 7, 11)]
    spent = time.process_time()
    merged(*texts)
    # The bound is on steps; this is what no machine of ours needs for them.
    assert time.process_time() - spent < 30


# -- a file in another's place --------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("theirs\n")
    (tmp_path / "new").write_text("new\n")
    return tmp_path


@pytest.mark.parametrize("how", ["untouched", "rewritten", "replaced", "open"])
@pytest.mark.parametrize("what", ["replace", "remove"])
def test_what_the_host_is_changing_stays(place: Path, how: str, what: str) -> None:
    seen = (place / "file").stat()
    held = None
    if how == "rewritten":
        with open(place / "file", "r+") as file:
            file.write("edited")
    elif how == "replaced":
        (place / "other").write_text("edited\n")
        (place / "other").rename(place / "file")
    elif how == "open":
        held = open(place / "file", "a")  # noqa: SIM115
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

    def act() -> None:
        if what == "replace":
            displacing.replace(directory, "new", "file", seen)
        else:
            displacing.remove(directory, "aside", "file", seen)

    try:
        if how == "untouched":
            act()
            if what == "replace":
                assert (place / "file").read_text() == "new\n"
            else:
                assert not (place / "file").exists()
            assert not (place / "aside").exists()
            return
        with pytest.raises(displacing.ChangingError):
            act()
        if held:
            held.write("and more\n")
            held.flush()
            assert (place / "file").read_text() == "theirs\nand more\n"
        else:
            assert (place / "file").read_text() == "edited\n"
        assert (place / "new").read_text() == "new\n" and not (place / "aside").exists()
    finally:
        os.close(directory)
        if held:
            held.close()


# -- git's index ----------------------------------------------------------------------------------


def git(directory: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=directory, check=True, capture_output=True, timeout=20, text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    ).stdout  # fmt: skip


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("hash", ["sha1", "sha256"])
def test_the_index_as_git_reads_it(tmp_path: Path, version: str, hash: str) -> None:
    git(tmp_path, "init", "-q", f"--object-format={hash}")
    for name in ("a", "dir/a", "dir/ab", "dir/b\nc", "x" * 200, "ö"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--index-version", version)
    content = (tmp_path / ".git" / "index").read_bytes()
    hash_bytes = 20 if hash == "sha1" else 32
    found = git_index.parse(content, hash_bytes=hash_bytes)
    said = git(tmp_path, "ls-files", "--stage", "-z").split("\0")[:-1]
    wanted = {line.split("\t", 1)[1]: line.split()[:2] for line in said}
    assert {os.fsdecode(name): [f"{e.mode:o}", e.object] for name, e in found.items()} == wanted
    info = (tmp_path / "a").stat()
    assert (found[b"a"].mtime_ns, found[b"a"].ctime_ns) == (info.st_mtime_ns, info.st_ctime_ns)
    for cut in range(0, len(content), 7):
        with pytest.raises(git_index.BadIndexError):
            git_index.parse(content[:cut], hash_bytes=hash_bytes)


def test_a_repositorys_configuration_runs_nothing(tmp_path: Path) -> None:
    """What it names to be run on every look or read is not; and it is, by git itself."""
    project, mark, base = tmp_path / "project", tmp_path / "ran", tmp_path / "base"
    project.mkdir()
    git(project, "init", "-q")
    (project / "file").write_text("text\n")
    (project / "other").write_text("other\n")
    (project / ".gitattributes").write_text("* filter=bad diff=bad\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for name in (
        *("core.fsmonitor", "filter.bad.clean", "filter.bad.smudge", "diff.bad.textconv"),
        *("core.alternateRefsCommand", "core.sshCommand", "core.editor", "core.pager"),
    ):
        git(project, "config", name, str(program))
    (project / "file").write_text("changed\n")
    base.mkdir()
    recording.record(str(project), str(base), time.time_ns() + 10**9)
    with Base(str(base)) as known:
        file, other = known.find("file"), known.find("other")
        assert file is not None and file.content == b"changed\n"
        assert other is not None and other.content == b"other\n"
        assert known.was_there("other") and not known.was_there("missing")
    assert not mark.exists()
    git(project, "status")  # the control
    assert mark.exists()


def test_repositories_that_are_believed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert find_git(str(tmp_path)) is None
    git(tmp_path, "init", "-q")
    found = find_git(str(tmp_path / "sub"))
    assert found is not None and found.top == str(tmp_path)
    (tmp_path / ".git").rename(tmp_path / "elsewhere")
    (tmp_path / ".git").symlink_to("elsewhere")
    assert find_git(str(tmp_path)) is None
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    assert find_git(str(tmp_path)) is None
