"""Actions: a line before, a line after, and what happens when one can't be written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentkernel.audit.entries import Actor, Entry, decode_line
from agentkernel.audit.files import log_files
from agentkernel.audit.log import AuditLog
from agentkernel.audit.reading import Follower, newest
from agentkernel.audit.trail import Trail, acting, audited
from agentkernel.errors import NotFoundError, ResourceExhaustedError


class Shows:
    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in given.items() if key == "word"}

    def outcome(self, result: Any) -> dict[str, Any]:
        return {"gave": result}


class Thing:
    """Two sandboxes, `a` and `b`; anything else is not there."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.done: list[str] = []

    def _find(self, id: str) -> None:
        if id not in ("a", "b"):
            raise NotFoundError(f"no sandbox {id}")
        self.trail.found(id, f"name of {id}")

    @audited("work")
    async def work(self, id: str, word: str = "", *, owner: str | None = None) -> int:
        self._find(id)
        if word == "wait":
            await asyncio.Event().wait()
        if word == "break":
            raise RuntimeError("secret words")
        self.done.append(word)
        return len(word)

    @audited("sandbox.remove")
    async def remove(self, id: str) -> None:
        self._find(id)
        self.done.append("removed")

    @audited("job.attach", "job")
    @contextlib.asynccontextmanager
    async def block(self, id: str, word: str = "") -> AsyncIterator[str]:
        self._find("a")
        try:
            yield word
        finally:
            self.done.append("left")


@pytest.fixture
def thing(tmp_path: Path) -> Iterator[Thing]:
    log = AuditLog(tmp_path / "audit")
    yield Thing(Trail(log, Shows()))
    log.close()


def lines(thing: Thing) -> list[Entry]:
    found = []
    for path in log_files(thing.trail.log.directory):
        for line in path.read_bytes().splitlines()[1:]:
            entry = decode_line(line)
            assert entry
            found.append(entry)
    return found


async def test_beginning_and_result(thing: Thing) -> None:
    with acting(Actor(door="socket", uid=7, pid=8)):
        assert await thing.work("a", "hello", owner="me") == 5
    begin, end = lines(thing)
    assert (begin.action, begin.sandbox, begin.name) == ("work", "a", "name of a")
    assert begin.args == {"word": "hello"} and begin.result is None
    assert begin.actor == end.actor == Actor(door="socket", uid=7, pid=8, owner="me")
    assert end.of == begin.seq and (end.result, end.details) == ("ok", {"gave": 5})
    assert end.sandbox == "a"


async def test_the_first_line_is_there_while_it_is_done(thing: Thing) -> None:
    task = asyncio.ensure_future(thing.work("a", "wait"))
    await asyncio.sleep(0)  # it runs up to where it waits
    assert [line.result for line in lines(thing)] == [None]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line.result for line in lines(thing)] == [None, "cancelled"]


async def test_failures_have_their_code_and_no_words(thing: Thing) -> None:
    with pytest.raises(NotFoundError):
        await thing.work("c", "x")
    with pytest.raises(RuntimeError):
        await thing.work("a", "break")
    missing, begin, broken = lines(thing)
    assert (missing.result, missing.code) == ("error", "not_found")
    assert missing.args == {"asked": "c", "word": "x"} and missing.of is None
    assert (broken.result, broken.code, broken.of) == ("error", "internal", begin.seq)
    assert b"secret words" not in log_files(thing.trail.log.directory)[0].read_bytes()


async def test_a_block(thing: Thing) -> None:
    async with thing.block("j1", word="x") as value:
        assert value == "x"
        assert [line.result for line in lines(thing)] == [None]
        await thing.work("b", "inside")
    with pytest.raises(RuntimeError):
        async with thing.block("j2"):
            raise RuntimeError
    found = lines(thing)
    assert [(line.action, line.sandbox, line.result) for line in found] == [
        ("job.attach", "a", None), ("work", "b", None), ("work", "b", "ok"),
        ("job.attach", "a", "ok"), ("job.attach", "a", None), ("job.attach", "a", "error"),
    ]  # fmt: skip
    assert found[0].args == {"job": "j1", "word": "x"}


async def test_side_by_side(thing: Thing) -> None:
    await asyncio.gather(*(thing.work("ab"[number % 2], str(number)) for number in range(50)))
    found = lines(thing)
    begun = {line.seq: line for line in found if line.result is None}
    assert len(begun) == 50
    for line in found:
        if line.of is not None:
            assert line.sandbox == begun[line.of].sandbox


async def test_no_line_no_action_but_for_what_ends_things(
    thing: Thing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise ResourceExhaustedError("the audit log can't be written")

    with monkeypatch.context() as patch:
        patch.setattr(thing.trail.log, "append", full)
        with pytest.raises(ResourceExhaustedError):
            await thing.work("a", "x")
        assert thing.done == []
        await thing.remove("a")
        assert thing.done == ["removed"]
    await thing.work("a", "y")
    # The refused one and both lines of the removal.
    assert [line.action for line in lines(thing)] == ["log.lost", "work", "work"]
    assert lines(thing)[0].details["lines"] == 3


async def test_the_newest_and_those_that_come(thing: Thing) -> None:
    directory = thing.trail.log.directory
    for number in range(5):
        await thing.work("ab"[number % 2], str(number))
    found, position = newest(directory, lambda entry: True, most=2)
    assert [line.entry.args.get("word") for line in found] == ["3", None, "4", None]
    of_a, _ = newest(directory, lambda entry: entry.sandbox == "a", most=10)
    assert {line.entry.sandbox for line in of_a} == {"a"} and len(of_a) == 6
    late, _ = newest(directory, lambda entry: True, since=found[2].entry.time)
    assert [line.entry.seq for line in late] == [line.entry.seq for line in found[2:]]

    follower = Follower(directory, position)
    assert list(follower.more()) == []
    thing.trail.log._retention = type(thing.trail.log._retention)(
        file_bytes=64 << 10, keep_bytes=128 << 10
    )
    seen: list[int] = []
    for number in range(600):
        await thing.work("a", "x" * 200 + str(number))
        if number % 50 == 0:
            seen += [line.entry.seq for line in follower.more()]
    seen += [line.entry.seq for line in follower.more()]
    follower.close()
    assert position
    assert seen == list(range(found[-1].entry.seq + 1, thing.trail.log.head.seq + 1))
    assert len(log_files(directory)) >= 2
