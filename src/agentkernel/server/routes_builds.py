"""Images built over HTTP: a context comes as tar, steps and their output go back as events.

The first file of the archive, BUILD_FILE, is JSON and says what is to be built: the Dockerfile's
text, and what goes with it. It is no part of the context.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.backends.local.shortages import host_errors
from agentkernel.errors import InvalidInputError
from agentkernel.images.building.context import Context
from agentkernel.images.dockerfile.model import MAX_FILE_BYTES
from agentkernel.images.dockerfile.parse import parse
from agentkernel.kernel.building.model import (
    BuildEvent,
    BuildNote,
    BuildOutput,
    BuildRequest,
    BuildStarted,
    BuildStep,
    BuildStepDone,
    Built,
    Report,
)
from agentkernel.kernel.threads import in_thread
from agentkernel.server import sse
from agentkernel.server.answers import Ended, Problem
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of, check_network, may_name
from agentkernel.server.content import transfer_time, uploaded
from agentkernel.server.operations import TAR, route
from agentkernel.server.problems import json_response
from agentkernel.server.step_events import nobody, step_events

BUILD_FILE: Final = ".agentkernel-build.json"
# As many events wait for a slow reader; then the build waits.
_BATCH: Final = 1 << 20
# JSON may write a byte of the Dockerfile as six.
_MAX_BUILD_FILE: Final = 6 * MAX_FILE_BYTES + (1 << 20)


class ImageBuild(BuildRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What BUILD_FILE holds. `dockerfile`: its text."""

    dockerfile: Annotated[str, Meta(max_length=MAX_FILE_BYTES)]


_NAMES: Final[dict[type[BuildEvent], str]] = {
    BuildStarted: "started",
    BuildStep: "step",
    BuildOutput: "output",
    BuildStepDone: "done",
    BuildNote: "note",
}
BUILD_EVENTS: Final[dict[str, Any]] = {
    **{name: kind for kind, name in _NAMES.items()},
    "built": Built, "error": Problem, "ping": Ended,
}  # fmt: skip


async def _build(request: Request) -> Response:
    service = service_of(request)
    with ExitStack() as stack:
        context = stack.enter_context(service.kernel.builds.context())
        await _receive(request, context)
        wanted = _wanted(context)
        if not caller_of(request).users_spec:
            check_network(request, wanted.network)
        for tag in wanted.tags:
            may_name(request, tag)
        build = await in_thread(parse, wanted.dockerfile.encode())

        async def work(report: Report) -> Built:
            return await service.kernel.builds.build(
                build, context, wanted, report=report, owner=caller_of(request).owner
            )

        if sse.is_wanted(request):
            # From here on the stream closes it.
            return await sse.stream(request, step_events(work, _NAMES, "built", stack.pop_all()))
        return json_response(await service.while_wanted(request.receive, work(nobody)))


async def _receive(request: Request, context: Context) -> None:
    buffer = bytearray()
    async with transfer_time(request), aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            buffer += piece
            if len(buffer) >= _BATCH:
                await _feed(context, bytes(buffer))
                buffer.clear()
        await _feed(context, bytes(buffer))
        await in_thread(context.finish)


async def _feed(context: Context, data: bytes) -> None:
    with host_errors("keeping the context"):
        await in_thread(context.feed, data)


def _wanted(context: Context) -> ImageBuild:
    content = context.take(BUILD_FILE, _MAX_BUILD_FILE)
    if content is None:
        raise InvalidInputError(
            f"the archive does not begin with {BUILD_FILE}",
            hint="it is a JSON object with the field dockerfile, the text of the Dockerfile",
        )
    try:
        return msgspec.json.decode(content, type=ImageBuild)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInputError(f"{BUILD_FILE}: {exc}") from None


ROUTES: list[BaseRoute] = [
    route(
        "PUT", "/v1/images/build", _build, needs="manage", id="buildImage", tag="images",
        summary="Build an image of a Dockerfile and its context; as events with steps and output",
        answers={200: Built}, events=BUILD_EVENTS, upload=TAR,
    ),
]  # fmt: skip
