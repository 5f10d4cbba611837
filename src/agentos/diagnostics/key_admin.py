"""Backend of `agentos keys`: status of the keys on this host, checks, cooldowns, enabling and disabling."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

from agentos.config.settings import environment, home_folder, reach_loopback_directly, usable_home
from agentos.core.errors import (
    CallRefused,
    ModelError,
    NoCredentials,
    NothingMatches,
    PreflightError,
    UsageError,
)
from agentos.core.protocol.peer_notes import (
    BucketLimitsForgotten,
    CooldownStarted,
    KeyRejected,
    Note,
    QuarantineLifted,
)
from agentos.core.protocol.ports import LeasedKey, ModelRequest
from agentos.core.quota.credentials import Credential, provider_of
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.models import has_sdk
from agentos.models.registry import PROVIDERS
from agentos.outputs.key_rows import KeyRow, key_row
from agentos.platform_support import host_clock
from agentos.run.model_selection import DEFAULT_MODELS, install_sdk
from agentos.storage.credentials.editor import (
    NewCredential,
    append_credential,
    check_new,
    remove_credential,
    set_enabled,
)
from agentos.storage.credentials.file_parser import is_name
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog, read_notes
from agentos.storage.peer_log_views import pool_from_notes

NOTIFY_TIMEOUT = 5.0  # seconds
CHECK_TIMEOUT = 20.0  # seconds
KEY_AS_ARGUMENT = (
    "A key typed as an argument stays in the shell's history: delete it there, then type agentos keys add "
    "and paste the key at the prompt"
)


def view_keys() -> list[KeyRow]:
    home = Home(usable_home())
    credentials = CredentialSource(home.credentials, environment()).read()
    pool = pool_from_notes(home.quota, credentials)
    return [key_row(pool, credential, host_clock()) for credential in credentials]


def check_keys(names: tuple[str, ...]) -> dict[str, str]:
    """Make a call with each key: name -> problem, empty if it works. Lifts the quarantine of keys that work."""
    home = Home(usable_home())
    credentials = _read_credentials(home)
    chosen = [_find(credentials, name) for name in names] or list(credentials.values())
    if not chosen:
        raise NoCredentials("no key to check; add one with: agentos keys add")
    problems = asyncio.run(_check_all(chosen))
    _lift_quarantine(home, [credentials[name] for name, problem in problems.items() if not problem])
    return problems


def forget_key(name: str) -> bool:
    """Drop what was learned about the key's limits, in every run on this host; False if nothing was."""
    home = Home(usable_home())
    credentials = _read_credentials(home)
    wanted = _find(credentials, name)
    row = key_row(pool_from_notes(home.quota, list(credentials.values())), wanted, host_clock())
    is_known = bool(row.learned or row.used or row.shares)
    if is_known:
        _notify_runs(home, [BucketLimitsForgotten("", wanted.quota)])
    return is_known


def cool_down_key(name: str, seconds: float) -> None:
    """Put the key's whole bucket on cooldown, in every run on this host."""
    home = Home(usable_home())
    quota, now = _find(_read_credentials(home), name).quota, host_clock()
    _notify_runs(home, [CooldownStarted("", quota, "*", now + seconds, 0.0, "cooled down by hand", now)])


def set_key_enabled(name: str, *, enabled: bool) -> None:
    """Set `enabled` in the credentials file; enabling also lifts the key's quarantine."""
    home = Home(usable_home())
    wanted = _find(_read_credentials(home), name)
    positions = _positions(home, wanted)
    lifted = enabled and _lift_quarantine(home, [wanted])
    if positions:
        set_enabled(home.credentials, positions[0], enabled=enabled)
    elif not lifted:
        raise UsageError(
            f"{name} comes from the environment, not from {home.credentials}: unset its variable"
        )


@dataclass(frozen=True, slots=True)
class AddedKey:
    """A key as it was stored.

    unchecked: why it could not be checked; empty if it works or no check was requested.
    install: what to type before runs can use it; empty if nothing is missing.
    """

    credential: Credential
    unchecked: str = ""
    install: str = ""


def check_new_key(key: str, name: str | None, provider: str | None) -> None:
    """Raise UsageError for a key or a name that cannot be stored; a None `provider` stands for any."""
    check_new(_source(Home(home_folder()).open()), key, name, provider)


def add_key(new: NewCredential, check: bool) -> AddedKey:
    """Store a key, after a call with it unless `check` is off. A key that the provider rejects is not stored."""
    source = _source(Home(home_folder()).open())
    check_new(source, new.key, new.name, new.provider)
    install = "" if has_sdk(new.provider) else install_sdk(new.provider)
    unchecked = asyncio.run(_try_new_key(new)) if check and not install else ""
    # Stored with its name, which would otherwise change when keys are added or removed.
    append_credential(source, replace(new, name=new.name or source.default_name(new.provider, new.key)))
    (added,) = [
        credential
        for credential in source.read()
        if (credential.provider, credential.secret.reveal()) == (new.provider, new.key)
    ]
    return AddedKey(added, unchecked, install)


def remove_key(name: str) -> Credential | None:
    """Remove the key from the credentials file; return it if an environment variable still holds it."""
    home = Home(usable_home())
    wanted = _find(_read_credentials(home), name)
    positions = _positions(home, wanted)
    if not positions:
        raise UsageError(
            f"{name} comes from the environment, not from {home.credentials}: unset its variable"
        )
    for position in reversed(positions):
        remove_credential(home.credentials, position)
    left = _read_credentials(home).values()
    return next((credential for credential in left if credential.fingerprint == wanted.fingerprint), None)


async def _try_new_key(new: NewCredential) -> str:
    """Make one call; return why it was inconclusive, or an empty string if the key works."""
    reach_loopback_directly()
    model = new.model or DEFAULT_MODELS[new.provider]
    access = LeasedKey(new.name or "the new key", new.key, new.base_url, model)
    try:
        request = ModelRequest("check", "Answer with the word ok.")
        await asyncio.wait_for(PROVIDERS[new.provider]().complete(request, access), CHECK_TIMEOUT)
    except CallRefused as error:
        if error.refusal.kind is RefusalKind.KEY_REJECTED:
            raise NoCredentials(
                f"{new.provider} rejects this key: {error}; nothing was written. To store it anyway: --no-check"
            ) from error
        return str(error)
    except ModelError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT:.0f} s"
    return ""


def _positions(home: Home, wanted: Credential) -> list[int]:
    """The positions of the key's tables in the file, counted from 1."""
    tables = _source(home).tables()
    return [
        number for number, credential in enumerate(tables, 1) if credential.fingerprint == wanted.fingerprint
    ]


def _source(home: Home) -> CredentialSource:
    return CredentialSource(home.credentials, environment())


def _lift_quarantine(home: Home, credentials: list[Credential]) -> bool:
    """Lift the quarantine of these keys in every run on this host; False if none was quarantined."""
    rejected = {note.key for note in read_notes(home.quota) if isinstance(note, KeyRejected)}
    fingerprints = [key.fingerprint for key in credentials if key.fingerprint in rejected]
    if fingerprints:
        _notify_runs(home, [QuarantineLifted("", fingerprint) for fingerprint in fingerprints])
    return bool(fingerprints)


def _notify_runs(home: Home, notes: list[Note]) -> None:
    """Write notes for the active runs and for the next one; raises PreflightError if that takes too long."""
    deadline = host_clock() + NOTIFY_TIMEOUT
    with contextlib.closing(FilePeerLog(home.open().quota, f"keys-{time.time_ns()}")) as log:
        while True:
            with log.lock_and_read():
                if log.append(notes):
                    return
            if host_clock() > deadline:
                raise PreflightError(
                    f"could not notify the active runs: a suspended run or a full disk blocks {home.quota}; "
                    "try again"
                )
            notes = []  # the log keeps what could not be written yet
            time.sleep(0.05)


async def _check_all(credentials: list[Credential]) -> dict[str, str]:
    problems = await asyncio.gather(*(_check(credential) for credential in credentials))
    return {credential.name: problem for credential, problem in zip(credentials, problems, strict=True)}


async def _check(credential: Credential) -> str:
    """Make one short call; returns what is wrong, empty if nothing."""
    reach_loopback_directly()
    model = credential.model or DEFAULT_MODELS[credential.provider]
    access = LeasedKey(credential.name, credential.secret.reveal(), credential.base_url, model)
    try:
        await PROVIDERS[credential.provider]().complete(
            ModelRequest("check", "Answer with the word ok."), access
        )
    except ModelError as error:
        return str(error)
    except ImportError:
        return f"its SDK is not installed: type {install_sdk(credential.provider)}"
    return ""


def _read_credentials(home: Home) -> dict[str, Credential]:
    source = CredentialSource(home.credentials, environment())
    return {credential.name: credential for credential in source.read()}


def _find(credentials: dict[str, Credential], name: str) -> Credential:
    if name not in credentials:
        names = f"the keys are: {', '.join(credentials) or 'none'}"
        if provider_of(name) or not is_name(name):
            raise NothingMatches(
                f"expected the name of a key, not the key itself; {names}. {KEY_AS_ARGUMENT}"
            )
        raise NothingMatches(f"no key is named {name!r}; {names}")
    return credentials[name]
