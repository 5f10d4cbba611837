"""Many clients at once, slow and reconnecting ones among them: every one gets every event."""

import argparse
import contextlib
import socket
from collections import Counter

import pytest
from bench.page.__main__ import measure
from bench.project import bench_project

from agentos.page.event_stream import MAX_STREAMS
from tests.scenarios.harness import RunHarness, wait_until

from .served import serve


@pytest.mark.slow
def test_slow_and_reconnecting_clients_lose_no_event() -> None:
    options = argparse.Namespace()
    with bench_project(8, ["--latency", "0.2,0.4", "--keys", "8"]) as bench:
        assert measure(bench, options, 60) > 0


@pytest.mark.slow
def test_more_streams_than_the_limit_are_refused_and_the_run_goes_on(harness: RunHarness) -> None:
    harness.issue(1)
    server = harness.server()
    page = serve(harness)
    host, port = page.url.removeprefix("http://").split(":")
    with server.frozen(), contextlib.ExitStack() as stack:
        run = harness.start("--all")
        wait_until(lambda: harness.runs() and harness.events("item_started"))
        path = f"/api/runs/{harness.runs()[-1].name}/events"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {page.token}\r\n\r\n"
        answers: Counter[bytes] = Counter()
        for _ in range(MAX_STREAMS + 20):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 20))
            connection.sendall(head.encode())
            answers[connection.recv(12)] += 1
        assert answers == {b"HTTP/1.1 200": MAX_STREAMS, b"HTTP/1.1 503": 20}
        assert page.get("/api/runs").status == 200
    assert run.wait().code == 0
