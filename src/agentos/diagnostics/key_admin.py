"""The keys as they stand on this host, for `agentos keys`."""

import asyncio
import contextlib
import time
from dataclasses import dataclass

from agentos.config.settings import environment, usable_home
from agentos.core.errors import ModelError, NothingMatches, PreflightError, UsageError
from agentos.core.protocol.peer_notes import CooldownStarted, KeyRejected, Note, QuarantineLifted
from agentos.core.protocol.ports import LeasedKey, ModelRequest
from agentos.core.quota.buckets import Bucket
from agentos.core.quota.credentials import Credential
from agentos.core.quota.key_status import KeyStatus, key_statuses
from agentos.core.quota.pool import Pool
from agentos.models.registry import PROVIDERS
from agentos.run.model_selection import DEFAULT_MODELS
from agentos.storage.clock import host_clock
from agentos.storage.credentials.editor import set_enabled
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog, read_notes
from agentos.storage.peer_log_views import pool_from_notes

CHECK_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key: how it stands, what was used of which limit."""

    credential: Credential
    statuses: tuple[KeyStatus, ...]
    used: tuple[tuple[str, float, float], ...]
    reason: str


def view_keys() -> list[KeyRow]:
    home = Home(usable_home())
    found = _source(home).read()
    pool = pool_from_notes(home.quota, found)
    return [_row(pool, credential, host_clock()) for credential in found]


def check_keys(names: tuple[str, ...]) -> dict[str, str]:
    """Name -> what is wrong with it, empty if it answers; one that does is in no quarantine any more."""
    home = Home(usable_home())
    found = {credential.name: credential for credential in _source(home).read()}
    chosen = [_named(found, name) for name in names] or list(found.values())
    if not chosen:
        raise NothingMatches("there is no key to check; add one with: agentos keys add")
    findings = asyncio.run(_ask_all(chosen))
    _lift_quarantine(home, [found[name] for name, trouble in findings.items() if not trouble])
    return findings


def cool_down_key(name: str, seconds: float) -> None:
    home = Home(usable_home())
    found = {credential.name: credential for credential in _source(home).read()}
    quota, now = _named(found, name).quota, host_clock()
    _tell(home, [CooldownStarted("", quota, "*", now + seconds, 0.0, "put to rest by hand", now)])


def set_key_enabled(name: str, enabled: str) -> None:
    home = Home(usable_home())
    wanted = _named({credential.name: credential for credential in _source(home).read()}, name)
    in_file = CredentialSource(home.credentials, environment(), only_file=True).read()
    places = [place for place, credential in enumerate(in_file, 1) if credential.secret == wanted.secret]
    lifted = enabled == "true" and _lift_quarantine(home, [wanted])
    if places:
        set_enabled(home.credentials, places[0], enabled)
    elif not lifted:
        raise UsageError(
            f"{name} comes from the environment, not from {home.credentials}: unset its variable"
        )


def _lift_quarantine(home: Home, credentials: list[Credential]) -> bool:
    """Lifts the quarantine of these keys in every run; false if there was none."""
    rejected = {note.key for note in read_notes(home.quota) if isinstance(note, KeyRejected)}
    keys = [one.fingerprint for one in credentials if one.fingerprint in rejected]
    if keys:
        _tell(home, [QuarantineLifted("", key) for key in keys])
    return bool(keys)


def _tell(home: Home, notes: list[Note]) -> None:
    """To every run under way, and to the next one."""
    patient_until = host_clock() + CHECK_TIMEOUT
    with contextlib.closing(FilePeerLog(home.open().quota, f"keys-{time.time_ns()}")) as log:
        while not _told(log, notes):
            if host_clock() > patient_until:
                raise PreflightError(
                    "the runs under way could not be told: one that has been stopped, or a full disk, keeps"
                    f" {home.quota} from being written; try again"
                )
            notes = []
            time.sleep(0.05)


def _told(log: FilePeerLog, notes: list[Note]) -> bool:
    with log.lock_and_read():
        return log.append(notes)


async def _ask_all(credentials: list[Credential]) -> dict[str, str]:
    answers = await asyncio.gather(*(_ask(credential) for credential in credentials))
    return {credential.name: answer for credential, answer in zip(credentials, answers, strict=True)}


async def _ask(credential: Credential) -> str:
    model = credential.model or DEFAULT_MODELS[credential.provider]
    access = LeasedKey(credential.name, credential.secret.reveal(), credential.base_url, model)
    try:
        await PROVIDERS[credential.provider]().complete(
            ModelRequest("check", "Answer with the word ok."), access
        )
    except ModelError as error:
        return str(error)
    except ImportError:
        return f"its SDK is missing: type pip install 'agentos-runner[{credential.provider}]'"
    return ""


def _source(home: Home) -> CredentialSource:
    return CredentialSource(home.credentials, environment())


def _named(found: dict[str, Credential], name: str) -> Credential:
    if name not in found:
        raise NothingMatches(f"no key is called {name!r}; there are: {', '.join(found) or 'none'}")
    return found[name]


def _row(pool: Pool, credential: Credential, now: float) -> KeyRow:
    found = {model: one for (quota, model), one in pool.buckets().items() if quota == credential.quota}
    limited = {model: bucket for model, bucket in found.items() if bucket.limiter.rates}
    used = tuple(
        entry
        for model, bucket in limited.items()
        for entry in _used(bucket, f" for {model}" if len(limited) > 1 else "", now)
    )
    reasons = [bucket.cooldown.reason for bucket in found.values() if bucket.cooldown.reason]
    reasons += [reason for name, reason in pool.keys.quarantined().items() if name == credential.name]
    standing = tuple(key_statuses(pool, credential.name, now))
    return KeyRow(credential, standing, used, reasons[-1] if reasons else "")


def _used(bucket: Bucket, model: str, now: float) -> list[tuple[str, float, float]]:
    return [
        (f"{dimension.value}/{rate.seconds:g}s{model}", bucket.limiter.used(dimension, now), rate.amount)
        for dimension, rate in bucket.limiter.rates.items()
    ]
