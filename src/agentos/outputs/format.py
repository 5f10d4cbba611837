"""Times, numbers and events as people read them."""

from datetime import datetime
from typing import assert_never

from agentos.core.constants import MAX_PARALLEL
from agentos.core.protocol import events
from agentos.core.text.line_assembler import one_line


def prefixed(prefix: str, text: str) -> str:
    """One line that says who speaks."""
    return f"{prefix} {one_line(text)}".rstrip()


def over_maximum(workers: int) -> str:
    return f"Requested parallelism {workers} exceeds maximum {MAX_PARALLEL}. Capping to {MAX_PARALLEL}."


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
    """The time of day; with its date when that is another than that of `now`."""
    moment = datetime.fromtimestamp(wall)
    same = now is None or moment.date() == datetime.fromtimestamp(now).date()
    return moment.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")


def count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def dollars(cost: float | None) -> str:
    """`?` where nobody knows."""
    if cost is None:
        return "?"
    return f"${cost:.2f}" if cost >= 0.1 or not cost else f"${cost:.4f}"


def tokens(number: int) -> str:
    return f"{number}" if number < 10_000 else f"{number / 1000:.0f}k"


Told = (
    events.News | events.CredentialsRejected | events.ItemDecided | events.RunSuspended | events.RunContinued
)


def event_text(event: Told, at: float, *, paused: bool = False) -> str | None:  # noqa: C901 - one case an event
    """The coordinator's line for an event; None for what is told in other ways. `paused`: by a person."""
    resuming = "Still paused. Go on with: agentos resume" if paused else "Resuming workflows..."
    match event:
        case events.RunStarted():
            return _started(event)
        case events.KeysFewerThanWorkers():
            return (
                f"{count(event.slots, 'key slot')} for {event.workers} workers: each key carries one call at a "
                "time, so workers will wait for each other. Add keys, or set AGENTOS_KEY_CONCURRENCY=2 "
                "(or concurrency = 2 in credentials.toml) if your quota allows calls side by side."
            )
        case events.ItemRetried():
            return (
                f"{event.item}: {event.reason}. Trying again in {duration(event.seconds)} "
                f"(attempt {event.attempt} of {event.max_attempts})"
            )
        case events.ItemQuiet():
            where = f" in {event.node}" if event.node else ""
            return f"{event.item} is {event.level}: no sign of life for {duration(event.seconds)}{where}"
        case events.KeyLimited():
            return f"Rate limit hit on {event.key}. Backing off for {_seconds(event.seconds)}. Redistributing work..."
        case events.KeyExhausted():
            until = clock(at + event.seconds, at)
            return f"Daily quota of {event.key} is used up until {until} ({event.reason}). Redistributing work..."
        case events.KeyQuarantined():
            return f"{event.key} was rejected ({event.reason}). Not used again until its credential changes."
        case events.KeyRecovered():
            return f"{event.key} answers again before its time. Using it."
        case events.LimitLearned():
            return f"{event.key} ({event.model}): the provider allows {event.amount:,.0f} {event.dimension} in {duration(event.seconds)}. Pacing calls."
        case events.KeysChanged():
            return _changed(event)
        case events.CredentialsRejected():
            return f"The credentials were changed, but cannot be used: {event.reason}. Going on with those from before."
        case events.ItemDecided():
            return f"A person has decided on {event.item} ({event.action}). Going on with it."
        case events.PoolLow():
            return f"Only {count(event.slots, 'usable key slot')} left. Starting no further item while one is running..."
        case events.PoolExhausted():
            return (
                f"Credential pool exhausted. Pausing all workflows... ({count(event.waiting, 'call')} waiting for "
                f"{'the one slot' if event.slots == 1 else f'one of {event.slots} slots'} to be given back)"
            )
        case events.PoolRestored():
            return f"Credentials available again after {duration(event.seconds)}. {resuming}"
        case events.AllKeysLimited():
            until = clock(at + event.seconds, at)
            return f"All keys rate limited. Pausing all workflows until {until} ({event.key})..."
        case events.KeysAvailable():
            return f"Keys are back after {duration(event.seconds)}. {resuming}"
        case events.CallsThrottled():
            return f"Every key is at its limit. The next call goes at {clock(at + event.seconds, at)} ({event.key})..."
        case events.BreakerOpened():
            return (
                f"{event.provider} is failing for everybody ({event.reason}). Holding calls back, "
                f"trying one at {clock(at + event.seconds, at)}..."
            )
        case events.BreakerClosed():
            return f"{event.provider} answers again after {duration(event.seconds)}. {resuming}"
        case events.DiskWaitStarted():
            return (
                f"No space left on the disk of {event.path}. Pausing all workflows: free some, and they go on "
                "by themselves..."
            )
        case events.DiskWaitEnded():
            return f"There is space again after {duration(event.seconds)}. {resuming}"
        case events.SlotCooldownStarted():
            return f"Worker slot {event.slot} failed 3 times in a row ({event.reason}). Restarting it in {duration(event.seconds)}"
        case events.SlotRetired():
            return (
                f"Worker slot {event.slot} keeps failing. Going on with {count(event.slots_left, 'worker')}."
            )
        case events.ShutdownStarted():
            return _stopping(event, at)
        case events.RunPaused():
            return _paused(event)
        case events.RunResumed():
            return f"Resumed after {duration(event.seconds)}: items start and calls begin again."
        case events.ItemSuspended():
            return f"{event.item} is set aside{f' at {event.node}' if event.node else ''}: checkpointed, until the run is resumed."
        case events.ItemRequeued():
            return f"{event.item} is tried again, from its checkpoint."
        case events.WorkerCountChanged():
            return _workers(event)
        case events.RunSuspended():
            return "Standing still (Ctrl-Z), the workers too. Go on with: fg"
        case events.RunContinued():
            return f"Going on after {duration(event.seconds)}."
        case events.GatewayExited():
            following = "Starting it again..." if event.restarting else "Programs have no keys from now on."
            return f"The gateway has ended ({event.cause}). {following}"
        case events.GatewayRestored():
            return "The gateway is back. What has failed meanwhile is tried again."
        case events.WorkersKilled():
            return f"Killing {', '.join(event.items)}: their checkpoints stay."
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
    if event.workers == 1:
        return f"Starting execution of {items} with {workers}"
    return f"Starting parallel execution of {items} with {workers}"


def _paused(event: events.RunPaused) -> str:
    if event.now:
        return "Paused: workers checkpoint and end, no item starts. Go on with: agentos resume"
    return "Paused: no further item starts, workers wait at their next model call. Go on with: agentos resume"


def _workers(event: events.WorkerCountChanged) -> str:
    fewer = " Those at work finish their items first." if event.workers < event.previous else ""
    return f"{count(event.workers, 'worker')} from now on (before: {event.previous}).{fewer}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds >= 1 else f"{seconds:.1f}s"


def _changed(event: events.KeysChanged) -> str:
    parts = {
        "new": event.added,
        "gone": event.removed,
        "disabled": event.disabled,
        "enabled": event.enabled,
        "changed": event.changed,
    }
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"The credentials were changed ({told})."


def why_stopped(event: events.ShutdownStarted, at: float) -> str:
    """With the time from which it could go on, if that is known."""
    when = "" if event.seconds is None else f", at {clock(at + event.seconds, at)}"
    return f"{event.detail or event.reason}{when}"


def _stopping(event: events.ShutdownStarted, at: float) -> str:
    if event.reason.startswith("SIG"):
        return "Shutting down... waiting for workers to checkpoint"
    return f"Stopping ({event.reason}): {why_stopped(event, at)}. Waiting for workers to checkpoint"
