"""The store against a model of it in memory: any order of calls, restarts and killed sessions."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.kernel.store import (
    EventRecord,
    Idempotency,
    JobRecord,
    NewEvent,
    SandboxRecord,
    Store,
)

from .making import Clock, all_pages, job, sandbox

pytestmark = pytest.mark.slow

T = TypeVar("T")

STATES = ("creating", "running", "stopped", "removing", "error")
NAMES = st.sampled_from([None, "web", "db", "a-b"])
OWNERS = st.sampled_from(["uid:1", "uid:2"])
LABELS = st.dictionaries(st.sampled_from("kl"), st.sampled_from("xy"))
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
BODIES = st.dictionaries(TEXT, VALUES, max_size=3)
SOME_STATES = st.none() | st.lists(st.sampled_from(STATES), max_size=3)


class Model(RuleBasedStateMachine):
    ids = Bundle("ids")
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.boxes: dict[str, SandboxRecord] = {}
        self.all_jobs: dict[str, JobRecord] = {}
        self.keys: dict[tuple[str, str], tuple[str, str, float]] = {}
        self.events: list[EventRecord] = []

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def refused(self, kind: type[Exception], call: Coroutine[Any, Any, object]) -> None:
        try:
            self.run(call)
        except kind:
            return
        raise AssertionError(f"no {kind.__name__}")

    @initialize()
    def open(self) -> None:
        self.store = self.run(Store.open(self.folder / "state.db", clock=self.clock))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def taken(self, record: SandboxRecord) -> bool:
        return record.name is not None and any(
            (other.owner, other.name) == (record.owner, record.name) and other.id != record.id
            for other in self.boxes.values()
        )

    @rule(
        target=ids,
        name=NAMES,
        owner=OWNERS,
        labels=LABELS,
        blueprint=BODIES,
        key=st.none() | st.tuples(st.sampled_from("kl"), st.sampled_from("fg")),
        told=st.booleans(),
    )
    def insert(
        self,
        name: str | None,
        owner: str,
        labels: dict[str, str],
        blueprint: dict[str, Any],
        key: tuple[str, str] | None,
        told: bool,
    ) -> Any:
        record = sandbox(name, owner=owner, labels=labels, blueprint=blueprint)
        idempotency = None if key is None else Idempotency(key=key[0], fingerprint=key[1])
        events = [NewEvent(kind="made", sandbox_id=record.id)] * told
        call = self.store.insert_sandbox(record, idempotency, events=events)
        earlier = None if key is None else self.keys.get((owner, key[0]))
        if earlier is not None and earlier[2] > self.clock.now:
            if key is not None and earlier[1] == key[1]:
                assert self.run(call) == (self.boxes[earlier[0]], False)
            else:
                self.refused(ConflictError, call)
            return multiple()
        if self.taken(record):
            self.refused(ConflictError, call)
            return multiple()
        assert self.run(call) == (record, True)
        self.boxes[record.id] = record
        if key is not None:
            self.keys[owner, key[0]] = (record.id, key[1], self.clock.now + 24 * 3600)
        if told:
            self.expect_event(NewEvent(kind="made", sandbox_id=record.id), owner)
        return record.id

    @rule(
        id=ids,
        expect=SOME_STATES,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "name": NAMES,
                "state": st.sampled_from(STATES),
                "labels": LABELS,
                "handle": st.none() | BODIES,
                "error": st.none() | TEXT,
                "ttl_seconds": st.none() | st.floats(0, 1e9),
            },
        ),
    )
    def update(self, id: str, expect: list[str] | None, changes: dict[str, Any]) -> None:
        call = self.store.update_sandbox(id, expect_state=expect, **changes)
        old = self.boxes.get(id)
        if old is None:
            return self.refused(NotFoundError, call)
        new = msgspec.structs.replace(old, **changes, updated_at=self.clock.now)
        if (expect is not None and old.state not in expect) or self.taken(new):
            return self.refused(ConflictError, call)
        assert self.run(call) == new
        self.boxes[id] = new

    @rule(id=ids)
    def remove(self, id: str) -> None:
        call = self.store.remove_sandbox(id)
        if id not in self.boxes:
            return self.refused(NotFoundError, call)
        assert self.run(call) == self.boxes.pop(id)
        self.all_jobs = {key: one for key, one in self.all_jobs.items() if one.sandbox_id != id}
        self.keys = {key: value for key, value in self.keys.items() if value[0] != id}

    @rule(id=ids, owner=st.none() | OWNERS)
    def get(self, id: str, owner: str | None) -> None:
        call = self.store.get_sandbox(id, owner)
        record = self.boxes.get(id)
        if record is None or owner not in (None, record.owner):
            return self.refused(NotFoundError, call)
        assert self.run(call) == record

    @rule(name=NAMES.filter(bool), owner=OWNERS)
    def get_by_name(self, name: str, owner: str) -> None:
        found = [one for one in self.boxes.values() if (one.name, one.owner) == (name, owner)]
        call = self.store.get_sandbox(name, owner)
        if not found:
            return self.refused(NotFoundError, call)
        assert [self.run(call)] == found

    @rule(
        owner=st.none() | OWNERS,
        labels=LABELS,
        states=st.lists(st.sampled_from(STATES), max_size=2),
        limit=st.integers(1, 4),
        newest_first=st.booleans(),
    )
    def find(
        self,
        owner: str | None,
        labels: dict[str, str],
        states: list[str],
        limit: int,
        newest_first: bool,
    ) -> None:
        expected = [
            one.id
            for one in self.boxes.values()
            if owner in (None, one.owner)
            and labels.items() <= one.labels.items()
            and (not states or one.state in states)
        ]
        if newest_first:
            expected.reverse()
        found = all_pages(
            self.store, owner, limit, labels=labels, states=states, newest_first=newest_first
        )
        assert self.run(found) == expected

    @rule(target=jobs, id=ids, options=BODIES)
    def insert_job(self, id: str, options: dict[str, Any]) -> Any:
        record = job(id, options=options)
        call = self.store.insert_job(record)
        if id not in self.boxes:
            self.refused(NotFoundError, call)
            return multiple()
        assert self.run(call) == record
        self.all_jobs[record.id] = record
        return record.id

    @rule(id=jobs, status=BODIES)
    def end_job(self, id: str, status: dict[str, Any]) -> None:
        call = self.store.update_job(id, expect_state="running", state="ended", status=status)
        old = self.all_jobs.get(id)
        if old is None:
            return self.refused(NotFoundError, call)
        if old.state != "running":
            return self.refused(ConflictError, call)
        self.all_jobs[id] = msgspec.structs.replace(old, state="ended", status=status)
        assert self.run(call) == self.all_jobs[id]

    @rule(id=ids)
    def lose_jobs(self, id: str) -> None:
        lost = [
            msgspec.structs.replace(one, state="lost", ended_at=self.clock.now)
            for one in self.all_jobs.values()
            if one.sandbox_id == id and one.state == "running"
        ]
        assert self.run(self.store.mark_jobs_lost(id)) == lost
        self.all_jobs.update({one.id: one for one in lost})

    @rule(id=st.none() | ids, bodies=st.lists(BODIES, max_size=10), post=st.booleans())
    def append(self, id: str | None, bodies: list[dict[str, Any]], post: bool) -> None:
        new = [NewEvent(kind="a.b", sandbox_id=id, body=body) for body in bodies]
        start = len(self.events)
        owner = self.boxes[id].owner if id in self.boxes else None
        for event in new:
            self.expect_event(event, owner)
        if post:
            self.run(self.posted(new))
        else:
            seqs = self.run(self.store.append_events(new))
            assert seqs == [event.seq for event in self.events[start:]]

    async def posted(self, new: list[NewEvent]) -> None:
        self.store.post_events(new)

    def expect_event(self, event: NewEvent, owner: str | None) -> None:
        self.events.append(
            EventRecord(
                seq=len(self.events) + 1,
                at=self.clock.now,
                sandbox_id=event.sandbox_id,
                owner=owner,
                kind=event.kind,
                body=event.body,
            )
        )

    @rule(id=ids, after=st.integers(0, 30), limit=st.integers(1, 5))
    def read_events(self, id: str, after: int, limit: int) -> None:
        self.run(self.store.append_events([]))  # behind what was posted
        page = self.run(self.store.events(after, sandbox_id=id, limit=limit))
        assert (
            page.records
            == [one for one in self.events if one.sandbox_id == id and one.seq > after][:limit]
        )
        assert page.gap == (after > len(self.events))

    @rule(hours=st.integers(1, 30))
    def pass_time(self, hours: int) -> None:
        self.clock.now += hours * 3600.0

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.open()

    @rule()
    def move_as_after_a_kill(self) -> None:
        self.run(self.store.append_events([]))
        copy = Path(tempfile.mkdtemp())
        for name in ("state.db", "state.db-wal"):
            shutil.copy(self.folder / name, copy / name)
        self.run(self.store.close())
        shutil.rmtree(self.folder)
        self.folder = copy
        self.open()

    @rule(id=consumes(ids))
    def forget(self, id: str) -> None:
        """Keeps the bundle from growing old."""

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.run(self.store.all_sandboxes()) == list(self.boxes.values())
        for id in self.boxes:
            mine = [one for one in self.all_jobs.values() if one.sandbox_id == id]
            assert self.run(self.store.jobs_of(id)) == mine


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
