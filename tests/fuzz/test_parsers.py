"""Every parser of foreign bytes: a value or a typed error, never anything else, never for long.

A normal run tries a few inputs each. `AGENTKERNEL_FUZZ_SECONDS=600` shares that time between them,
beginning anew with other inputs until it is over; `tools/fuzz run python` does it. A new parser is
one line in one of the lists of targets.
"""

from __future__ import annotations

import itertools
import os
import time

import hypothesis
import pytest
from hypothesis import Phase
from hypothesis import strategies as st

from . import (
    callers,
    hostile_agent,
    hostile_archives,
    hostile_builds,
    hostile_daemon,
    hostile_guests,
    hostile_images,
    hostile_projects,
    hostile_registries,
    hostile_secrets,
    models,
    previews,
    target,
)

TARGETS = [
    *hostile_agent.TARGETS,
    *hostile_daemon.TARGETS,
    *callers.TARGETS,
    *models.TARGETS,
    *hostile_images.TARGETS,
    *hostile_archives.TARGETS,
    *hostile_builds.TARGETS,
    *hostile_registries.TARGETS,
    *hostile_guests.TARGETS,
    *hostile_projects.TARGETS,
    *hostile_secrets.TARGETS,
    *previews.TARGETS,
]


@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_a_value_or_a_typed_error(one: target.Target) -> None:
    seconds = target.seconds_each(len(TARGETS))
    deadline = time.monotonic() + seconds
    chosen = os.environ.get("AGENTKERNEL_FUZZ_SEED")
    before = target.executions
    for turn in itertools.count():
        try_inputs = target.test_of(one)
        if chosen:
            try_inputs = hypothesis.seed(int(chosen) + turn)(try_inputs)
        try_inputs()
        if time.monotonic() >= deadline:
            break
    assert target.executions > before
    if counts := os.environ.get("AGENTKERNEL_FUZZ_COUNTS"):
        with open(counts, "a") as file:
            file.write(f"{target.executions - before}\n")


def test_something_else_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a parser that lets another error out, or never ends, does not pass."""

    def careless(data: bytes) -> None:
        if data[:1] == b"\x01":
            [][len(data)]

    def slow(data: bytes) -> None:
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass

    firsts = st.binary(max_size=3).map(lambda data: b"\x01" + data)
    with pytest.raises(IndexError):
        target.test_of(target.Target("careless", firsts, careless))()
    monkeypatch.setattr(target, "INPUT_SECONDS", 0.005)
    with pytest.raises(AssertionError, match="one input took"):
        target.test_of(target.Target("slow", firsts, slow), 1, [Phase.generate])()
