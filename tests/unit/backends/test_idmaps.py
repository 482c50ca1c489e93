"""Id maps: what the kernel accepts, and who stands behind guest root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.errors import InvalidInputError


def contained(line: tuple[int, int, int], outer: idmaps.Lines) -> bool:
    """The kernel takes a line only if one line of the map above holds all of it."""
    return any(i <= line[1] and line[1] + line[2] <= i + n for i, _, n in outer)


@pytest.mark.parametrize(
    "maps",
    [
        idmaps.range_maps(1 << 30),
        idmaps.single_maps(0),
        idmaps.single_maps(1000),
        idmaps.subuid_maps(100_000, 100_000, image_owner=None),
        idmaps.subuid_maps(100_000, 100_000, image_owner=100_000),
    ],
)
def test_inner_lines_lie_in_outer_ones(maps: idmaps.IdMaps) -> None:
    assert all(contained(line, maps.outer_uids) for line in maps.inner_uids)
    assert all(contained(line, maps.outer_gids) for line in maps.inner_gids)


def test_guest_root_is_never_host_root_in_a_range() -> None:
    assert idmaps.range_maps(1 << 30).root_owner == 1 << 30


def test_guest_root_is_the_user_unless_the_image_is_the_subuids() -> None:
    assert idmaps.subuid_maps(100_000, 100_000, image_owner=None).root_owner == os.getuid()
    assert idmaps.subuid_maps(100_000, 100_000, image_owner=100_000).root_owner == 100_000


def test_users() -> None:
    assert [idmaps.guest_uid(u) for u in ("root", "user", "33")] == [0, 1000, 33]
    for bad in ("nobody", "-1", "70000", "", "0x1", "²", "٣", "9" * 5000):
        with pytest.raises(InvalidInputError):
            idmaps.guest_uid(bad)


def test_subid_files(tmp_path: Path) -> None:
    path = tmp_path / "subuid"
    path.write_text("a:100000:65536\nbroken\nb:x:1\n\nc:1:2\nd:²:1\ne:" + "9" * 5000 + ":1\n")
    assert idmaps.read_subids(str(path)) == [("a", 100_000, 65_536), ("c", 1, 2)]
    assert idmaps.read_subids(str(tmp_path / "none")) == []
