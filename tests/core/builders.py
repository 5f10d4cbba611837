"""Small things that tests of the core are made of."""

from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Secret


def key(name: str, provider: str = "gemini", bucket: str = "", concurrency: int = 1) -> Credential:
    return Credential(name, provider, Secret(f"secret of {name}"), bucket=bucket, concurrency=concurrency)


def keys(count: int) -> list[Credential]:
    return [key(f"key-{number}") for number in range(1, count + 1)]


def proven(credentials: list[Credential]) -> Pool:
    """A pool whose keys are known to be good: none of them is tried with one call first."""
    pool = Pool(credentials)
    for name in pool.keys.names():
        pool.mark_proven(name)
    return pool


def want(holder: str, asked_at: float = 0.0, not_before: float = 0.0) -> LeaseRequest:
    return LeaseRequest(holder, "call-1", ("gemini",), asked_at, not_before)


def steady() -> float:
    """The jitter that changes nothing."""
    return 0.5
