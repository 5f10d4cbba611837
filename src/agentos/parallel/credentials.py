"""A pool of keys that threads of one program share."""

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
from agentos.storage.credentials.reader import PROVIDERS, CredentialSource

SIMULATED_BACKOFF = 60.0
LONGEST_WAIT = 0.25
# A reservation lasts as long as its holder likes: what is sent in it is not the pool's to pace.
UNPACED = ((Dimension.REQUESTS, Rate(1e12, 0.001)),)


class CredentialPoolExhaustedException(Exception):
    """No credential came free in the time that was given."""


class ReservedCredential(str):
    """A key, usable as its string; `lease_id` tells this reservation from every other of the same key."""

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
    """Each key is counted once; also readable as `stats["available"]`."""

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
    """Hands out keys, each to one holder at a time; may be used from any thread."""

    def __init__(self, credentials: Sequence[str | Credential]) -> None:
        found = _credentials(credentials)
        if not found:
            raise ValueError("no credentials: expected at least one key")
        self._pool = Pool(found)
        self._by_secret = {one.secret.reveal(): one for one in found}
        self._numbers = itertools.count(1)
        self._refuse_after = calls_before_429(environment(), default=0)
        self._granted: dict[str, Lease] = {}
        # Protects the pool and the fields above from the threads that reserve and release.
        self._change = threading.Condition()

    def __repr__(self) -> str:
        return f"<CredentialCoordinator {self._pool!r}>"

    # What holders do.

    def reserve(
        self, requester_id: str | None = None, timeout: float | None = None
    ) -> ReservedCredential | None:
        """A key for the caller alone. None waits for ever, 0 never waits; None is given when none came in time."""
        return self.reserve_unless(threading.Event(), requester_id, timeout)

    def reserve_unless(
        self, given_up: threading.Event, requester_id: str | None = None, timeout: float | None = None
    ) -> ReservedCredential | None:
        """The same; also None, soon, once the caller has given up."""
        deadline = math.inf if timeout is None else time.monotonic() + max(0.0, timeout)
        with self._change:
            holder = f"{requester_id or threading.get_ident()} #{next(self._numbers)}"
            self._pool.request(LeaseRequest(holder, "", ("any",), time.monotonic()))
            try:
                lease = self._wait(holder, deadline, given_up)
            except BaseException:
                self._give_up(holder)
                raise
            if lease is None:
                self._give_up(holder)
            return ReservedCredential.of(lease) if lease else None

    def release(self, credential: str) -> None:
        """Gives a key back. One that was given back before, or is not of this pool, is ignored.

        A reservation frees itself alone, however late; a plain string frees whoever has the key.
        """
        with self._change:
            self._free(credential)

    def mark_rate_limited(self, credential: str, backoff_seconds: float = 60) -> None:
        """Gives a key back, and lets nobody have it for so long; the longer of two backoffs counts."""
        if not math.isfinite(backoff_seconds) or backoff_seconds < 0:
            raise ValueError(f"backoff_seconds = {backoff_seconds}: expected a number of seconds from 0 on")
        with self._change:
            if known := self._by_secret.get(str(credential)):
                self._rest(known, backoff_seconds)
            self._free(credential)

    @contextlib.contextmanager
    def lease(
        self, requester_id: str | None = None, timeout: float | None = None
    ) -> Iterator[ReservedCredential]:
        """A key for the length of a block; raises CredentialPoolExhaustedException when none comes in time."""
        credential = self.reserve(requester_id, timeout)
        if credential is None:
            stats = self.get_stats()
            raise CredentialPoolExhaustedException(
                f"no credential within {timeout} s: {stats.reserved} of {stats.total} reserved, "
                f"{stats.rate_limited} rate limited"
            )
        try:
            yield credential
        finally:
            self.release(credential)

    reserve_credential = reserve
    release_credential = release
    acquire_credential = lease

    # What can be seen.

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

    # The pool, with the lock held.

    def _wait(self, holder: str, deadline: float, given_up: threading.Event) -> Lease | None:
        while not given_up.is_set():
            now = time.monotonic()
            self._grant(now)
            if holder in self._granted:
                return self._granted.pop(holder)
            if now >= deadline:
                return None
            wakes = self._pool.wake_at(now)
            until = min(deadline, math.inf if wakes is None else max(wakes, now + 0.001))
            self._change.wait(min(until - now, LONGEST_WAIT))
        return None

    def _grant(self, now: float) -> None:
        for lease in self._pool.grant(now):
            if self._refuse_after == 0:
                self._refuse_after = None
                self._rest(lease.credential, SIMULATED_BACKOFF)
                self._pool.release(lease.id)
                self._pool.request(lease.request)
                return self._grant(now)
            if self._refuse_after is not None:
                self._refuse_after -= 1
            self._granted[lease.request.holder] = lease
            self._change.notify_all()

    def _give_up(self, holder: str) -> None:
        self._granted.pop(holder, None)
        self._pool.drop_holder(holder)
        self._change.notify_all()

    def _free(self, credential: str) -> None:
        lease_id = getattr(credential, "lease_id", None) or self._lease_of(str(credential))
        if lease_id and self._pool.release(lease_id):
            self._change.notify_all()

    def _lease_of(self, key: str) -> str | None:
        return next((one.id for one in self._pool.leases() if one.credential.secret.reveal() == key), None)

    def _rest(self, credential: Credential, seconds: float) -> None:
        now = time.monotonic()
        self._pool.bucket(credential.name, credential.model or "").cooldown.merge(
            now + seconds, 0.0, "rate limited", now
        )
        self._change.notify_all()


def credentials_from_environment(provider: str) -> list[Credential]:
    """The numbered variables of a provider, each with its base URL and model; else the plain one."""
    if provider not in PROVIDERS:
        raise ValueError(f"provider {provider!r} is unknown; known: {', '.join(PROVIDERS)}")
    found = CredentialSource(Path(), environment(), only_environment=True).read()
    return [credential for credential in found if credential.provider == provider]


def _credentials(credentials: Sequence[str | Credential]) -> list[Credential]:
    """Named key-1, key-2 ... in the order given; the same key twice is one."""
    plain = [
        one if isinstance(one, Credential) else Credential("", "any", Secret(one)) for one in credentials
    ]
    if any(not one.secret.reveal() for one in plain):
        raise ValueError("a credential is empty: expected keys")
    unique = list({one.secret: one for one in reversed(plain)}.values())[::-1]
    return [replace(one, name=f"key-{n}", provider="any", rates=UNPACED) for n, one in enumerate(unique, 1)]
