"""Where secrets are kept on the host: values in the desktop's keyring if there is one, else in the
encrypted file, which has the names and times of all.

A reference is "owner/NAME". Every call may block: never call it from an event loop's thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from agentkernel.errors import NotFoundError, ResourceExhaustedError, StateCorruptError, StateError
from agentkernel.network.secrets.keyrings import Keyring, find_keyring
from agentkernel.network.secrets.sealing import FILE_NAME, SealedFile

MOST_SECRETS: Final = 1000

Kept = Literal["file", "keyring"]


class Hidden:
    """A value that no repr, log or traceback shows."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        return self._value

    def __repr__(self) -> str:
        return "Hidden(…)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not pickled")


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a secret."""

    name: str
    owner: str
    created_at: float
    rotated_at: float | None = None
    kept: Kept = "file"

    @property
    def reference(self) -> str:
        return f"{self.owner}/{self.name}"


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    record: SecretRecord
    value: bytes | None = None

    def __repr__(self) -> str:
        return f"_Entry({self.record!r})"


class SecretStore:
    """Preconditions: the caller holds the state's lock, and makes one call at a time."""

    def __init__(
        self,
        state_dir: Path,
        *,
        keyring: Callable[[], Keyring | None] = find_keyring,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = SealedFile(state_dir / FILE_NAME)
        # Two states of one user have one keyring.
        self._state = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:16]
        self._find_keyring = keyring
        self._clock = clock
        self._entries: dict[str, _Entry] | None = None

    def records(self) -> dict[str, SecretRecord]:
        """By reference. Raises StateCorruptError, StateError."""
        return {reference: entry.record for reference, entry in self._loaded().items()}

    def values(self) -> tuple[dict[str, Hidden], list[str]]:
        """All values by reference, and the references of those that the keyring does not give."""
        found: dict[str, Hidden] = {}
        missing: list[str] = []
        keyring: Keyring | None = None
        for reference, entry in self._loaded().items():
            value = entry.value
            if entry.record.kept == "keyring":
                keyring = keyring or self._find_keyring()
                try:
                    text = keyring.get(self._account(reference)) if keyring else None
                except StateError:
                    text = None
                value = text.encode("ascii") if text is not None else None
            if value is None:
                missing.append(reference)
            else:
                found[reference] = Hidden(value)
        return found, missing

    def put(self, owner: str, name: str, value: Hidden) -> SecretRecord:
        """Sets a secret, or gives one that is there another value."""
        entries = self._loaded()
        reference = f"{owner}/{name}"
        before = entries.get(reference)
        if before is None and len(entries) >= MOST_SECRETS:
            raise ResourceExhaustedError(
                f"there are {len(entries)} secrets, which is the most there may be",
                hint="remove some",
            )
        now = self._clock()
        kept = self._into_keyring(reference, value)
        record = SecretRecord(
            name=name,
            owner=owner,
            created_at=before.record.created_at if before else now,
            rotated_at=now if before else None,
            kept=kept,
        )
        in_file = value.reveal() if kept == "file" else None
        self._write({**entries, reference: _Entry(record=record, value=in_file)})
        if kept == "file" and before is not None and before.record.kept == "keyring":
            self._out_of_keyring(reference)
        return record

    def remove(self, owner: str, name: str) -> SecretRecord:
        entries = dict(self._loaded())
        reference = f"{owner}/{name}"
        entry = entries.pop(reference, None)
        if entry is None:
            raise NotFoundError(f"there is no secret {name}", hint="list the secrets there are")
        # First the name: a value that nobody names is never given out.
        self._write(entries)
        if entry.record.kept == "keyring":
            self._out_of_keyring(reference)
        return entry.record

    def _into_keyring(self, reference: str, value: Hidden) -> Kept:
        keyring = self._find_keyring()
        if keyring is None:
            return "file"
        try:
            keyring.set(self._account(reference), value.reveal().decode("ascii"))
        except StateError:
            return "file"
        return "keyring"

    def _out_of_keyring(self, reference: str) -> None:
        if keyring := self._find_keyring():
            keyring.remove(self._account(reference))

    def _account(self, reference: str) -> str:
        return f"{self._state}/{reference}"

    def _loaded(self) -> dict[str, _Entry]:
        if self._entries is None:
            data = self._file.read()
            try:
                self._entries = (
                    {} if data is None else msgspec.msgpack.decode(data, type=dict[str, _Entry])
                )
            except msgspec.DecodeError:
                raise StateCorruptError(
                    "the file of secrets has contents that this version does not know",
                    hint="use the version that wrote it; or remove it and set the secrets again",
                ) from None
        return self._entries

    def _write(self, entries: dict[str, _Entry]) -> None:
        self._file.write(msgspec.msgpack.encode(entries))
        self._entries = entries
