"""The disk's reserve: what is refused, and what of it is told."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentkernel import space
from agentkernel.errors import HostError, ResourceExhaustedError
from agentkernel.images.building.context import Context
from agentkernel.images.oci.store import ImageStore
from agentkernel.quantities import short_size

from .images.building.making import archive_of

GIB = 1 << 30


@pytest.fixture(autouse=True)
def default_reserve() -> Iterator[None]:
    yield
    space.set_reserve(None)


def disk(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    found = SimpleNamespace(f_blocks=total // 4096, f_bavail=free // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: found)


@pytest.mark.parametrize(
    ("total", "free", "size", "fits"),
    [
        (100 * GIB, 2 * GIB, 0, True),
        (100 * GIB, GIB, 0, True),
        (100 * GIB, GIB - 4096, 0, False),
        (100 * GIB, 2 * GIB, GIB, True),
        (100 * GIB, 2 * GIB, GIB + 1, False),
        (GIB, GIB // 10, 0, True),  # of a small disk a twentieth stays
        (GIB, GIB // 21, 0, False),
    ],
)
def test_what_stays_free(
    monkeypatch: pytest.MonkeyPatch, total: int, free: int, size: int, fits: bool
) -> None:
    disk(monkeypatch, total, free)
    if fits:
        space.require_space("/", size)
        return
    with pytest.raises(ResourceExhaustedError) as caught:
        space.require_space("/", size)
    assert "agentkernel system prune" in (caught.value.hint or "")
    assert caught.value.details["needed_bytes"] == size
    assert short_size(free) in caught.value.message


def test_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 100 * GIB, 3 * GIB)
    space.set_reserve(4 * GIB)
    with pytest.raises(ResourceExhaustedError):
        space.require_space("/")
    space.set_reserve(0)
    space.require_space("/", 3 * GIB)


def test_a_place_that_is_not_there_yet(tmp_path: Path) -> None:
    here, later = space.room_at(tmp_path), space.room_at(tmp_path / "a" / "b")
    assert (here.total, here.reserve) == (later.total, later.reserve)
    (tmp_path / "file").touch()
    assert space.room_at(tmp_path / "file" / "x").total == here.total
    assert here.total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_a_place_that_cant_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "statvfs", refuse)
    with pytest.raises(HostError, match="Permission denied"):
        space.require_space("/")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (99 << 20, "99.0 MiB"),
        (100 << 20, "100 MiB"),
        (1023 << 20, "1.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert short_size(size) == text


def test_a_context_leaves_the_reserve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fed() -> Context:
        context = Context(io.BytesIO(), space=space.Watched(tmp_path))
        context.feed(archive_of({"zeros": bytes(4 << 20)}))
        return context

    monkeypatch.setattr(space, "LOOK_BYTES", 1 << 20)
    space.set_reserve(1 << 60)
    with pytest.raises(ResourceExhaustedError):
        fed()
    space.set_reserve(0)
    assert fed().tree.resolve("zeros")[1] is not None


def test_a_blob_leaves_the_reserve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(space, "LOOK_BYTES", 1 << 20)
    space.set_reserve(0)
    with ImageStore(tmp_path).new_blob() as blob:
        blob.write(bytes(1 << 20))
        space.set_reserve(1 << 60)
        with pytest.raises(ResourceExhaustedError):
            blob.write(bytes(1 << 20))
