"""Shares API keys between the threads of a program."""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.settings import calls_before_429, environment
from agentos.core.quota.credentials import Credential, KeyState
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import MASK, Secret
from agentos.storage.credentials.file_parser import PROVIDERS
from agentos.storage.credentials.reader import CredentialSource

SIMULATED_BACKOFF = 60.0  # seconds
POLL_INTERVAL = 0.25  # seconds between checks whether a waiting caller has given up
# A holder may send any number of requests during a reservation, so the pool does not rate-limit reservations.
UNLIMITED = ((Dimension.REQUESTS, Rate(1e12, 0.001)),)


class CredentialPoolExhaustedException(Exception):
    """No credential became available within the timeout."""


class ReservedCredential(str):
    """A reserved key. It is a string, so it can be passed to any client; `repr` hides the secret.

    - `lease_id`: identifies this reservation among all reservations of the same key.
    - `name`: the key's name, such as `key-1`. Safe to log.
    - `base_url`, `model`: from the credential, or None.
    """

    lease_id: str
    name: str
    base_url: str | None
    model: str | None

    @classmethod
    def of(cls, lease: Lease) -> "ReservedCredential":
        credential = lease.credential
        reserved = cls(credential.secret.reveal())
        reserved.lease_id, reserved.name = lease.id, credential.name
        reserved.base_url, reserved.model = credential.base_url, credential.model
        return reserved

    def __repr__(self) -> str:
        return f"<{self.name} {MASK} {self.lease_id}>"


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The number of keys by state, each counted once. Values can also be read as `stats["available"]`."""

    total: int
    available: int
    reserved: int
    rate_limited: int

    def __getitem__(self, name: str) -> int:
        if name not in self.keys():
            raise KeyError(name)
        return int(getattr(self, name))

    def keys(self) -> tuple[str, ...]:
        return ("total", "available", "reserved", "rate_limited")


class CredentialCoordinator:
    """A pool of API keys in which each key has at most one holder at a time.

        pool = CredentialCoordinator(["key one", "key two"])
        with pool.lease(timeout=30) as key:
            response = call_provider(key)

    Callers are served in the order in which they asked. A key that was marked as rate limited is not handed out until
    its backoff ends; waiting callers then wake up by themselves. A `Credential` whose concurrency is above 1 can have
    that many holders.

    Safe to use from any thread. Good at: sharing a few keys within one process. Bad at: sharing them between processes
    (the `agentos` commands do that), or limiting requests per minute during a long reservation.

    Setting AGENTOS_SIMULATE_429=true makes the first reservation fail over to another key, so that you can test that.
    """

    def __init__(self, credentials: Sequence[str | Credential]) -> None:
        found = _credentials(credentials)
        if not found:
            raise ValueError("no credentials: expected at least one key")
        self._pool = Pool(found)
        self._by_secret = {credential.secret.reveal(): credential for credential in found}
        self._numbers = itertools.count(1)
        self._refuse_after = calls_before_429(environment(), default=0)
        self._granted: dict[str, Lease] = {}
        # Protects the pool and the fields above from concurrent threads; notified whenever a key may have become free.
        self._change = threading.Condition()

    def __repr__(self) -> str:
        return f"<CredentialCoordinator {self._pool!r}>"

    def reserve(
        self, requester_id: str | None = None, timeout: float | None = None
    ) -> ReservedCredential | None:
        """Waits up to `timeout` seconds for a key; None waits forever, 0 does not wait.

        Returns None if no key became available in time. `requester_id` is only a label.
        """
        return self.reserve_unless(threading.Event(), requester_id, timeout)

    def reserve_unless(
        self, given_up: threading.Event, requester_id: str | None = None, timeout: float | None = None
    ) -> ReservedCredential | None:
        """Like `reserve`, but also returns None soon after `given_up` is set."""
        deadline = math.inf if timeout is None else time.monotonic() + max(0.0, timeout)
        with self._change:
            holder = f"{requester_id or threading.get_ident()} #{next(self._numbers)}"
            self._pool.request(LeaseRequest(holder, "", ("any",), time.monotonic()))
            try:
                lease = self._wait(holder, deadline, given_up)
            except BaseException:
                self._cancel(holder)
                raise
            if lease is None:
                self._cancel(holder)
            return ReservedCredential.of(lease) if lease else None

    def release(self, credential: str) -> None:
        """Returns a key to the pool. A key that was returned before, or is not in this pool, is ignored.

        A ReservedCredential ends only its own reservation, however late it is released. A plain string ends whichever
        reservation of that key is active.
        """
        with self._change:
            self._release(credential)

    def mark_rate_limited(self, credential: str, backoff_seconds: float = 60) -> None:
        """Returns a key to the pool and keeps it from being handed out for `backoff_seconds`.

        A second call can extend the backoff but not shorten it.
        """
        if not math.isfinite(backoff_seconds) or backoff_seconds < 0:
            raise ValueError(f"invalid backoff_seconds {backoff_seconds}: must be finite and not negative")
        with self._change:
            if known := self._by_secret.get(str(credential)):
                self._cool_down(known, backoff_seconds)
            self._release(credential)

    @contextlib.contextmanager
    def lease(
        self, requester_id: str | None = None, timeout: float | None = None
    ) -> Iterator[ReservedCredential]:
        """Holds a key for the block; raises CredentialPoolExhaustedException if none is available in time."""
        credential = self.reserve(requester_id, timeout)
        if credential is None:
            stats = self.get_stats()
            raise CredentialPoolExhaustedException(
                f"no credential available within {timeout} s: {stats.reserved} of {stats.total} reserved, "
                f"{stats.rate_limited} rate limited"
            )
        try:
            yield credential
        finally:
            self.release(credential)

    reserve_credential = reserve
    release_credential = release
    acquire_credential = lease

    def get_available_count(self) -> int:
        return self.get_stats().available

    def get_stats(self) -> PoolStats:
        with self._change:
            now = time.monotonic()
            states = [self._pool.keys.state(name, now) for name in self._pool.keys.names()]
        return PoolStats(
            total=len(states),
            available=states.count(KeyState.AVAILABLE),
            reserved=states.count(KeyState.RESERVED),
            rate_limited=states.count(KeyState.RATE_LIMITED),
        )

    # The methods below need the lock.

    def _wait(self, holder: str, deadline: float, given_up: threading.Event) -> Lease | None:
        while not given_up.is_set():
            now = time.monotonic()
            self._grant(now)
            if holder in self._granted:
                return self._granted.pop(holder)
            if now >= deadline:
                return None
            wake_at = self._pool.wake_at(now)
            until = min(deadline, math.inf if wake_at is None else max(wake_at, now + 0.001))
            self._change.wait(min(until - now, POLL_INTERVAL))
        return None

    def _grant(self, now: float) -> None:
        for lease in self._pool.grant(now):
            if self._refuse_after == 0:
                self._refuse_after = None
                self._cool_down(lease.credential, SIMULATED_BACKOFF)
                self._pool.release(lease.id)
                self._pool.request(lease.request)
                return self._grant(now)
            if self._refuse_after is not None:
                self._refuse_after -= 1
            self._granted[lease.request.holder] = lease
            self._change.notify_all()

    def _cancel(self, holder: str) -> None:
        self._granted.pop(holder, None)
        self._pool.drop_holder(holder)
        self._change.notify_all()

    def _release(self, credential: str) -> None:
        lease_id = getattr(credential, "lease_id", None) or self._lease_of(str(credential))
        if lease_id and self._pool.release(lease_id):
            self._change.notify_all()

    def _lease_of(self, key: str) -> str | None:
        leases = self._pool.leases()
        return next((lease.id for lease in leases if lease.credential.secret.reveal() == key), None)

    def _cool_down(self, credential: Credential, seconds: float) -> None:
        now = time.monotonic()
        self._pool.bucket(credential.name, credential.model or "").cooldown.merge(
            now + seconds, 0.0, "rate limited", now
        )
        self._change.notify_all()


def credentials_from_environment(provider: str) -> list[Credential]:
    """The credentials in the environment: GEMINI_API_KEY_1, _2, ... with their base URLs and models.

    Falls back to the plain variable, GEMINI_API_KEY. The same for `anthropic` and `openai`.
    """
    if provider not in PROVIDERS:
        raise ValueError(f"unknown provider {provider!r}: expected one of {', '.join(PROVIDERS)}")
    found = CredentialSource(Path(), environment(), only_environment=True).read()
    return [credential for credential in found if credential.provider == provider]


def _credentials(credentials: Sequence[str | Credential]) -> list[Credential]:
    """Without duplicates, named key-1, key-2, ... in the order given."""
    unique: dict[Secret, Credential] = {}
    for each in credentials:
        credential = each if isinstance(each, Credential) else Credential("", "any", Secret(each))
        if not credential.secret.reveal():
            raise ValueError("empty credential: expected API keys")
        unique.setdefault(credential.secret, credential)
    return [
        replace(credential, name=f"key-{number}", provider="any", rates=UNLIMITED)
        for number, credential in enumerate(unique.values(), 1)
    ]
