"""The keys as they stand on this host, for `agentos keys`."""

import asyncio
import time
from dataclasses import dataclass

from agentos.core.buckets import Bucket
from agentos.core.credentials import Credential, KeyState
from agentos.core.errors import ModelError, NothingMatches, UsageError
from agentos.core.neighbours import BucketRefused
from agentos.core.pool import Pool
from agentos.core.ports import Access, Question
from agentos.core.roles import DEFAULTS
from agentos.models.vendors import PROVIDERS
from agentos.settings import environment, home_folder
from agentos.storage.credentials import CredentialSource
from agentos.storage.credentials_file import set_enabled
from agentos.storage.hostlog import HostLog, dead_runs, host_clock, read_notes
from agentos.storage.layout import Home


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key: its state, until when, what was used of which limit."""

    credential: Credential
    state: KeyState
    seconds: float
    until: float
    used: tuple[tuple[str, float, float], ...]
    reason: str


def view_keys() -> list[KeyRow]:
    home = Home(home_folder())
    found = _source(home).read()
    pool = Pool(found)
    for note in read_notes(home.quota):
        pool.hear(note)
    for gone in dead_runs(home.quota, pool.foreign_runs()):
        pool.hear(gone)
    return [_row(pool, credential, host_clock()) for credential in found]


def check_keys(names: tuple[str, ...]) -> dict[str, str]:
    """Name -> what is wrong with it, empty if it answers."""
    found = {credential.name: credential for credential in _source(Home(home_folder())).read()}
    chosen = [_named(found, name) for name in names] or list(found.values())
    if not chosen:
        raise NothingMatches("there is no key to check; add one with: agentos keys add")
    return asyncio.run(_ask_all(chosen))


def rest_key(name: str, seconds: float) -> None:
    home = Home(home_folder())
    found = {credential.name: credential for credential in _source(home).read()}
    quota = _named(found, name).quota
    log = HostLog(home.open().quota, f"keys-{time.time_ns()}")
    with log.turn():
        now = host_clock()
        log.leave([BucketRefused("", quota, "*", now + seconds, 0.0, "put to rest by hand", now)])
    log.close()


def switch_key(name: str, enabled: str) -> None:
    home = Home(home_folder())
    _named({credential.name: credential for credential in _source(home).read()}, name)
    in_file = CredentialSource(home.credentials, environment(), only_file=True).read()
    wanted = next(c for c in _source(home).read() if c.name == name).secret
    places = [place for place, credential in enumerate(in_file, 1) if credential.secret == wanted]
    if not places:
        raise UsageError(
            f"{name} comes from the environment, not from {home.credentials}: unset its variable"
        )
    set_enabled(home.credentials, places[0], enabled)


async def _ask_all(credentials: list[Credential]) -> dict[str, str]:
    answers = await asyncio.gather(*(_ask(credential) for credential in credentials))
    return {credential.name: answer for credential, answer in zip(credentials, answers, strict=True)}


async def _ask(credential: Credential) -> str:
    model = credential.model or DEFAULTS[credential.provider]
    access = Access(credential.name, credential.secret.reveal(), credential.base_url, model)
    try:
        await PROVIDERS[credential.provider]().ask(Question("check", "Answer with the word ok."), access)
    except ModelError as error:
        return str(error)
    except ImportError:
        return f"its SDK is missing: type pip install 'agentos[{credential.provider}]'"
    return ""


def _source(home: Home) -> CredentialSource:
    return CredentialSource(home.credentials, environment())


def _named(found: dict[str, Credential], name: str) -> Credential:
    if name not in found:
        raise NothingMatches(f"no key is called {name!r}; there are: {', '.join(found) or 'none'}")
    return found[name]


def _row(pool: Pool, credential: Credential, now: float) -> KeyRow:
    buckets = [bucket for (quota, _), bucket in pool.buckets().items() if quota == credential.quota]
    state = pool.state(credential.name, now)
    ends = [max(bucket.rest.until, bucket.rest.spent_until) for bucket in buckets]
    seconds = max(0.0, max(ends, default=0.0) - now)
    used = tuple(entry for bucket in buckets for entry in _used(bucket, now))
    reasons = [bucket.rest.reason for bucket in buckets if bucket.rest.reason]
    return KeyRow(credential, state, seconds, time.time() + seconds, used, reasons[-1] if reasons else "")


def _used(bucket: Bucket, now: float) -> list[tuple[str, float, float]]:
    return [
        (f"{dimension.value}/{rate.seconds:g}s", bucket.pace.used(dimension, now), rate.amount)
        for dimension, rate in bucket.pace.rates.items()
    ]
