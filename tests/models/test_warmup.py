"""A call before the first one, with the SDKs as they are installed."""

import subprocess
import sys

import pytest

from agentos.models.registry import PROVIDERS
from agentos.models.warmup import ANSWERS, warm_up

# Whatever looks for an address or connects is told to the hook; a loop's own pair of sockets does neither.
PROBE = """
import sys, threading
asked = []
sys.addaudithook(lambda name, _: asked.append(name) if name in ("socket.connect", "socket.getaddrinfo") else None)
import agentos.models.gemini
import agentos.models.warmup
assert agentos.models.warmup.warm_up("gemini")
print(asked, threading.active_count())
"""


def test_every_vendor_can_be_rehearsed() -> None:
    assert set(ANSWERS) == set(PROVIDERS)


@pytest.mark.parametrize("vendor", ANSWERS)
def test_the_sdk_takes_the_prepared_answer(vendor: str) -> None:
    assert warm_up(vendor)


def test_nobody_is_asked_and_no_thread_is_left_so_that_forking_is_safe() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[] 1\n"
