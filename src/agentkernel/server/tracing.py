"""Traces: whose request a command belongs to, told to the command, and spans for who collects them.

A caller's `traceparent` (W3C Trace Context) goes into the environment of the commands it starts, as
TRACEPARENT. Spans are made when OTEL_EXPORTER_OTLP_ENDPOINT is set where the daemon starts, and
`agentkernel[otel]` is installed; nothing of it is imported otherwise. They name routes, actions and
outcomes: no command, no path, no sandbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import HTTPConnection

from agentkernel import __version__
from agentkernel.audit.trail import Ended, Observer
from agentkernel.guest.processes import ProcessOptions

VARIABLE: Final = "TRACEPARENT"
SPANNED: Final = ("sandbox.create", "exec")
_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_EXPORT_SECONDS: Final = 2

log = logging.getLogger("agentkernel.server")
_parent: ContextVar[str | None] = ContextVar("agentkernel_traceparent", default=None)


def traceparent_of(headers: Any) -> str | None:
    """The header's value, if it is one; what is not is as if it had not been sent."""
    found = [value for name, value in headers if name == b"traceparent"]
    if len(found) != 1:
        return None
    text = found[0].decode("latin-1").strip()
    if not _FORM.match(text) or (text.startswith("00") and len(text) != 55) or len(text) > 255:
        return None
    return str(text[:55])


def traced(connection: HTTPConnection, options: ProcessOptions) -> ProcessOptions:
    """The options of a command that is told whose request it belongs to, unless it is already."""
    parent = _parent.get() or traceparent_of(connection.scope["headers"])
    if parent is None or VARIABLE in options.env:
        return options
    return msgspec.structs.replace(options, env={VARIABLE: parent, **options.env})


class Spans(Protocol):
    """What makes spans, if anything does."""

    def request(self, scope: Any) -> contextlib.AbstractContextManager[None]: ...

    def began(self, action: str) -> Ended: ...

    def close(self) -> None: ...


def spans_of_environment(environment: Mapping[str, str] = os.environ) -> Spans | None:
    """None: nobody wants them, or the packages are not there, which the log says."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not any(environment.get(name) for name in names):
        return None
    try:
        return _OpenTelemetry()
    except ImportError as exc:
        log.warning("no spans are made: %s; install agentkernel[otel]", exc.name)
    except Exception as exc:  # of packages that read settings of their own
        log.warning("no spans are made: %s", type(exc).__name__)
    return None


class Watching:
    """Two observers of the audit trail in the place of one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def began(self, action: str) -> Ended:
        ends = [observer.began(action) for observer in self._observers]

        def ended(result: str, code: str | None, details: Mapping[str, Any]) -> None:
            for end in ends:
                end(result, code, details)

        return ended


class _OpenTelemetry:
    def __init__(self) -> None:
        sdk = import_module("opentelemetry.sdk.trace")
        resources = import_module("opentelemetry.sdk.resources")
        export = import_module("opentelemetry.sdk.trace.export")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        self._trace = import_module("opentelemetry.trace")
        self._propagation = import_module("opentelemetry.trace.propagation.tracecontext")
        named = {"service.name": "agentkernel", "service.version": __version__}
        self._provider = sdk.TracerProvider(
            resource=resources.Resource.create(named), shutdown_on_exit=False
        )
        exporter = otlp.OTLPSpanExporter(timeout=_EXPORT_SECONDS)
        self._provider.add_span_processor(
            export.BatchSpanProcessor(exporter, export_timeout_millis=_EXPORT_SECONDS * 1000)
        )
        self._tracer = self._provider.get_tracer("agentkernel", __version__)

    @contextlib.contextmanager
    def request(self, scope: Any) -> Iterator[None]:
        propagator = self._propagation.TraceContextTextMapPropagator()
        parent = traceparent_of(scope["headers"])
        context = propagator.extract({"traceparent": parent}) if parent else None
        with self._tracer.start_as_current_span(
            "request", context=context, kind=self._trace.SpanKind.SERVER
        ) as span:
            carrier: dict[str, str] = {}
            propagator.inject(carrier)
            token = _parent.set(carrier.get("traceparent"))
            try:
                yield
            finally:
                _parent.reset(token)
                span.set_attribute("http.request.method", scope.get("method", "GET"))
                if template := scope.get("state", {}).get("template"):
                    span.set_attribute("http.route", template)
                    span.update_name(f"{scope.get('method', 'GET')} {template}")

    def began(self, action: str) -> Ended:
        if action not in SPANNED:
            return _nothing
        span = self._tracer.start_span(action)

        def ended(result: str, code: str | None, details: Mapping[str, Any]) -> None:
            span.set_attribute("agentkernel.result", result)
            if outcome := details.get("outcome"):
                span.set_attribute("agentkernel.outcome", outcome)
            if code is not None:
                span.set_attribute("error.type", code)
                span.set_status(self._trace.StatusCode.ERROR)
            span.end()

        return ended

    def close(self) -> None:
        """Sends what is left, if somebody takes it soon. Blocks for some seconds at most."""
        self._provider.shutdown()


def _nothing(result: str, code: str | None, details: Mapping[str, Any]) -> None:
    pass
