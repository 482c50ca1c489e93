"""Secrets that sandboxes may use without knowing them: set, rotated, removed, bound.

What must hold: a value goes from here to the gateway and nowhere else; no answer, line, event or
error has it. Every owner has secrets of its own. A change reaches the gateway before whoever made
it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from builtins import list as List
from builtins import set as Set
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import NotFoundError, StateError
from agentkernel.kernel.store import SandboxRecord, Store
from agentkernel.network.policy.model import NetworkSetting, SecretBinding
from agentkernel.network.secrets.bindings import (
    bind,
    check_secret_name,
    parse_binding,
    reference_of,
)
from agentkernel.network.secrets.placeholders import check_value
from agentkernel.network.secrets.store import Hidden, Kept, SecretRecord, SecretStore


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as shown. `kept`: where its value is. `sandboxes`: the names (or ids) of those that
    it is bound to."""

    name: str
    created_at: float
    rotated_at: float | None
    kept: Kept
    sandboxes: List[str]


class Secrets:
    """All secrets of a kernel. Their file is read when the first of them is needed."""

    def __init__(self, state_dir: Path, rows: Store, trail: Trail) -> None:
        self._kept = SecretStore(state_dir)
        self._rows = rows
        self.trail = trail
        self._values: dict[str, Hidden] | None = None
        self._lock = asyncio.Lock()
        self._changing: Set[asyncio.Task[SecretRecord]] = Set()
        self.on_change: Callable[[], Awaitable[None]] | None = None
        """Called when values are others than before."""

    @audited("secret.set")
    async def set(self, name: str, value: Hidden, *, owner: str) -> SecretInfo:
        """A new secret; one of that name gets this value instead of its own."""
        checked = _checked(name, value)
        self.trail.found(None, None)
        return await self._put(name, checked, owner, must_exist=False)

    @audited("secret.rotate")
    async def rotate(self, name: str, value: Hidden, *, owner: str) -> SecretInfo:
        """Another value for a secret that is there. Sandboxes use it from their next request on."""
        checked = _checked(name, value)
        self.trail.found(None, None)
        return await self._put(name, checked, owner, must_exist=True)

    @audited("secret.remove")
    async def remove(self, name: str, *, owner: str) -> SecretInfo:
        """Also one that sandboxes are bound to: their requests that need it are refused."""
        check_secret_name(name)
        self.trail.found(None, None)
        return await self._remove(name, owner)

    async def keep(self, name: str, value: Hidden, *, owner: str) -> None:
        """For a part of the kernel that has secrets of its own. With a dot in its name one is no
        caller's to list, to change or to bind, and still must not leave the owner's sandboxes."""
        await self._put(name, Hidden(check_value(value.reveal())), owner, must_exist=False)

    async def forget(self, name: str, *, owner: str) -> None:
        """Of what was given to `keep`; one that is not there is no error."""
        with contextlib.suppress(NotFoundError):
            await self._remove(name, owner)

    async def close(self) -> None:
        """Waits for what is being written down."""
        if self._changing:
            await asyncio.wait(self._changing)

    async def list(self, *, owner: str) -> List[SecretInfo]:
        """By name; what is known of each, without its value."""
        async with self._lock:
            records = await asyncio.to_thread(self._kept.records)
        users = await self._users(owner)
        return [
            _info(record, users.get(record.reference, []))
            for record in sorted(records.values(), key=lambda record: record.name)
            if record.owner == owner and "." not in record.name
        ]

    async def resolve(self, requests: Sequence[str], *, owner: str) -> tuple[SecretBinding, ...]:
        """What is stored of a sandbox that asks for these, as `parse_binding` reads them, each with
        a placeholder of its own. Raises InvalidInputError, NotFoundError, StateError."""
        wanted = [parse_binding(text) for text in requests]
        if not wanted:
            return ()
        values = await self.values(reference_of(owner, each.name) for each in wanted)
        for each in wanted:
            if reference_of(owner, each.name) not in values:
                await self._explain_absence(each.name, owner)
        return bind(wanted, owner, values)

    async def values(self, references: Iterable[str]) -> Mapping[str, bytes]:
        """For the gateway. What is not there, or can't be read, is left out."""
        sought = Set(references)
        if not sought:
            return {}
        async with self._lock:
            values = await self._loaded()
        return {each: values[each].reveal() for each in sought if each in values}

    async def values_of(self, owners: Iterable[str]) -> Mapping[str, bytes]:
        """All that these owners have: what must not leave their sandboxes."""
        async with self._lock:
            values = await self._loaded()
        # An owner may have slashes in its name, a secret has none.
        wanted = Set(owners)
        return {
            each: value.reveal()
            for each, value in values.items()
            if each.rpartition("/")[0] in wanted
        }

    async def _put(self, name: str, value: Hidden, owner: str, *, must_exist: bool) -> SecretInfo:
        reference = reference_of(owner, name)

        async def change() -> SecretRecord:
            async with self._lock:
                records = await asyncio.to_thread(self._kept.records)
                if must_exist and reference not in records:
                    raise NotFoundError(
                        f"there is no secret {name}",
                        hint=f"`agentkernel secret set {name}` makes it",
                    )
                record = await asyncio.to_thread(self._kept.put, owner, name, value)
                if self._values is not None:
                    self._values[reference] = value
            return record

        return await self._shown(await self._as_a_whole(change()))

    async def _remove(self, name: str, owner: str) -> SecretInfo:
        async def change() -> SecretRecord:
            async with self._lock:
                record = await asyncio.to_thread(self._kept.remove, owner, name)
                if self._values is not None:
                    self._values.pop(record.reference, None)
            return record

        return await self._shown(await self._as_a_whole(change()))

    async def _as_a_whole(self, change: Coroutine[Any, Any, SecretRecord]) -> SecretRecord:
        """A caller who leaves does not cut a change in two: the disk, what is known here and the
        gateway have to agree."""

        async def through() -> SecretRecord:
            record = await change
            if self.on_change is not None:
                await self.on_change()
            return record

        task = asyncio.ensure_future(through())
        self._changing.add(task)
        task.add_done_callback(self._changed)
        return await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[SecretRecord]) -> None:
        self._changing.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have left

    async def _explain_absence(self, name: str, owner: str) -> None:
        async with self._lock:
            records = await asyncio.to_thread(self._kept.records)
            self._values = None  # a keyring that is unlocked later gives it
        if reference_of(owner, name) in records:
            raise StateError(
                f"the value of the secret {name} is in the desktop's keyring, which does not give "
                "it",
                hint="unlock the keyring and try again, or set the secret again",
            )

    async def _loaded(self) -> dict[str, Hidden]:
        if self._values is None:
            found, _ = await asyncio.to_thread(self._kept.values)
            self._values = found
        return self._values

    async def _shown(self, record: SecretRecord) -> SecretInfo:
        users = await self._users(record.owner)
        return _info(record, users.get(record.reference, []))

    async def _users(self, owner: str) -> dict[str, List[str]]:
        """The sandboxes of each secret."""
        users: dict[str, List[str]] = {}
        for sandbox in await self._rows.all_sandboxes():
            for reference in _references(sandbox):
                # By its id where the name is somebody else's.
                name = sandbox.name if sandbox.owner == owner else None
                users.setdefault(reference, []).append(name or sandbox.id)
        return users


def _checked(name: str, value: Hidden) -> Hidden:
    check_secret_name(name)
    return Hidden(check_value(value.reveal()))


def _info(record: SecretRecord, sandboxes: List[str]) -> SecretInfo:
    return SecretInfo(
        name=record.name,
        created_at=record.created_at,
        rotated_at=record.rotated_at,
        kept=record.kept,
        sandboxes=sandboxes,
    )


def _references(sandbox: SandboxRecord) -> Iterable[str]:
    if sandbox.network is None:
        return ()
    setting = msgspec.convert(sandbox.network, NetworkSetting)
    return dict.fromkeys(binding.reference for binding in setting.secrets)
