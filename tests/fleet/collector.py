"""A stand-in for an OpenTelemetry collector: receives OTLP over HTTP, as the protocol defines it, and keeps the spans."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    service: str
    name: str
    trace: str
    span: str
    parent: str
    start: int  # nanoseconds
    end: int  # nanoseconds
    error: str
    attributes: dict[str, str | int | float]


@dataclass
class TraceCollector:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, start: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name.startswith(start)]


@contextlib.contextmanager
def running_collector() -> Iterator[TraceCollector]:
    found = TraceCollector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            found.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.message,
                    {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes},
                )
