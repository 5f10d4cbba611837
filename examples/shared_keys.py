"""Share three rate-limited keys between ten threads: python examples/shared_keys.py"""

import random
import time
from concurrent.futures import ThreadPoolExecutor

from agentos.parallel import CredentialCoordinator, credentials_from_environment

pool = CredentialCoordinator(
    credentials_from_environment("gemini") or ["demo-key-1", "demo-key-2", "demo-key-3"]
)


def call(number: int) -> str:
    """One call to a provider that sometimes refuses it."""
    while True:
        key = pool.reserve(f"worker-{number}")
        assert key is not None
        time.sleep(0.01)  # the call itself
        if random.random() < 0.1:
            pool.mark_rate_limited(key, backoff_seconds=0.05)
            continue
        pool.release(key)
        return key.name


with ThreadPoolExecutor(10) as threads:
    served = list(threads.map(call, range(30)))
print("calls by key:", {name: served.count(name) for name in sorted(set(served))})
