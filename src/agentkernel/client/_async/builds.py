"""Images built by the daemon from a Dockerfile and a directory of this machine."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client.asyncio_stream import in_thread
from agentkernel.client.build_context import (
    LocalPath,
    context_pieces,
    find_dockerfile,
    read_dockerfile,
    read_ignore,
)

# The name of an event and what it holds, as the HTTP API has it: started, step, output, done, note.
Told = Callable[[str, dict[str, Any]], object]


async def build_image(
    transport: AsyncTransport,
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
    """See `AsyncImages.build`."""
    path = None
    if text is None:
        path = await in_thread(find_dockerfile, context, dockerfile)
        text = await in_thread(read_dockerfile, path)
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
    async with aclosing(_pieces(context, path, given)) as pieces:
        events = transport.upload_events("/v1/images/build", pieces)
        async with aclosing(events):
            async for kind, body in events:
                if kind == "built":
                    return body
                if progress is not None:
                    progress(kind, body)
    raise wire.broken("a build that did not come to an end")


async def _pieces(
    context: LocalPath | None, dockerfile: LocalPath | None, wanted: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    ignore = await in_thread(read_ignore, context or os.curdir, dockerfile)
    pieces = await in_thread(context_pieces, context, ignore, wanted)
    try:
        while (piece := await in_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()
