"""Exports spans to an OpenTelemetry collector. Needs the extra `traces`; imported only with `--traces`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace import TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from agentos.core.protocol.trace_context import SpanContext

EXPORT_INTERVAL = 1.0  # seconds
CLOSE_TIMEOUT = 2.0  # seconds
Attributes = Mapping[str, str | int | float]


class SpanRole(StrEnum):
    """Which side of a call a span describes; INTERNAL is not a call."""

    INTERNAL = "internal"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """A span to export. `start` and `end` are wall times in seconds; `error` is empty if there was none."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    start: float
    end: float
    role: SpanRole = SpanRole.INTERNAL
    attributes: Attributes = field(default_factory=dict)
    error: str = ""


class SpanWriter:
    """Sends spans in batches from a separate thread, as configured by OpenTelemetry's own variables.

    If the collector cannot be reached, spans are lost and `say` gets one message; work is never affected.
    """

    def __init__(self, service: str, instance: str, say: Callable[[str], None]) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._resource = Resource.create({"service.name": service, "service.instance.id": instance})
        self._exporter = _ReportingExporter(OTLPSpanExporter(), say)
        self._processor = BatchSpanProcessor(self._exporter, schedule_delay_millis=EXPORT_INTERVAL * 1000)

    def write(self, span: FinishedSpan) -> None:
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(span.context),
                parent=_context(span.parent) if span.parent else None,
                resource=self._resource,
                attributes=dict(span.attributes),
                kind=OtelKind[span.role.name],
                status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
                start_time=int(span.start * 1e9),
                end_time=int(max(span.start, span.end) * 1e9),
            )
        )

    def close(self) -> None:
        self._processor.force_flush(int(CLOSE_TIMEOUT * 1000))
        self._exporter.shutdown()


class _ReportingExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter, say: Callable[[str], None]) -> None:
        self._exporter = exporter
        self._say = say
        self._has_failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS and not self._has_failed:
            self._has_failed = True
            self._say(
                "The traces cannot be exported: check OTEL_EXPORTER_OTLP_ENDPOINT and that its collector runs. Continuing without them."
            )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _context(context: SpanContext) -> OtelContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return OtelContext(int(context.trace, 16), int(context.span, 16), is_remote=False, trace_flags=flags)
