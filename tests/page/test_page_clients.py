"""Many clients at once, slow and reconnecting ones among them: every one gets every event."""

import argparse

import pytest
from bench.page.__main__ import measure
from bench.project import bench_project


@pytest.mark.slow
def test_slow_and_reconnecting_clients_lose_no_event() -> None:
    options = argparse.Namespace()
    with bench_project(8, ["--latency", "0.2,0.4", "--keys", "8"]) as bench:
        assert measure(bench, options, 60) > 0
