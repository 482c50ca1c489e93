"""Images of a daemon, which belong to everybody who uses it. Looking at them needs the scope
`read`, everything else `manage`."""

from __future__ import annotations

import os
from builtins import list as List
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from agentkernel.client import wire
from agentkernel.client._async.builds import Told, build_image
from agentkernel.client._async.transport import (
    LONG_CALL_SECONDS,
    PIECE_SECONDS,
    AsyncTransport,
)
from agentkernel.client.asyncio_stream import in_thread
from agentkernel.client.image_files import NewFile, archive_pieces
from agentkernel.client.results import ImageInfo, LayerProgress

LocalPath = str | os.PathLike[str]
Progress = Callable[[LayerProgress], object]
_ARCHIVE = "/v1/images/archive"


class AsyncImages:
    """Those of the daemon: `Host().images`. An image is said by a name, an id, the beginning of
    one, or a digest."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def pull(
        self, reference: str, *, platform: str | None = None, progress: Progress | None = None
    ) -> ImageInfo:
        """Fetches an image from its registry, or what has changed of it since."""
        wanted = {"reference": reference, "platform": platform}
        return await self._made("/v1/images/pull", wanted, progress)

    async def load(
        self,
        archive: LocalPath | AsyncIterable[bytes],
        *,
        name: str | None = None,
        platform: str | None = None,
        progress: Progress | None = None,
    ) -> List[ImageInfo]:
        """The images of an archive: of `docker save`, or an OCI layout as tar (plain, gzip, zstd)
        or as a directory. `name`: for an archive of one image, instead of the names it says."""
        if isinstance(archive, str | os.PathLike):
            async with aclosing(_pieces(archive)) as pieces:
                return await self._load(pieces, name, platform, progress)
        return await self._load(archive, name, platform, progress)

    async def _load(
        self,
        pieces: AsyncIterable[bytes],
        name: str | None,
        platform: str | None,
        progress: Progress | None,
    ) -> List[ImageInfo]:
        query = {"name": name, "platform": platform}
        async with aclosing(self._transport.upload_events(_ARCHIVE, pieces, query=query)) as events:
            async for kind, body in events:
                if kind == "progress" and progress is not None:
                    progress(LayerProgress.of(body))
                elif kind == "images":
                    return [ImageInfo.of(entry) for entry in body.get("images", ())]
        raise wire.broken("images that did not come to an end")

    def save_stream(
        self, *images: str, format: Literal["oci", "docker"] = "oci"
    ) -> AsyncGenerator[bytes, None]:
        """An archive of these, in pieces. DaemonError if it breaks off: then it is of no use."""
        query = {"image": list(images), "format": format}
        return self._transport.pieces(_ARCHIVE, query=query, patience=PIECE_SECONDS)

    async def save(
        self, path: LocalPath, *images: str, format: Literal["oci", "docker"] = "oci"
    ) -> int:
        """The same as a file, which is there when it is whole; its size."""
        async with aclosing(self.save_stream(*images, format=format)) as pieces:
            with NewFile(path) as file:
                async for piece in pieces:
                    await in_thread(file.write, piece)
                return await in_thread(file.keep)

    async def import_directory(
        self,
        directory: LocalPath,
        name: str,
        *,
        user: str = "",
        env: Mapping[str, str] | None = None,
        entrypoint: Sequence[str] = (),
        cmd: Sequence[str] = (),
        working_dir: str = "",
        labels: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> ImageInfo:
        """An image of a directory of the daemon's machine that holds a root file system. Needs the
        scope `host-paths`, too."""
        wanted = {
            "directory": await in_thread(os.path.abspath, directory),
            "name": name,
            "user": user or None,
            "env": [f"{key}={value}" for key, value in (env or {}).items()] or None,
            "entrypoint": list(entrypoint) or None,
            "cmd": list(cmd) or None,
            "working_dir": working_dir or None,
            "labels": dict(labels or {}) or None,
        }
        return await self._made("/v1/images/import", wanted, progress)

    async def build(
        self,
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
        """An image of a Dockerfile: that of the directory `context`, the file `dockerfile`, or
        `text`. Each step runs in a sandbox of its own; `network` is what it may reach, as a
        sandbox's. `progress` is called with the name and the body of each event (`step`, `output`,
        …). Returns `digest`, `id`, `names`, and how many of its `layers` were `cached`. Raises
        ImageBuildError."""
        return await build_image(
            self._transport, context, dockerfile=dockerfile, text=text, tags=tags, target=target,
            build_args=build_args, no_cache=no_cache, network=network, progress=progress, **more,
        )  # fmt: skip

    async def in_reach(self, reference: str) -> bool:
        """Whether an image is here, or a registry has it that answers at once."""
        query = {"reference": reference}
        body = await self._transport.call("GET", "/v1/images/reach", query=query)
        return bool(body["in_reach"])

    async def list(self) -> List[ImageInfo]:
        """By name."""
        body = await self._transport.call("GET", "/v1/images")
        return [ImageInfo.of(entry) for entry in body["images"]]

    async def inspect(self, image: str) -> dict[str, Any]:
        """All that is known of an image: config, layers, history."""
        query = {"image": image}
        found: dict[str, Any] = await self._transport.call("GET", "/v1/images/details", query=query)
        return found

    async def tag(self, image: str, name: str) -> ImageInfo:
        """One more name for an image; another one that has it loses it."""
        wanted = {"image": image, "name": name}
        return ImageInfo.of(await self._transport.call("POST", "/v1/images/tag", json=wanted))

    async def remove(self, image: str, *, force: bool = False) -> dict[str, Any]:
        """Takes a name away, and with the last one the content: `untagged`, `deleted` and
        `freed_bytes`. ConflictError while sandboxes stand on it; `force` then keeps what they
        need."""
        gone: dict[str, Any] = await self._transport.call(
            "DELETE",
            "/v1/images",
            query={"image": image, "force": force or None},
            seconds=LONG_CALL_SECONDS,
        )
        return gone

    async def prune(self, *, all: bool = False) -> dict[str, Any]:
        """Removes what nobody needs: `untagged`, `blobs`, `layers` and `freed_bytes`. `all`: also
        images with a name that no sandbox was made from."""
        gone: dict[str, Any] = await self._transport.call(
            "POST", "/v1/images/prune", json={"all": all}, seconds=LONG_CALL_SECONDS
        )
        return gone

    async def _made(
        self, path: str, wanted: dict[str, Any], progress: Progress | None
    ) -> ImageInfo:
        """By a stream also for those who want no progress: it may take long, and says so."""
        given = {key: value for key, value in wanted.items() if value is not None}
        async with aclosing(self._transport.events(path, method="POST", json=given)) as events:
            async for kind, body in events:
                if kind == "progress" and progress is not None:
                    progress(LayerProgress.of(body))
                elif kind == "image":
                    return ImageInfo.of(body)
        raise wire.broken("an image that did not come to an end")


async def _pieces(path: LocalPath) -> AsyncGenerator[bytes, None]:
    pieces = await in_thread(archive_pieces, path)
    try:
        while (piece := await in_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()
