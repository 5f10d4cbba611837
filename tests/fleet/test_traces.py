"""OpenTelemetry traces of a fleet, received by a stand-in for a collector."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from agentos.core.protocol.trace_context import call_span, item_trace, read_traceparent
from agentos.offline.child import start_offline_server
from tests.fleet.collector import ReceivedSpan, running_collector
from tests.fleet.harness import Fleet
from tests.fleet.servers import free_port

SLACK = 50_000_000  # nanoseconds; Postgres's clock and ours are read at different moments


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_item_is_one_trace_over_two_workers_and_the_gateway(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    began = time.time_ns()
    slow = ("--latency", "1,1")
    with (
        running_collector() as collector,
        contextlib.closing(start_offline_server(fleet.environment("models"), slow)) as models,
    ):
        fleet.variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        fleet.gateway.arguments = ("--traces",)
        fleet.serve_models(models)
        first = fleet.worker(2, "--traces")
        follower = fleet.start("lld-workflow", "--all", "--fleet")
        fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
        first.send_signal(signal.SIGTERM)
        assert first.wait(15) == 143
        second = fleet.worker(2, "--traces")
        output, _ = follower.communicate(timeout=90)
        assert follower.returncode == 0, output
        second.send_signal(signal.SIGTERM)
        assert second.wait(15) == 143
        fleet.gateway.stop()
        spans = collector.spans
    by_span = {span.span: span for span in spans}
    assert len(by_span) == len(spans)  # none is sent twice
    roots = collector.named("item ")
    assert sorted(root.name for root in roots) == ["item LLD-1", "item LLD-2"]
    for root in roots:
        own = [span for span in spans if span.trace == root.trace]
        assert root.parent == "" and root.attributes["agentos.ending"] == "finished"
        calls = [span for span in own if span.name.startswith("call ") and not span.error]
        served = [span for span in own if span.service == "agentos-gateway"]
        assert len(calls) == 6 and len(served) >= 6
        assert {span.parent for span in served} >= {call.span for call in calls}
        assert all(by_span[call.parent].name.startswith("node N") for call in calls)
        assert all(by_span[node.parent].name.startswith("turn ") for node in own if node.name[:4] == "node")
        assert all(by_span[turn.parent] is root for turn in own if turn.name.startswith("turn "))
        assert all(_is_within(span, root) for span in own)
        assert began <= root.start + SLACK
        assert sum(int(call.attributes["gen_ai.usage.output_tokens"]) for call in calls) > 0
    machines = {span.attributes["agentos.machine"] for span in collector.named("turn ")}
    assert len(machines) == 2


def _is_within(span: ReceivedSpan, root: ReceivedSpan) -> bool:
    return root.start - SLACK <= span.start <= span.end <= root.end + SLACK


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_without_a_collector_the_work_goes_on_and_one_line_says_so(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    fleet.variables["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"
    worker = fleet.worker(1, "--traces")
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    fleet.wait_until(lambda: "cannot be exported" in fleet.log(1).read_text(), "the warning")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 143
    log = fleet.log(1).read_text()
    assert log.count("cannot be exported") == 1 and "Traceback" not in log


def test_nothing_of_opentelemetry_is_loaded_without_the_flag() -> None:
    loaded = (
        "import sys, agentos.fleet.machine, agentos.gateway.server, agentos.cli.worker;"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk') or 'otlp' in name])"
    )
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_processes_that_share_nothing_give_a_call_the_same_span() -> None:
    item = item_trace("shop-1", 3, "shop/LLD-1")
    span = call_span(item, (3, 1, 2), "7")
    assert read_traceparent(span.header) == span
    assert (
        span
        != call_span(item, (3, 1, 3), "7")
        != call_span(item_trace("shop-1", 4, "shop/LLD-1"), (3, 1, 3), "7")
    )


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        f"00-{'1' * 32}-{'2' * 16}-00",
    ],
)
def test_a_header_without_a_recorded_span_begins_a_trace(header: str) -> None:
    assert read_traceparent(header) is None
