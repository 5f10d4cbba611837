"""The log of a run as text: the coordinator's lines and what happened to each item, with a level."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending
from agentos.outputs.format import DATABASE, AnnouncedEvent, duration, event_text
from agentos.outputs.report.facts import plain
from agentos.outputs.summary import ending_lines


class LogLevel(StrEnum):
    """In order of importance."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_LEVELS = tuple(LogLevel)
_ERRORS = (
    events.KeyQuarantined,
    events.ModelForbidden,
    events.BreakerOpened,
    events.SlotRetired,
    events.WorkersKilled,
    events.GatewayExited,
    events.WorkerStartFailed,
)
_WARNINGS = (
    events.KeyLimited,
    events.KeyExhausted,
    events.AllKeysLimited,
    events.PoolExhausted,
    events.PoolLow,
    events.KeysFewerThanWorkers,
    events.ItemRetried,
    events.ItemQuiet,
    events.CallsThrottled,
    events.DiskWaitStarted,
    events.CredentialsRejected,
    events.ShutdownStarted,
    events.SlotCooldownStarted,
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `item` is empty for lines of the coordinator."""

    at: float
    item: str
    level: LogLevel
    text: str

    def matches(self, item: str, level: str) -> bool:
        """Whether the line belongs to this item, if one is given, and has at least this level, if one is given."""
        is_important = not level or _LEVELS.index(self.level) >= _LEVELS.index(LogLevel(level))
        return is_important and item in ("", self.item)


def log_line(event: events.Event, at: float) -> LogLine | None:
    """The line for an event; None if it has none."""
    text = _text(event, at)
    return LogLine(at, getattr(event, "item", ""), level_of(event), plain(text)) if text else None


def json_log_line(line: LogLine, event: str, fields: Mapping[str, object] | None = None) -> str:
    """The line as one JSON object: time (UTC), level, event, item if there is one, text, then `fields`."""
    time = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found = {"time": time, "level": line.level.value, "event": event}
    if line.item:
        found["item"] = line.item
    return json.dumps({**found, "text": line.text, **(fields or {})})


def level_of(event: events.Event) -> LogLevel:
    if isinstance(event, _ERRORS):
        return LogLevel.ERROR
    if isinstance(event, events.ItemEnded) and event.outcome.ending is Ending.FAILED:
        return LogLevel.ERROR
    return LogLevel.WARNING if isinstance(event, _WARNINGS) else LogLevel.INFO


def _text(event: events.Event, at: float) -> str | None:
    match event:
        case events.ItemEnded():
            return " ".join(ending_lines(event))
        case events.RunEnded():
            return f"Ended with exit code {event.exit_code} after {duration(event.seconds)}"
        case events.RequestDeclined():
            return f"Declined: {event.reason}"
    return event_text(event, at) if isinstance(event, AnnouncedEvent) and _has_text(event) else _step(event)


def _has_text(event: AnnouncedEvent) -> bool:
    return not isinstance(event, events.ItemStarted | events.LeaseGranted)


def _step(event: events.Event) -> str | None:
    """What happened to one item, as in its log where possible."""
    match event:
        case events.NodeStarted():
            return f">>> Executing: {event.node}"
        case events.ItemStarted() if event.attempt > 1:
            return f"Attempt {event.attempt} starts"
        case events.WorkerStartFailed():
            return f"Could not be started: {event.reason}"
        case events.DiskFull():
            what = "for" if event.path.startswith(DATABASE) else "for disk space:"
            return f"Waits {what} {event.path}"
        case events.LeaseGranted() if event.waited_seconds >= 1:
            return f"Got {event.key} after waiting {duration(event.waited_seconds)}"
        case events.LeaseReleased() if event.refusal:
            return f"{'Failed' if event.refusal.kind.is_failure else 'Refused'}: {event.refusal.reason}"
    return None
