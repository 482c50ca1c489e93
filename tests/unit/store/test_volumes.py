"""Rows of volumes."""

from __future__ import annotations

from typing import Any

import pytest

from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.kernel.store import NewEvent, Store, VolumeRecord


def volume(letter: str, **fields: Any) -> VolumeRecord:
    values = {"id": letter * 20, "name": "cache", "owner": "a", "created_at": 1.0, **fields}
    return VolumeRecord(**values)


async def test_what_goes_in_comes_out(store: Store) -> None:
    first = volume("a", exclusive=True, quota_bytes=1 << 40)
    assert await store.insert_volume(first) == first
    second = await store.insert_volume(volume("b", owner="b"))
    third = await store.insert_volume(volume("c", name="other"))
    assert await store.volumes() == [first, second, third]


async def test_a_name_is_one_of_its_owners(store: Store) -> None:
    await store.insert_volume(volume("a"))
    for taken in (volume("b"), volume("a", name="other")):
        with pytest.raises(ConflictError):
            await store.insert_volume(taken)
    assert len(await store.volumes()) == 1


async def test_its_state_and_its_end_tell_of_themselves(store: Store) -> None:
    await store.insert_volume(volume("a"))
    event = NewEvent(kind="volume.created", owner="a", body={"volume": "a" * 20})
    await store.set_volume_state("a" * 20, "ready", events=[event])
    assert [row.state for row in await store.volumes()] == ["ready"]
    await store.remove_volume("a" * 20, events=[NewEvent(kind="volume.removed", owner="a")])
    assert await store.volumes() == []
    page = await store.events(owner="a")
    assert [record.kind for record in page.records] == ["volume.created", "volume.removed"]


@pytest.mark.parametrize(
    "fields", [{"name": "A"}, {"name": "a/b"}, {"quota_bytes": -1}, {"id": "x"}, {"owner": ""}]
)
async def test_what_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await store.insert_volume(volume("a", **fields))
