"""The allocator of id ranges: never twice, never lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentkernel.backends.local import idranges
from agentkernel.backends.local.idmaps import RANGE_SIZE
from agentkernel.backends.local.idranges import FIRST_ID, IdRanges
from agentkernel.errors import HostError, ResourceExhaustedError


def owner(tmp_path: Path, name: str) -> str:
    path = tmp_path / "sandboxes" / name
    path.mkdir(parents=True)
    return str(path)


def test_no_range_is_given_twice(tmp_path: Path) -> None:
    found: list[int] = []

    def take(number: int) -> None:
        ranges = IdRanges(tmp_path / "ids")
        found.extend(ranges.allocate(owner(tmp_path, f"{number}-{n}")) for n in range(20))

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 160
    assert all((first - FIRST_ID) % RANGE_SIZE == 0 for first in found)


def test_release_gives_back_only_ones_own(tmp_path: Path) -> None:
    ranges = IdRanges(tmp_path / "ids")
    a, b = owner(tmp_path, "a"), owner(tmp_path, "b")
    first = ranges.allocate(a)
    ranges.release(first, b)
    assert ranges.owners() == {first: a}
    ranges.release(first, a)
    assert ranges.owners() == {}


def test_ranges_of_vanished_owners_come_back_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idranges, "SLOTS", 2)
    ranges = IdRanges(tmp_path / "ids")
    gone, alive = owner(tmp_path, "gone"), owner(tmp_path, "alive")
    first = ranges.allocate(gone)
    ranges.allocate(alive)
    with pytest.raises(ResourceExhaustedError):
        ranges.allocate(owner(tmp_path, "third"))
    Path(gone).rmdir()
    assert ranges.allocate(owner(tmp_path, "fourth")) == first


def test_subuids_of_users_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idranges, "read_subids", lambda path: [("u", FIRST_ID + 10, 70_000)])
    first = IdRanges(tmp_path / "ids").allocate(owner(tmp_path, "a"))
    assert first == FIRST_ID + 2 * RANGE_SIZE


def test_without_a_place_to_keep_them_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("a file")
    with pytest.raises(HostError, match="id range"):
        IdRanges(tmp_path / "ids").allocate(owner(tmp_path, "a"))
