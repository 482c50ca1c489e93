# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Volumes: directories with names that outlive the sandboxes which have them."""

from __future__ import annotations

from builtins import list as List
from collections.abc import Generator, Iterable
from typing import Any

from agentkernel.client._sync.transport import (
    LONG_CALL_SECONDS,
    PIECE_SECONDS,
    Transport,
)
from agentkernel.client.wire import segment


class Volumes:
    """Those of one daemon: `Host().volumes`. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, quota_bytes: int | None = None, exclusive: bool = False
    ) -> dict[str, Any]:
        """An empty volume. `quota_bytes`: a disk of its own of that size, refused where it can't be
        enforced. `exclusive`: at most one sandbox at a time runs with it."""
        wanted = {"name": name, "quota_bytes": quota_bytes, "exclusive": exclusive}
        body: dict[str, Any] = self._transport.call("POST", "/v1/volumes", json=wanted)
        return body

    def list(self, *, owner: str | None = None, usage: bool = False) -> List[dict[str, Any]]:
        """All volumes. `usage`: with what each takes on the disk, which is found by looking at all
        files. `owner`: another's, or `*` for everybody's, for the scope admin."""
        query = {"owner": owner, "usage": 1 if usage else None}
        body = self._transport.call(
            "GET", "/v1/volumes", query=query, seconds=LONG_CALL_SECONDS
        )
        volumes: List[dict[str, Any]] = body["volumes"]
        return volumes

    def get(self, name: str) -> dict[str, Any]:
        """A volume by name or id, with who has it and what it takes."""
        body: dict[str, Any] = self._transport.call(
            "GET", f"/v1/volumes/{segment(name)}", seconds=LONG_CALL_SECONDS
        )
        return body

    def remove(self, name: str, *, force: bool = False) -> None:
        """With all that is in it. `force`: also if stopped sandboxes have it, which then can't be
        started any more."""
        self._transport.call(
            "DELETE",
            f"/v1/volumes/{segment(name)}",
            query={"force": 1 if force else None},
            seconds=LONG_CALL_SECONDS,
        )

    def export(self, name: str) -> Generator[bytes, None]:
        """All that is in it as a tar archive, in pieces. What sandboxes put into it is for the
        reader to mistrust. DaemonError if it breaks off: then it has no end."""
        return self._transport.pieces(
            f"/v1/volumes/{segment(name)}/archive", patience=PIECE_SECONDS
        )

    def import_archive(
        self,
        name: str,
        pieces: Iterable[bytes],
        *,
        quota_bytes: int | None = None,
        exclusive: bool = False,
    ) -> dict[str, Any]:
        """A new volume from a tar archive that is not compressed: there whole, or not at all."""
        query = {"quota_bytes": quota_bytes, "exclusive": 1 if exclusive else None}
        body: dict[str, Any] = self._transport.upload(
            f"/v1/volumes/{segment(name)}/archive", pieces, query=query
        )
        return body
