"""Warm-up calls, with the SDKs as installed."""

import subprocess
import sys

import pytest

from agentos.models.registry import PROVIDERS
from agentos.models.warmup import STREAMS, warm_up_sdk

# The audit hook sees every connect and name lookup; an event loop's own socket pair needs neither.
PROBE = """
import sys, threading
calls = []
sys.addaudithook(lambda name, _: calls.append(name) if name in ("socket.connect", "socket.getaddrinfo") else None)
from agentos.models.warmup import warm_up_sdk
assert warm_up_sdk("gemini")
print(calls, threading.active_count())
"""


def test_every_provider_has_a_warm_up_response() -> None:
    assert set(STREAMS) == set(PROVIDERS)


@pytest.mark.parametrize("vendor", STREAMS)
def test_the_sdk_accepts_the_canned_stream(vendor: str) -> None:
    assert warm_up_sdk(vendor)


def test_warming_up_opens_no_connection_and_leaves_no_thread_so_that_forking_is_safe() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[] 1\n"
