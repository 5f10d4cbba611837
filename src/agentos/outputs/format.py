"""Formats durations, times, costs and events as text for people."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from agentos.core.constants import MAX_PARALLEL
from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.text.line_assembler import one_line

_BACKLOG_PATH = re.compile(r"(?<![\w./-])(?:issues|ideas)/")


def seen_from(path: str, text: str) -> str:
    """The text with the files of the backlog as seen from a folder from which `path` leads to the project."""
    return _BACKLOG_PATH.sub(lambda found: path + found[0], text) if path else text


def prefixed(prefix: str, text: str) -> str:
    """One line with a prefix such as `[LLD-42]`."""
    return f"{prefix} {one_line(text)}".rstrip()


def over_maximum(workers: int, maximum: int = MAX_PARALLEL) -> str:
    return f"Requested parallelism {workers} exceeds maximum {maximum}. Capping to {maximum}."


def duration(seconds: float) -> str:
    """3.4s, 42s, 2m 05s, 1h 12m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    return f"{minutes // 60}h {minutes % 60:02}m"


def clock(wall: float, now: float | None = None) -> str:
    """The time of day, with the date if it is not that of `now`."""
    moment = datetime.fromtimestamp(wall)
    same = now is None or moment.date() == datetime.fromtimestamp(now).date()
    return moment.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")


def count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def name_list(names: Sequence[str]) -> str:
    """All names; of more than twelve, the first five and the last."""
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:5])} ... {names[-1]}"


def number_ranges(numbers: Iterable[str]) -> str:
    """`3 7-12`, as a command selects items: three or more consecutive numbers become a range."""
    found: list[list[str]] = []
    for number in numbers:
        follows = found and number.isdecimal() and found[-1][-1].isdecimal()
        if follows and int(number) == int(found[-1][-1]) + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(run) for run in found)


def dollars(cost: float | None) -> str:
    """`?` if the cost is unknown."""
    if cost is None:
        return "?"
    return f"${cost:.2f}" if cost >= 0.1 or not cost else f"${cost:.4f}"


def tokens(number: int) -> str:
    return f"{number}" if number < 10_000 else f"{number / 1000:.0f}k"


def tokens_in_and_out(usage: Usage) -> str:
    """`12,000 in (9,000 read from the cache, 2,000 written to it), 300 out`."""
    cache = []
    if usage.cache_read_tokens:
        cache.append(f"{usage.cache_read_tokens:,} read from the cache")
    if usage.cache_write_tokens:
        cache.append(f"{usage.cache_write_tokens:,} written to {'it' if cache else 'the cache'}")
    note = f" ({', '.join(cache)})" if cache else ""
    return f"{usage.input_tokens:,} in{note}, {usage.output_tokens:,} out"


DATABASE = "Postgres "
"""How the `path` of a disk event begins if items wait for a database instead of a disk."""
AnnouncedEvent = (
    events.SchedulerEvent
    | events.CredentialsRejected
    | events.ItemDecided
    | events.RunSuspended
    | events.RunContinued
)


def event_text(event: AnnouncedEvent, at: float, *, paused: bool = False) -> str | None:  # noqa: C901 - one case an event
    """The coordinator's line for an event; None if it has none. `paused`: a user has paused the run."""
    resuming = "Still paused. Resume with: agentos resume" if paused else "Resuming workflows..."
    match event:
        case events.RunStarted():
            return _started(event)
        case events.KeysFewerThanWorkers():
            return _too_few_keys(event)
        case events.ItemRetried():
            return (
                f"{event.item}: {event.reason}. Retrying in {duration(event.seconds)} "
                f"(attempt {event.attempt} of {event.max_attempts})"
            )
        case events.ItemQuiet():
            where = f" in {event.node}" if event.node else ""
            return f"{event.item} is {event.level}: no activity for {duration(event.seconds)}{where}"
        case events.CallCut():
            following = " Asking once more." if event.count == 1 else ""
            return f"{event.item}: the answer on {event.key} was cut off ({event.reason}).{following}"
        case events.KeyLimited():
            following = _following(event.is_only_key)
            return f"Rate limit hit on {event.key}. Backing off for {_seconds(event.seconds)}. {following}"
        case events.KeyExhausted():
            until = clock(at + event.seconds, at)
            following = _following(event.is_only_key)
            return f"Daily quota of {event.key} exhausted until {until} ({event.reason}). {following}"
        case events.KeyQuarantined():
            return f"{event.key} was rejected ({event.reason}). It is not used again until its credential changes."
        case events.ModelForbidden():
            model = event.model or "the model"
            return f"{event.key} may not use {model} ({event.reason}). Not using it for this model for now."
        case events.KeyRecovered():
            return f"{event.key} recovered early, back in use"
        case events.QuotaShared():
            return (
                f"{event.key} and {event.other} seem to share one quota. "
                "Set the same bucket for both in credentials.toml to avoid refusals."
            )
        case events.LimitLearned():
            return f"{event.key} ({event.model}): the provider allows {event.amount:,.0f} {event.dimension} per {duration(event.seconds)}. Pacing calls."
        case events.KeysChanged():
            return _credentials_changed(event)
        case events.CredentialsRejected():
            return f"The changed credentials cannot be used: {event.reason}. Keeping the previous ones."
        case events.ItemDecided():
            return f"{event.item} was reviewed by a person ({event.action}). Resuming it."
        case events.PoolLow():
            return f"Only {count(event.slots, 'usable key slot')} left. Starting no new items while one is running..."
        case events.PoolExhausted():
            return (
                f"Credential pool exhausted. Pausing all workflows... ({count(event.waiting, 'call')} waiting for "
                f"{'the one slot' if event.slots == 1 else f'one of {event.slots} slots'} to be released)"
            )
        case events.PoolRestored():
            return f"Credentials available again after {duration(event.seconds)}. {resuming}"
        case events.AllKeysLimited():
            until = clock(at + event.seconds, at)
            return f"All keys rate limited. Pausing all workflows until {until} ({event.key})..."
        case events.KeysAvailable():
            return f"Keys are available again after {duration(event.seconds)}. {resuming}"
        case events.CallsThrottled():
            return (
                f"All keys are at their limits. Next call at {clock(at + event.seconds, at)} ({event.key})..."
            )
        case events.BreakerOpened():
            return (
                f"{_model_name(event)} is failing for all calls ({event.reason}). Holding calls back; "
                f"next probe at {clock(at + event.seconds, at)}..."
            )
        case events.BreakerClosed():
            return f"{_model_name(event)} is back after {duration(event.seconds)}. {resuming}"
        case events.DiskWaitStarted() if event.path.startswith(DATABASE):
            return (
                f"{event.path} is unreachable. Items wait for it and keep the answers they have paid for..."
            )
        case events.DiskWaitStarted():
            return (
                f"No space left on the disk of {event.path}. Pausing all workflows; they resume when "
                "you free some space..."
            )
        case events.DiskWaitEnded() if event.path.startswith(DATABASE):
            return f"{event.path} is back after {duration(event.seconds)}. {resuming}"
        case events.DiskWaitEnded():
            return f"Disk space is available again after {duration(event.seconds)}. {resuming}"
        case events.SlotCooldownStarted():
            return f"Worker slot {event.slot} failed 3 times in a row ({event.reason}). Restarting it in {duration(event.seconds)}"
        case events.SlotRetired():
            return f"Worker slot {event.slot} keeps failing. Continuing with {count(event.slots_left, 'worker')}."
        case events.ShutdownStarted():
            return _stopping(event, at)
        case events.RunPaused():
            return _paused(event)
        case events.RunResumed():
            return f"Resumed after {duration(event.seconds)}."
        case events.ItemSuspended():
            return f"{event.item} is checkpointed{f' at {event.node}' if event.node else ''} and waits until the run is resumed."
        case events.ItemRequeued():
            return f"{event.item} is being retried from its checkpoint."
        case events.WorkerCountChanged():
            return _workers(event)
        case events.RunSuspended():
            return "Suspended (workers too). Resume with: fg"
        case events.RunContinued():
            return f"Continuing after {duration(event.seconds)}."
        case events.GatewayExited():
            following = "Restarting it..." if event.restarting else "Programs get no keys from now on."
            return f"The gateway process ended ({event.cause}). {following}"
        case events.BudgetReached():
            return None  # the shutdown that follows reports it
        case events.GatewayRestored():
            return "The gateway is back. Items that failed in the meantime are retried."
        case events.GatewayWarned():
            return f"Gateway: {event.text}"
        case events.WorkersKilled():
            return f"Killing {', '.join(event.items)}. Their checkpoints are kept."
        case (
            events.ItemStarted()
            | events.ItemEnded()
            | events.LeaseGranted()
            | events.CallCompleted()
            | events.Heartbeat()
            | events.RequestDeclined()
            | events.RunEnded()
        ):
            return None
        case _:
            assert_never(event)


def _started(event: events.RunStarted) -> str:
    items, workers = count(len(event.items), "item"), count(event.workers, "worker")
    if event.auto_workers:
        return f"Starting parallel execution of {items} with {workers} (auto: follows keys and machine)"
    if event.machines == 0:
        return f"Starting execution of {items} once a worker connects to the fleet"
    if event.machines:
        workers = f"{workers} on {count(event.machines, 'machine')}"
    kind = "execution" if event.workers == 1 else "parallel execution"
    return f"Starting {kind} of {items} with {workers}"


def _too_few_keys(event: events.KeysFewerThanWorkers) -> str:
    whose = f" for the {event.role} ({', '.join(event.providers)})" if event.role else ""
    and_workers = "and" if event.role else "for"
    added = f"{event.providers[0]} keys" if len(event.providers) == 1 else "keys"
    return (
        f"{count(event.slots, 'key slot')}{whose} {and_workers} {event.workers} workers: each key serves one call "
        f"at a time, so workers will wait for each other. Add {added}, or set AGENTOS_KEY_CONCURRENCY=2 "
        "(or concurrency = 2 in credentials.toml) if your quota allows concurrent calls."
    )


def _paused(event: events.RunPaused) -> str:
    if event.now:
        return "Paused: workers checkpoint and exit, no new items start. Resume with: agentos resume"
    return (
        "Paused: no new items start, workers wait before their next model call. Resume with: agentos resume"
    )


def _workers(event: events.WorkerCountChanged) -> str:
    fewer = " Busy workers finish their items first." if event.workers < event.previous else ""
    workers = count(event.workers, "worker")
    if event.workers == event.previous:
        return (
            f"{workers} for now (auto: follows keys and machine)."
            if event.auto
            else f"{workers}, no longer auto."
        )
    reason = f": {event.reason}" if event.reason else ""
    return f"{workers} from now on (previously {event.previous}){reason}.{fewer}"


def _following(is_only_key: bool) -> str:
    return "It is the only key: calls wait for it." if is_only_key else "Redistributing work..."


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds >= 1 else f"{seconds:.1f}s"


def _credentials_changed(event: events.KeysChanged) -> str:
    parts = {
        "added": event.added,
        "removed": event.removed,
        "disabled": event.disabled,
        "enabled": event.enabled,
        "changed": event.changed,
    }
    changes = "; ".join(f"{change}: {', '.join(names)}" for change, names in parts.items() if names)
    return f"Credentials changed ({changes})."


def stop_reason(event: events.ShutdownStarted, at: float) -> str:
    """Why the run stops, with the time at which it could resume if known."""
    when = "" if event.seconds is None else f", at {clock(at + event.seconds, at)}"
    return f"{event.detail or event.reason}{when}"


def _stopping(event: events.ShutdownStarted, at: float) -> str:
    if event.reason.startswith("SIG"):
        return "Shutting down... waiting for workers to checkpoint"
    return f"Stopping ({event.reason}): {stop_reason(event, at)}. Waiting for workers to checkpoint"


def _model_name(event: events.BreakerOpened | events.BreakerClosed) -> str:
    return f"{event.provider} {event.model}".rstrip()
