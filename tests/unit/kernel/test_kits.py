"""What makes a kit another one, and what is told of its packages."""

from __future__ import annotations

from typing import Any

import pytest

from agentkernel.agents.definition import AgentDefinition, Commands, Install
from agentkernel.kernel.agents.kit_installing import _locks_of
from agentkernel.kernel.agents.kit_model import KitLock, definition_hash


def agent(**changes: Any) -> AgentDefinition:
    known: dict[str, Any] = {
        "name": "tiny",
        "title": "Tiny",
        "version": "1",
        "install": Install(steps=[["true"]]),
        "command": Commands(headless=["true"]),
    }
    return AgentDefinition(**known | changes)


def test_the_same_steps_are_the_same_kit() -> None:
    known = definition_hash(agent())
    # As it was written down by whoever installed it: to change this makes all kits others.
    assert known == "52fe946f6c80dfd9ec5c0a447e58f1742f6d5451a7dd4c15fafab5aeed78b38a"
    for changes in (
        {"title": "Other"},
        {"command": Commands(headless=["other"])},
        {"install": Install(steps=[["true"]], needs_hint="elsewhere")},
    ):
        assert definition_hash(agent(**changes)) == known


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"version": "2"},
        {"install": Install(steps=[["false"]])},
        {"install": Install(steps=[["true"], ["true"]])},
        {"install": Install(steps=[["true"]], check=["true"])},
        {"install": Install(steps=[["true"]], environment={"A": "1"})},
    ],
)
def test_others_are_others(changes: dict[str, Any]) -> None:
    assert definition_hash(agent(**changes)) != definition_hash(agent())


def test_locks() -> None:
    digest = "a" * 64
    lines = [
        f"{digest}  ./package-lock.json",
        f"{digest}  ./node_modules/.package-lock.json",
        f"{digest}  ./deep/down/in/it/package-lock.json",
        f"{digest}  ./node_modules/a/package.json",
        f"\\{digest}  ./node_modules/new\\nline/package.json",
        f"{digest}  ./venv/lib/x-1.dist-info/RECORD",
    ]
    found = _locks_of("\n".join(lines).encode())
    assert found[:2] == [
        KitLock(path="package-lock.json", sha256=digest),
        KitLock(path="node_modules/.package-lock.json", sha256=digest),
    ]
    assert [(lock.path, lock.files) for lock in found[2:]] == [
        ("node_modules/*/package.json", 2),
        ("*.dist-info/RECORD", 1),
    ]
    changed = _locks_of("\n".join([*lines[:3], *lines[4:]]).encode())
    assert changed[2].sha256 != found[2].sha256
    assert _locks_of(b"") == []
    many = "\n".join(f"{digest}  ./{n}/package-lock.json" for n in range(1000))
    assert len(_locks_of(many.encode())) == 32
    assert _locks_of(b"\xff\xfe\n\n  ./\n")[0].path == ""
