"""Trust is in a place and a content; its record is whole or not there."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import stat
from pathlib import Path

import pytest

from agentkernel.config import trust
from agentkernel.config.reading import read_file
from agentkernel.errors import StateCorruptError

from .conftest import Write


def test_one_byte_or_another_place_is_not_trusted(project: Write, directory: Path) -> None:
    file = project("[limits]\npids = 9\n")
    assert not trust.is_trusted(file)
    trust.trust(file)
    assert trust.is_trusted(file)
    assert not trust.is_trusted(project("[limits]\npids = 9\n\n"))
    assert trust.is_trusted(project("[limits]\npids = 9\n")), "the same again"
    copy = directory.parent / "copy"
    shutil.copytree(directory, copy)
    assert not trust.is_trusted(read_file(str(copy / "agentkernel.toml"), "project"))


def test_one_place_by_any_path(project: Write, directory: Path, tmp_path: Path) -> None:
    trust.trust(project(""))
    (tmp_path / "link").symlink_to(directory)
    assert trust.is_trusted(read_file(str(tmp_path / "link" / "agentkernel.toml"), "project"))


def test_taking_it_back(project: Write) -> None:
    file = project("")
    trust.trust(file)
    os.unlink(file.path)
    assert trust.distrust(file.path)
    assert not trust.distrust(file.path)
    assert trust.entries() == {}


def test_private_and_whole(project: Write) -> None:
    trust.trust(project(""))
    path = Path(trust.store_path())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == ["trust.json", "trust.lock"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": 1}}']
)
def test_a_damaged_record_trusts_nobody(project: Write, text: str) -> None:
    file = project("")
    trust.trust(file)
    Path(trust.store_path()).write_text(text)
    for act in (lambda: trust.is_trusted(file), lambda: trust.trust(file)):
        with pytest.raises(StateCorruptError, match="no project's file is trusted"):
            act()
    assert Path(trust.store_path()).read_text() == text, "it is left as it was"


def _trust_some(directory: str, first: int) -> None:
    for number in range(first, first + 10):
        path = Path(directory, f"{number}.toml")
        path.touch()
        trust.trust(read_file(str(path), "project"))


def test_many_at_once_lose_nothing(directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_trust_some, args=(str(directory), n * 10)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(40)
        assert worker.exitcode == 0
    assert len(json.loads(Path(trust.store_path()).read_text())["files"]) == 30
