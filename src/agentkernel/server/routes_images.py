"""Images over HTTP: pulled, loaded, saved, imported, named, looked at, removed.

They belong to the installation: whoever may read sees all of them, whoever may manage sandboxes may
fetch and remove them. Archives go both ways as streams, of which nothing is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.images.oci.archives.writing import Format
from agentkernel.images.oci.model import ContainerConfig
from agentkernel.images.oci.progress import PullProgress, Report, State
from agentkernel.kernel.image_views import ImageDetail, ImageInfo, ImageRemoved, ImagesPruned
from agentkernel.server import sse
from agentkernel.server.answers import Ended, Problem
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of, may_name
from agentkernel.server.content import Content, uploaded
from agentkernel.server.operations import TAR, route
from agentkernel.server.problems import RequestError, json_response
from agentkernel.server.telling import BEGUN, Telling

_Name = Annotated[str, Meta(min_length=1, max_length=512)]
_Text = Annotated[str, Meta(max_length=4096)]
_Texts = Annotated[list[str], Meta(max_length=256)]
_Platform = Annotated[str, Meta(max_length=100)]


class PullImage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`platform`: OS/ARCHITECTURE, if not this machine's."""

    reference: _Name
    platform: _Platform | None = None


class ReachQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reference: _Name


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """`in_reach`: it is here, or a registry that answers has it."""

    in_reach: bool


class LoadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name`: for an archive of one image, instead of the names that it says."""

    name: _Name | None = None
    platform: _Platform | None = None


class SaveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: list[str] = []
    format: Format = "oci"


class ImageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: _Name


class RemoveQuery(ImageQuery, frozen=True, forbid_unknown_fields=True):
    force: bool = False


class ImportImage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`directory`: a root file system on the daemon's machine. The rest is what processes of the
    image start from."""

    directory: _Text
    name: _Name
    user: _Text = ""
    env: _Texts = []
    entrypoint: _Texts = []
    cmd: _Texts = []
    working_dir: _Text = ""
    labels: Annotated[dict[str, str], Meta(max_length=256)] = {}

    def config(self) -> ContainerConfig:
        return ContainerConfig(
            user=self.user,
            env=self.env or None,
            entrypoint=self.entrypoint or None,
            cmd=self.cmd or None,
            working_dir=self.working_dir,
            labels=self.labels or None,
        )


class TagImage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    image: _Name
    name: _Name


class PruneImages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`all`: also images with a name that no sandbox was made from."""

    all: bool = False


class ImageList(msgspec.Struct, frozen=True, kw_only=True):
    images: list[ImageInfo]


class LayerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a layer is: `done` of `total` bytes, as they are compressed."""

    layer: str
    state: State
    done: int
    total: int


# What a stream of a download holds, by event; the last one is what a plain answer would be.
PULL_EVENTS: Final[dict[str, Any]] = {
    "progress": LayerProgress, "image": ImageInfo, "error": Problem, "ping": Ended,
}  # fmt: skip
LOAD_EVENTS: Final[dict[str, Any]] = {**PULL_EVENTS, "images": ImageList}
del LOAD_EVENTS["image"]


async def _list(request: Request) -> ImageList:
    images = service_of(request).kernel.images
    return ImageList(images=await images.list(owner=caller_of(request).owner))


async def _inspect(request: Request, query: ImageQuery) -> ImageDetail:
    images = service_of(request).kernel.images
    return await images.inspect(query.image, owner=caller_of(request).owner)


async def _pull(request: Request, body: PullImage) -> Response:
    service = service_of(request)

    async def work(report: Report) -> ImageInfo:
        return await service.kernel.images.pull(
            body.reference, platform=body.platform, progress=report
        )

    if sse.is_wanted(request):
        telling = Telling(work, _layer)
        return await sse.stream(request, _events(telling, "image", lambda image: image))
    image = await service.while_wanted(request.receive, work(_nobody))
    return json_response(image)


async def _load(request: Request, query: LoadQuery) -> Response:
    service = service_of(request)
    received = asyncio.Event()

    async def work(report: Report) -> list[ImageInfo]:
        async with aclosing(_pieces(request, received)) as archive:
            return await service.kernel.images.load(
                archive,
                name=query.name,
                platform=query.platform,
                progress=report,
                may_name=lambda name: may_name(request, name),
            )

    if not sse.is_wanted(request):
        return json_response(ImageList(images=await work(_nobody)))
    telling = Telling(work, _layer)
    whole = asyncio.ensure_future(received.wait())
    try:
        # While the body comes nothing can be told.
        await asyncio.wait((telling.task, whole), return_when=asyncio.FIRST_COMPLETED)
        if telling.task.done():
            telling.task.result()
    except BaseException:
        await telling.cancel()
        raise
    finally:
        whole.cancel()
    return await sse.stream(
        request, _events(telling, "images", lambda found: ImageList(images=found))
    )


async def _pieces(request: Request, received: asyncio.Event) -> AsyncGenerator[bytes, None]:
    seconds = service_of(request).bounds.transfer_seconds
    deadline = asyncio.get_running_loop().time() + seconds
    async with aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            if asyncio.get_running_loop().time() > deadline:
                raise RequestError(408, f"it did not come within {seconds:g} s")
            yield piece
    received.set()


async def _save(request: Request, query: SaveQuery) -> Response:
    content = _archive(request, query)
    # What is not here is an answer, not a body that breaks off.
    first = await anext(content)
    return Content(service_of(request), first, content, media_type=TAR)


async def _archive(request: Request, query: SaveQuery) -> AsyncGenerator[bytes, None]:
    images = service_of(request).kernel.images
    async with AsyncExitStack() as stack:
        pieces = await stack.enter_async_context(images.save(query.image, format=query.format))
        async for piece in pieces:
            yield piece


async def _import(request: Request, body: ImportImage) -> Response:
    service = service_of(request)
    caller_of(request).check("host-paths")

    async def work(report: Report) -> ImageInfo:
        return await service.kernel.images.import_directory(
            body.directory, body.name, config=body.config(), progress=report
        )

    if sse.is_wanted(request):
        telling = Telling(work, _layer)
        return await sse.stream(request, _events(telling, "image", lambda image: image))
    return json_response(await work(_nobody))


async def _tag(request: Request, body: TagImage) -> ImageInfo:
    may_name(request, body.name)
    return await service_of(request).kernel.images.tag(body.image, body.name)


async def _remove(request: Request, query: RemoveQuery) -> ImageRemoved:
    images = service_of(request).kernel.images
    return await images.remove(query.image, force=query.force, owner=caller_of(request).owner)


async def _reach(request: Request, query: ReachQuery) -> Reach:
    return Reach(in_reach=await service_of(request).kernel.images.in_reach(query.reference))


async def _prune(request: Request, body: PruneImages) -> ImagesPruned:
    return await service_of(request).kernel.images.prune(all=body.all)


async def _events(
    telling: Telling[PullProgress, Any], name: str, answer: Callable[[Any], msgspec.Struct]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(telling.words()) as words:
        await telling.begun()
        yield BEGUN
        async for word in words:
            yield sse.event("progress", word.to_dict())
    yield sse.event(name, answer(telling.task.result()))


def _layer(word: PullProgress) -> object:
    return word.layer


def _nobody(word: PullProgress) -> None:
    """Who asks for one answer is told of no progress."""


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/images", _list, needs="read", id="listImages", tag="images",
        summary="The images that are here, and which sandboxes were made from them",
    ),
    route(
        "GET", "/v1/images/details", _inspect, needs="read", id="inspectImage", tag="images",
        summary="An image's config, layers and digests",
    ),
    route(
        "POST", "/v1/images/pull", _pull, needs="manage", id="pullImage", tag="images",
        summary="Fetch an image from its registry; as events with the progress of each layer",
        answers={200: ImageInfo}, events=PULL_EVENTS,
    ),
    route(
        "PUT", "/v1/images/archive", _load, needs="manage", id="loadImages", tag="images",
        summary="Take the images of an archive: of `docker save`, or an OCI layout as tar",
        answers={200: ImageList}, events=LOAD_EVENTS, upload=TAR,
    ),
    route(
        "GET", "/v1/images/archive", _save, needs="manage", id="saveImages", tag="images",
        summary="Images as one archive, an OCI layout that `docker load` takes, too",
        answers={200: TAR},
    ),
    route(
        "POST", "/v1/images/import", _import, needs="manage", id="importImage", tag="images",
        summary="Make an image of a directory on the daemon's machine; needs host-paths, too",
        answers={200: ImageInfo}, events=PULL_EVENTS,
    ),
    route(
        "POST", "/v1/images/tag", _tag, needs="manage", id="tagImage", tag="images",
        summary="Give an image one more name",
    ),
    route(
        "GET", "/v1/images/reach", _reach, needs="manage", id="findImage", tag="images",
        summary="Whether an image is here or can be fetched now; a registry is asked briefly",
    ),
    route(
        "POST", "/v1/images/prune", _prune, needs="manage", id="pruneImages", tag="images",
        summary="Remove what of the images nobody needs any more",
    ),
    route(
        "DELETE", "/v1/images", _remove, needs="manage", id="removeImage", tag="images",
        summary="Take a name away, and with the last one the image",
    ),
]  # fmt: skip
