"""Counters and gauges in Prometheus's text format, and the HTTP server that serves them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from agentos.core.errors import PreflightError
from agentos.http.connection import Connection, HttpRequest
from agentos.http.server import Endpoint, listening

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEALTH_PATHS = ("/healthz", "/readyz")
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Metrics:
    """Named counters with labels, and gauges that are read on request.

    metrics.add("agentos_gateway_calls_total", (("provider", "gemini"),))
    """

    _help: dict[str, str] = field(default_factory=dict)
    _counters: dict[str, dict[Labels, float]] = field(default_factory=dict)
    _gauges: dict[str, Callable[[], float]] = field(default_factory=dict)

    def counter(self, name: str, text: str) -> None:
        self._help[name] = text
        self._counters[name] = {}

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._help[name] = text
        self._gauges[name] = read

    def add(self, name: str, labels: Labels = (), amount: float = 1.0) -> None:
        counter = self._counters[name]
        counter[labels] = counter.get(labels, 0.0) + amount

    def text(self) -> str:
        lines: list[str] = []
        for name, values in self._counters.items():
            lines += [f"# HELP {name} {self._help[name]}", f"# TYPE {name} counter"]
            # A copy: another thread may be counting.
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in list(values.items())]
        for name, read in self._gauges.items():
            lines += [f"# HELP {name} {self._help[name]}", f"# TYPE {name} gauge", f"{name} {read():g}"]
        return "\n".join(lines) + "\n"


@asynccontextmanager
async def serving_metrics(
    metrics: Metrics, host: str, port: int, is_ready: Callable[[], bool]
) -> AsyncIterator[str]:
    """Serve /metrics, /healthz and /readyz while the context is open. They contain only numbers, never keys or texts."""

    async def handle(request: HttpRequest, connection: Connection) -> None:
        if request.target == "/metrics":
            respond(connection, 200, metrics.text(), CONTENT_TYPE)
        elif request.target in HEALTH_PATHS:
            respond_health(connection, request.target, is_ready)
        else:
            respond(connection, 404, "expected /metrics, /healthz or /readyz\n")

    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(listening(handle, Endpoint(host, port, in_clear=True)))
        except OSError as error:
            raise PreflightError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}; each process needs an address of "
                "its own: choose another with --metrics"
            ) from error
        yield url


def respond_health(connection: Connection, path: str, is_ready: Callable[[], bool]) -> None:
    """Answer /healthz (the process responds) or /readyz (it can also do its work)."""
    if path == "/readyz" and not is_ready():
        respond(connection, 503, "not ready\n")
    else:
        respond(connection, 200, "ok\n")


def respond(connection: Connection, status: int, text: str, content_type: str = "text/plain") -> None:
    body = text.encode()
    connection.begin(status, [("content-type", content_type), ("content-length", str(len(body)))])
    connection.put(body)
    connection.finish()


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
