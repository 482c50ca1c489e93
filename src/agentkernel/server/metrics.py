"""Numbers about the daemon, counted as things happen and shown as text for Prometheus.

A writer of our own: the format is a few lines, and the usual library would add a tenth to the time
that the daemon takes to start. No label says which sandbox or whose: there is a known number of
series, however many sandboxes there are.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from agentkernel.audit.trail import Ended

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
# What somebody asked for that is no route of ours has one name, whatever it was.
ELSEWHERE: Final = "other"

Labels = tuple[tuple[str, str], ...]
Family = tuple[str, str, Mapping[Labels, float]]
"""Its name, what it is, values by labels."""


class Histogram:
    """How often something took at most so long."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Metrics:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._bytes: Counter[tuple[str, str]] = Counter()
        self._creates: Counter[str] = Counter()
        self._commands: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    # -- counting -------------------------------------------------------------------------------

    def began(self, action: str) -> Ended:
        """As an observer of the audit trail: every call of the kernel passes there."""

        def ended(result: str, code: str | None, details: Mapping[str, Any]) -> None:
            if code is not None and result == "error":
                self._failures[code] += 1
            if action == "sandbox.create":
                self._creates[result] += 1
            elif action == "exec":
                self._commands[str(details.get("outcome", result))] += 1

        return ended

    def refused(self, code: str) -> None:
        """Somebody was not let in."""
        self._refusals[code] += 1

    async def watch(
        self,
        app: Callable[[Scope, Receive, Send], Any],
        templates: Mapping[Any, str],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serves one request or stream, and counts it. `templates`: by endpoint, a route's path."""
        began = time.perf_counter()
        door = "network" if scope.get("client") else "socket"

        async def receiving() -> Message:
            message = await receive()
            size = len(message.get("body") or b"") + len(message.get("bytes") or b"")
            self._bytes["in", door] += size + len(message.get("text") or "")
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                template = templates.get(scope.get("endpoint"), ELSEWHERE)
                # Any word can be a method; ours are few.
                method = scope["method"] if template != ELSEWHERE else ELSEWHERE
                self._requests[template, method, message["status"]] += 1
                histogram = self._seconds.get((template, method))
                if histogram is None:
                    histogram = self._seconds[template, method] = Histogram()
                histogram.add(time.perf_counter() - began)
            size = len(message.get("body") or b"") + len(message.get("bytes") or b"")
            self._bytes["out", door] += size
            await send(message)

        await app(scope, receiving, sending)

    # -- showing --------------------------------------------------------------------------------

    def text(self, gauges: Iterable[Family], counted: Iterable[Family] = ()) -> bytes:
        """All of it. `gauges` and `counted`: what only the caller knows."""
        lines = [line for name, about, values in gauges
                 for line in _family(name, "gauge", about, values)]  # fmt: skip
        counters: list[Family] = [
            *counted,
            ("sandbox_creates_total", "Sandboxes made, or not, by result.",
             {(("result", key),): n for key, n in self._creates.items()}),
            ("commands_total", "Commands that ended, by outcome.",
             {(("outcome", key),): n for key, n in self._commands.items()}),
            ("failures_total", "Calls that failed, by the error's code.",
             {(("code", key),): n for key, n in self._failures.items()}),
            ("refusals_total", "Requests that were not let in, by the error's code.",
             {(("code", key),): n for key, n in self._refusals.items()}),
            ("body_bytes_total", "Bytes of bodies and messages, by direction and door.",
             {(("direction", way), ("door", door)): n for (way, door), n in self._bytes.items()}),
            ("requests_total", "Requests answered, by route, method and status.",
             {(("route", route), ("method", method), ("status", str(status))): n
              for (route, method, status), n in self._requests.items()}),
        ]  # fmt: skip
        for name, about, values in counters:
            lines += _family(name, "counter", about, values)
        lines += self._histograms()
        return "\n".join((*lines, "")).encode()

    def _histograms(self) -> Iterator[str]:
        name = "agentkernel_request_seconds"
        yield f"# HELP {name} Time until an answer began, by route and method."
        yield f"# TYPE {name} histogram"
        for (route, method), histogram in self._seconds.items():
            labels = (("route", route), ("method", method))
            total = 0
            for bound, count in zip((*BOUNDS, None), histogram.counts, strict=True):
                total += count
                le = "+Inf" if bound is None else f"{bound:g}"
                yield f"{name}_bucket{_shown((*labels, ('le', le)))} {total}"
            yield f"{name}_sum{_shown(labels)} {histogram.sum:.6f}"
            yield f"{name}_count{_shown(labels)} {total}"


def _family(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield f"# HELP agentkernel_{name} {about}"
    yield f"# TYPE agentkernel_{name} {kind}"
    for labels, value in values.items():
        yield f"agentkernel_{name}{_shown(labels)} {value:.17g}"


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
