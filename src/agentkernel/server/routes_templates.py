"""Templates over HTTP: built as images are, listed, shown, removed.

A build's archive begins with the same file as that of an image's build; here it holds a template in
place of a Dockerfile.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import InvalidInputError
from agentkernel.images.building.context import Context
from agentkernel.kernel.building.model import BuildRequest, Report
from agentkernel.kernel.template_model import MAX_BYTES, Template, TemplateSpec
from agentkernel.kernel.template_sources import Source, SourceRequest
from agentkernel.kernel.threads import in_thread
from agentkernel.server import sse
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of, check_network
from agentkernel.server.content import transfer_time, uploaded
from agentkernel.server.operations import TAR, route
from agentkernel.server.problems import json_response
from agentkernel.server.routes_builds import BUILD_EVENTS, BUILD_FILE
from agentkernel.server.step_events import nobody, step_events

_BATCH: Final = 1 << 20
# JSON may write a byte as six.
_MAX_FILE: Final = 6 * MAX_BYTES + (1 << 20)
_KINDS: Final = {kind: name for name, kind in BUILD_EVENTS.items()}
TEMPLATE_EVENTS: Final[dict[str, Any]] = {**BUILD_EVENTS, "template": Template}
del TEMPLATE_EVENTS["built"]


class TemplateBuild(BuildRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What BUILD_FILE holds. `tags` and `target` have no meaning here."""

    template: TemplateSpec


class TemplateSource(SourceRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository to make a template of."""

    no_cache: bool = False


class RemoveTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`force`: also if sandboxes stand on it; they keep what they need."""

    force: bool = False


class TemplateList(msgspec.Struct, frozen=True, kw_only=True):
    templates: list[Template]


async def _build(request: Request) -> Response:
    service = service_of(request)
    with ExitStack() as stack:
        context = stack.enter_context(service.kernel.builds.context())
        await _receive(request, context)
        wanted = _wanted(context)
        if not caller_of(request).users_spec:
            check_network(request, wanted.network)

        async def work(report: Report) -> Template:
            return await service.kernel.templates.build(
                request.path_params["template"], wanted.template, context, wanted,
                report=report, owner=caller_of(request).owner,
            )  # fmt: skip

        if sse.is_wanted(request):
            # From here on the stream closes it.
            return await sse.stream(request, step_events(work, _KINDS, "template", stack.pop_all()))
        return json_response(await service.while_wanted(request.receive, work(nobody)))


async def _from_source(request: Request, body: TemplateSource) -> Response:
    service = service_of(request)
    source = Source.parse(body.source)
    if not caller_of(request).users_spec:
        check_network(request, source.network())

    async def work(report: Report) -> Template:
        return await service.kernel.templates.build_source(
            request.path_params["template"], body, no_cache=body.no_cache, report=report,
            owner=caller_of(request).owner,
        )  # fmt: skip

    if sse.is_wanted(request):
        return await sse.stream(request, step_events(work, _KINDS, "template"))
    return json_response(await service.while_wanted(request.receive, work(nobody)))


async def _receive(request: Request, context: Context) -> None:
    buffer = bytearray()
    async with transfer_time(request), aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            buffer += piece
            if len(buffer) >= _BATCH:
                await in_thread(context.feed, bytes(buffer))
                buffer.clear()
        await in_thread(context.feed, bytes(buffer))
        await in_thread(context.finish)


def _wanted(context: Context) -> TemplateBuild:
    content = context.take(BUILD_FILE, _MAX_FILE)
    if content is None:
        raise InvalidInputError(
            f"the archive does not begin with {BUILD_FILE}",
            hint="it is a JSON object with the field template",
        )
    try:
        return msgspec.json.decode(content, type=TemplateBuild)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInputError(f"{BUILD_FILE}: {exc}") from None


async def _list(request: Request) -> TemplateList:
    return TemplateList(templates=await service_of(request).kernel.templates.list())


async def _show(request: Request) -> Template:
    return await service_of(request).kernel.templates.get(request.path_params["template"])


async def _remove(request: Request, query: RemoveTemplate) -> None:
    await service_of(request).kernel.templates.remove(
        request.path_params["template"], force=query.force, owner=caller_of(request).owner
    )


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/templates", _list, needs="read", id="listTemplates", tag="images",
        summary="The templates that are here",
    ),
    route(
        "GET", "/v1/templates/{template}", _show, needs="read", id="getTemplate", tag="images",
        summary="A template: its steps, how its sandboxes begin, what it takes",
    ),
    route(
        "PUT", "/v1/templates/{template}", _build, needs="manage", id="buildTemplate",
        tag="images", answers={200: Template}, events=TEMPLATE_EVENTS, upload=TAR,
        summary="Build a template of steps and files; as events with steps and output",
    ),
    route(
        "POST", "/v1/templates/{template}/source", _from_source, needs="manage",
        id="buildTemplateFromSource", tag="images", answers={200: Template},
        events=TEMPLATE_EVENTS,
        summary="Build a template of a git repository: its runtime, its files, its dependencies",
    ),
    route(
        "DELETE", "/v1/templates/{template}", _remove, needs="manage", id="removeTemplate",
        tag="images", summary="Remove a template; sandboxes of it keep what they need",
    ),
]  # fmt: skip
