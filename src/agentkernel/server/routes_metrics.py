"""`/metrics`: the daemon's numbers, as Prometheus reads them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel import __version__
from agentkernel.server.app import resident_bytes, service_of
from agentkernel.server.metrics import CONTENT_TYPE
from agentkernel.server.operations import route


async def _metrics(request: Request) -> Response:
    service = service_of(request)
    known = await service.kernel.statistics()
    networks = service.kernel.networks
    text = service.metrics.text(
        [
            ("info", "Always 1; the label is the version.", {(("version", __version__),): 1}),
            (
                "start_time_seconds",
                "When the daemon started, in Unix seconds.",
                {(): service.started_at},
            ),
            ("resident_bytes", "Memory of the daemon's own.", {(): resident_bytes()}),
            (
                "sandboxes",
                "Sandboxes there are, by state.",
                {(("state", state),): count for state, count in known.sandboxes.items()},
            ),
            (
                "jobs",
                "Jobs there are, by state.",
                {(("state", state),): count for state, count in known.jobs.items()},
            ),
            (
                "streams",
                "WebSockets and event streams that are open, by door.",
                {(("door", door),): count for door, count in service.open_streams.items()},
            ),
            ("network_sandboxes", "Running sandboxes with a way out.", {(): networks.ways}),
            (
                "gateway_running",
                "Whether the network's gateway runs: 0 until a sandbox sends something.",
                {(): float(networks.gateway_runs)},
            ),
        ],
        [
            (
                "network_decisions_total",
                "Decisions about sandboxes' connections, requests and names, by kind.",
                {(("kind", kind),): count for kind, count in networks.decisions.items()},
            ),
        ],
    )
    return Response(text, media_type=CONTENT_TYPE)


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/metrics", _metrics, needs="read", id="getMetrics", tag="daemon",
        summary="The daemon's numbers, for Prometheus", answers={200: "text/plain"},
    ),
]  # fmt: skip
