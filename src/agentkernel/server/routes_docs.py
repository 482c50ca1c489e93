"""The API about itself: its description, and a page that shows it."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.server.operations import HTML, JSON, route


async def _openapi(request: Request) -> Response:
    from agentkernel.server.openapi import document_bytes

    return Response(document_bytes(), media_type=JSON)


async def _docs(request: Request) -> Response:
    page, policy = _page()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return Response(page, media_type=HTML, headers=headers)


@functools.cache
def _page() -> tuple[bytes, str]:
    from agentkernel.server.openapi import document
    from agentkernel.server.openapi_page import content_policy, page

    return page(document()).encode(), content_policy()


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/openapi.json", _openapi, needs="read", id="getOpenApi", tag="daemon",
        summary="This description", answers={200: JSON},
    ),
    route(
        "GET", "/docs", _docs, needs="read", id="getDocs", tag="daemon",
        summary="The same as a page to read", answers={200: HTML},
    ),
]  # fmt: skip
