# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Files of a sandbox. Every call runs inside it: a link of the guest's leads nowhere else."""

from __future__ import annotations

from builtins import list as List
from typing import Any

from agentkernel.client._sync.transport import LONG_CALL_SECONDS, Transport
from agentkernel.client.results import Entry
from agentkernel.client.wire import broken, parse_object, segment


class Files:
    """The errors are the ones of `open` and friends too: FileNotFoundError, IsADirectoryError, …"""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}"

    def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        query = {"path": path, "offset": offset or None, "length": length}
        return self._transport.fetch(
            "GET", f"{self._path}/files", query=query, seconds=LONG_CALL_SECONDS
        )

    def read(self, path: str) -> str:
        """As text. UnicodeDecodeError if it is not UTF-8: nothing is bent."""
        return (self.read_bytes(path)).decode()

    def write(
        self,
        path: str,
        data: bytes | str,
        *,
        mode: int | None = None,
        parents: bool = False,
    ) -> int:
        """Replaces the file; its size."""
        return self._put(path, data, {"mode": _octal(mode), "parents": parents or None})

    def append(self, path: str, data: bytes | str) -> int:
        return self._put(path, data, {"append": True})

    def _put(self, path: str, data: bytes | str, query: dict[str, Any]) -> int:
        body = self._transport.fetch(
            "PUT",
            f"{self._path}/files",
            query={"path": path, **query},
            body=data.encode() if isinstance(data, str) else bytes(data),
            headers={"Content-Type": "application/octet-stream"},
            seconds=LONG_CALL_SECONDS,
        )
        return _size(body)

    def stat(self, path: str) -> Entry:
        body = self._transport.call("GET", f"{self._path}/stat", query={"path": path})
        return Entry.of(body)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> List[Entry]:
        body = self._transport.call("GET", f"{self._path}/list", query={"path": path})
        return [Entry.of(entry) for entry in body["entries"]]

    def mkdir(self, path: str, *, mode: int | None = None, parents: bool = False) -> None:
        wanted: dict[str, Any] = {"path": path}
        if mode is not None:
            wanted["mode"] = _octal(mode)
        if parents:
            wanted["parents"] = True
        self._transport.call("POST", f"{self._path}/mkdir", json=wanted)

    def move(self, path: str, to: str, *, replace: bool = False) -> None:
        wanted: dict[str, Any] = {"path": path, "to": to}
        if replace:
            wanted["replace"] = True
        self._transport.call("POST", f"{self._path}/move", json=wanted)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        query = {"path": path, "recursive": recursive or None}
        self._transport.call("DELETE", f"{self._path}/files", query=query)


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:o}"


def _size(body: bytes) -> int:
    size = parse_object(body).get("size")
    if not isinstance(size, int):
        raise broken("a write without a size")
    return size
