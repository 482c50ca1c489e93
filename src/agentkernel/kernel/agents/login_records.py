"""The file of logins: who is logged in with which agent. Tokens are in the store of secrets."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import msgspec

from agentkernel.config.trust import write_whole
from agentkernel.errors import StateCorruptError, StateError
from agentkernel.kernel.agents.login_model import LoginRecord

FILE_NAME: Final = "logins.json"
_MOST_BYTES: Final = 4 << 20


class LoginRecords:
    """By owner and agent. Preconditions: the caller holds the state's lock."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._records: dict[str, LoginRecord] | None = None
        self._lock = threading.Lock()

    def all(self) -> list[LoginRecord]:
        """Raises StateCorruptError, StateError."""
        return list(self._loaded().values())

    def get(self, owner: str, agent: str) -> LoginRecord | None:
        return self._loaded().get(_key(owner, agent))

    def put(self, record: LoginRecord) -> LoginRecord:
        """It is on disk when this returns, which may take a while: not for a loop's thread."""
        with self._lock:
            self._write({**self._loaded(), _key(record.owner, record.agent): record})
        return record

    def remove(self, owner: str, agent: str) -> None:
        """As `put`."""
        with self._lock:
            left = dict(self._loaded())
            if left.pop(_key(owner, agent), None) is not None:
                self._write(left)

    def _loaded(self) -> dict[str, LoginRecord]:
        if self._records is None:
            self._records = self._read()
        return self._records

    def _read(self) -> dict[str, LoginRecord]:
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES)
            return msgspec.json.decode(data, type=dict[str, LoginRecord])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"{self._path} can't be read: {error.strerror}") from None
        except msgspec.DecodeError:
            raise StateCorruptError(
                f"{self._path} is not as this version writes it",
                hint="remove it and log in with your agents again",
            ) from None

    def _write(self, records: dict[str, LoginRecord]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{self._path.parent} can't be made: {error.strerror}") from None
        write_whole(str(self._path), msgspec.json.encode(records).decode())
        self._records = records


def _key(owner: str, agent: str) -> str:
    return f"{owner}/{agent}"
