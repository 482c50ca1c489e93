# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Templates of a daemon: images with a start command and a ready check."""

from __future__ import annotations

import os
from builtins import list as List
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._sync.builds import Told
from agentkernel.client._sync.transport import Transport
from agentkernel.client.socket_stream import in_thread
from agentkernel.client.build_context import LocalPath, context_pieces, read_ignore
from agentkernel.client.template import Template
from agentkernel.client.wire import segment


class Templates:
    """`Host().templates`. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def build(
        self,
        name: str,
        template: Template | Mapping[str, Any],
        *,
        context: LocalPath | None = None,
        no_cache: bool = False,
        network: Mapping[str, Any] | None = None,
        progress: Told | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Its steps run in sandboxes; `copy` takes files of the directory `context`, without those
        of its .dockerignore. `progress` is called with the name and the body of each event. Raises
        ImageBuildError."""
        spec = template.to_dict() if isinstance(template, Template) else dict(template)
        wanted = {
            "template": spec,
            "no_cache": no_cache,
            "network": None if network is None else dict(network),
            **more,
        }
        given = {key: value for key, value in wanted.items() if value is not None}
        with closing(_pieces(context, given)) as pieces:
            events = self._transport.upload_events(f"/v1/templates/{segment(name)}", pieces)
            return _built(events, progress)

    def build_source(
        self,
        name: str,
        source: str,
        *,
        base: str | None = None,
        run: Sequence[str] | None = None,
        start: str | None = None,
        ready: Mapping[str, Any] | None = None,
        no_cache: bool = False,
        progress: Told | None = None,
    ) -> dict[str, Any]:
        """Of a git repository, URL[@REF]: cloned in a sandbox, its runtime found out (or `base`),
        its dependencies installed (or `run`)."""
        wanted = {
            "source": source,
            "base": base,
            "run": None if run is None else list(run),
            "start": start,
            "ready": None if ready is None else dict(ready),
            "no_cache": no_cache,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        path = f"/v1/templates/{segment(name)}/source"
        return _built(self._transport.events(path, method="POST", json=body), progress)

    def list(self) -> List[dict[str, Any]]:
        """By name."""
        body = self._transport.call("GET", "/v1/templates")
        found: List[dict[str, Any]] = body["templates"]
        return found

    def get(self, name: str) -> dict[str, Any]:
        """NotFoundError if there is none."""
        body: dict[str, Any] = self._transport.call("GET", f"/v1/templates/{segment(name)}")
        return body

    def remove(self, name: str, *, force: bool = False) -> None:
        """ConflictError while sandboxes stand on it; `force` then keeps what they need."""
        self._transport.call(
            "DELETE", f"/v1/templates/{segment(name)}", query={"force": 1 if force else None}
        )


def _built(
    events: Generator[tuple[str, dict[str, Any]], None], progress: Told | None
) -> dict[str, Any]:
    with closing(events):
        for kind, body in events:
            if kind == "template":
                return body
            if progress is not None:
                progress(kind, body)
    raise wire.broken("a build that did not come to an end")


def _pieces(context: LocalPath | None, wanted: dict[str, Any]) -> Generator[bytes, None]:
    ignore = in_thread(read_ignore, context or os.curdir, None)
    pieces = in_thread(context_pieces, context, ignore, wanted)
    try:
        while (piece := in_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()
