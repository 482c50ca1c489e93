"""Files of a sandbox. Every call runs inside it: a link of the guest's leads nowhere else."""

from __future__ import annotations

from builtins import list as List
from typing import Any

from agentkernel.client._async.transport import LONG_CALL_SECONDS, AsyncTransport
from agentkernel.client.results import Entry
from agentkernel.client.wire import broken, parse_object, segment


class AsyncFiles:
    """The errors are the ones of `open` and friends too: FileNotFoundError, IsADirectoryError, …"""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}"

    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        query = {"path": path, "offset": offset or None, "length": length}
        return await self._transport.fetch(
            "GET", f"{self._path}/files", query=query, seconds=LONG_CALL_SECONDS
        )

    async def read(self, path: str) -> str:
        """As text. UnicodeDecodeError if it is not UTF-8: nothing is bent."""
        return (await self.read_bytes(path)).decode()

    async def write(
        self,
        path: str,
        data: bytes | str,
        *,
        mode: int | None = None,
        parents: bool = False,
    ) -> int:
        """Replaces the file; its size."""
        return await self._put(path, data, {"mode": _octal(mode), "parents": parents or None})

    async def append(self, path: str, data: bytes | str) -> int:
        return await self._put(path, data, {"append": True})

    async def _put(self, path: str, data: bytes | str, query: dict[str, Any]) -> int:
        body = await self._transport.fetch(
            "PUT",
            f"{self._path}/files",
            query={"path": path, **query},
            body=data.encode() if isinstance(data, str) else bytes(data),
            headers={"Content-Type": "application/octet-stream"},
            seconds=LONG_CALL_SECONDS,
        )
        return _size(body)

    async def stat(self, path: str) -> Entry:
        body = await self._transport.call("GET", f"{self._path}/stat", query={"path": path})
        return Entry.of(body)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def list(self, path: str) -> List[Entry]:
        body = await self._transport.call("GET", f"{self._path}/list", query={"path": path})
        return [Entry.of(entry) for entry in body["entries"]]

    async def mkdir(self, path: str, *, mode: int | None = None, parents: bool = False) -> None:
        wanted: dict[str, Any] = {"path": path}
        if mode is not None:
            wanted["mode"] = _octal(mode)
        if parents:
            wanted["parents"] = True
        await self._transport.call("POST", f"{self._path}/mkdir", json=wanted)

    async def move(self, path: str, to: str, *, replace: bool = False) -> None:
        wanted: dict[str, Any] = {"path": path, "to": to}
        if replace:
            wanted["replace"] = True
        await self._transport.call("POST", f"{self._path}/move", json=wanted)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        query = {"path": path, "recursive": recursive or None}
        await self._transport.call("DELETE", f"{self._path}/files", query=query)


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:o}"


def _size(body: bytes) -> int:
    size = parse_object(body).get("size")
    if not isinstance(size, int):
        raise broken("a write without a size")
    return size
