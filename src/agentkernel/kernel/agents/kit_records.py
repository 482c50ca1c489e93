"""What is written down of kits, beside their volumes' rows.

STATE/agents/kits/<volume>.json   a kit; written before its volume is ready, removed after it
STATE/agents/versions.json        versions that were chosen in place of the pinned ones
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.reading import Definitions
from agentkernel.config.trust import write_whole
from agentkernel.errors import StateError
from agentkernel.kernel.agents.kit_model import VERSION, KitRecord

log = logging.getLogger("agentkernel.kernel")

_MAX_BYTES: Final = 1 << 20
Version = Annotated[str, Meta(pattern=VERSION)]


class KitRecords:
    """Those in memory are those on disk; `directory` is STATE/agents."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "kits"
        self._records: dict[str, KitRecord] = {}

    def any(self) -> bool:
        """Whether there is something to load."""
        return next(self._directory.glob("*"), None) is not None

    def load(self, volumes: Iterable[str]) -> None:
        """Reads those of `volumes`; others are what a crash left, and go."""
        wanted = set(volumes)
        for path in sorted(self._directory.glob("*")):
            if path.suffix == ".json" and path.stem in wanted:
                try:
                    record = msgspec.json.decode(_content(path), type=KitRecord)
                except (OSError, ValueError, msgspec.MsgspecError) as exc:
                    log.warning("%s can't be read: %s", path, exc)
                    continue
                self._records[record.id] = record
            else:
                with contextlib.suppress(OSError):
                    path.unlink()

    def all(self) -> list[KitRecord]:
        return sorted(self._records.values(), key=lambda record: record.installed_at)

    def find(self, definition: str) -> KitRecord | None:
        return next((one for one in self._records.values() if one.definition == definition), None)

    def write(self, record: KitRecord) -> None:
        """On disk, not yet known: see `add`."""
        _write(self._path(record.id), msgspec.json.encode(record))

    def add(self, record: KitRecord) -> None:
        self._records[record.id] = record

    def remove(self, id: str) -> None:
        """Idempotent."""
        self._records.pop(id, None)
        with contextlib.suppress(OSError):
            self._path(id).unlink()

    def _path(self, id: str) -> Path:
        return self._directory / f"{id}.json"


class Versions(dict[str, str]):
    """Versions that were chosen, by agent. `directory` is STATE/agents."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path = directory / "versions.json"
        try:
            self.update(msgspec.json.decode(_content(self._path), type=dict[str, Version]))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            log.warning("%s can't be read: %s", self._path, exc)

    def choose(self, agent: str, version: str | None) -> None:
        """None: the pinned one."""
        chosen = {name: one for name, one in self.items() if name != agent}
        if version is not None:
            chosen[agent] = version
        if chosen != self:
            _write(self._path, msgspec.json.encode(chosen))
            self.clear()
            self.update(chosen)


class ChosenDefinitions(Definitions):
    """Definitions in the versions that were chosen."""

    def __init__(self, directory: Path, versions: Versions) -> None:
        super().__init__(directory)
        self.versions = versions

    def get(self, name: str) -> AgentDefinition:
        definition = self.pinned(name)
        version = self.versions.get(name, definition.version)
        return msgspec.structs.replace(definition, version=version)

    def pinned(self, name: str) -> AgentDefinition:
        """As its file says. Raises NotFoundError, InvalidInputError."""
        return super().get(name)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError("it is too large")
    return content


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StateError(f"{path.parent} can't be made: {exc.strerror}") from None
    write_whole(str(path), content.decode())
