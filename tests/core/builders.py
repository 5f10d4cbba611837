"""Builders of credentials, pools and requests for tests of the core."""

from agentos.core.quota.credentials import Credential
from agentos.core.quota.key_index import INDEXED_KEYS
from agentos.core.quota.lease import LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Secret


def key(name: str, provider: str = "gemini", bucket: str = "", concurrency: int = 1) -> Credential:
    return Credential(name, provider, Secret(f"secret of {name}"), bucket=bucket, concurrency=concurrency)


def keys(count: int) -> list[Credential]:
    return [key(f"key-{number}") for number in range(1, count + 1)]


def proven_pool(credentials: list[Credential], indexed_keys: int = INDEXED_KEYS) -> Pool:
    """A pool whose keys have all been used before, so that no first call is sent alone."""
    pool = Pool(credentials, indexed_keys)
    for name in pool.keys.names():
        pool.mark_proven(name)
    return pool


def lease_request(
    holder: str, requested_at: float = 0.0, not_before: float = 0.0, models: tuple[str, ...] = ()
) -> LeaseRequest:
    return LeaseRequest(holder, "call-1", ("gemini",), requested_at, not_before, models)


def steady() -> float:
    """A jitter function that leaves every delay as it is."""
    return 0.5
