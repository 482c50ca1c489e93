# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Images built by the daemon from a Dockerfile and a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import Generator, Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._sync.transport import Transport
from agentkernel.client.socket_stream import in_thread
from agentkernel.client.build_context import (
    LocalPath,
    context_pieces,
    find_dockerfile,
    read_dockerfile,
    read_ignore,
)

# The name of an event and what it holds, as the HTTP API has it: started, step, output, done, note.
Told = Callable[[str, dict[str, Any]], object]


def build_image(
    transport: Transport,
    context: LocalPath | None,
    *,
    dockerfile: LocalPath | None = None,
    text: str | None = None,
    tags: Sequence[str] = (),
    target: str = "",
    build_args: Mapping[str, str] | None = None,
    no_cache: bool = False,
    network: Mapping[str, Any] | None = None,
    progress: Told | None = None,
    **more: Any,
) -> dict[str, Any]:
    """See `Images.build`."""
    path = None
    if text is None:
        path = in_thread(find_dockerfile, context, dockerfile)
        text = in_thread(read_dockerfile, path)
    wanted: dict[str, Any] = {
        "dockerfile": text,
        "tags": list(tags),
        "target": target,
        "build_args": dict(build_args or {}),
        "no_cache": no_cache,
        "network": None if network is None else dict(network),
        **more,
    }
    given = {key: value for key, value in wanted.items() if value is not None}
    with closing(_pieces(context, path, given)) as pieces:
        events = transport.upload_events("/v1/images/build", pieces)
        with closing(events):
            for kind, body in events:
                if kind == "built":
                    return body
                if progress is not None:
                    progress(kind, body)
    raise wire.broken("a build that did not come to an end")


def _pieces(
    context: LocalPath | None, dockerfile: LocalPath | None, wanted: dict[str, Any]
) -> Generator[bytes, None]:
    ignore = in_thread(read_ignore, context or os.curdir, dockerfile)
    pieces = in_thread(context_pieces, context, ignore, wanted)
    try:
        while (piece := in_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()
