"""Prints what the gateway does, one line per call or event."""

from collections.abc import Callable, Mapping

from agentos.core.protocol import events
from agentos.core.protocol.codec import WIRE_NAMES
from agentos.core.protocol.results import Usage
from agentos.core.text.line_assembler import one_line
from agentos.gateway.usage import CallEnding, CallRecord, ItemUsage, UsageByItem
from agentos.outputs.format import clock, count, dollars, duration, event_text, tokens
from agentos.outputs.run_log import LogLevel, LogLine, json_log_line, level_of

PREFIX = "[GATEWAY]"


class GatewayConsole:
    """Formats lines for people, or as JSON for programs; `write` receives whole lines, already redacted."""

    def __init__(
        self,
        write: Callable[[str], None],
        redact: Callable[[str], str],
        wall_clock: Callable[[], float],
        *,
        as_json: bool = False,
    ) -> None:
        self._write = write
        self._redact = redact
        self._wall_clock = wall_clock
        self._as_json = as_json

    def started(self, url: str, keys: dict[str, int], max_wait: float) -> None:
        listed = ", ".join(f"{provider} ({count(number, 'key')})" for provider, number in keys.items())
        self._line(
            "gateway_started",
            f"Listening on {url} since {clock(self._wall_clock())} for {listed}. "
            f"Calls wait up to {duration(max_wait)} for a key. Press Ctrl-C to stop.",
        )

    def warn(self, text: str) -> None:
        self._line("gateway_warning", text, LogLevel.WARNING)

    def on_event(self, event: events.SchedulerEvent | events.CredentialsRejected) -> None:
        if text := event_text(event, self._wall_clock()):
            self._line(WIRE_NAMES[type(event)], text, level_of(event))

    def call_waiting(self, item: str, reason: str) -> None:
        self._line("call_waiting", f"Waiting for a key: {reason}", item=item)

    def call_ended(self, record: CallRecord) -> None:
        self._line("call_ended", _call_text(record), item=record.item, fields=_call_fields(record))

    def summary(self, usage: UsageByItem, seconds: float) -> None:
        total = usage.total()
        served = f"Served {count(total.calls, 'call')} in {duration(seconds)}: {_usage_text(total)}"
        self._line("gateway_summary", served)
        width = max((len(item) for item in usage.by_item), default=0)
        for item, used in usage.by_item.items():
            self._line(
                "gateway_summary", f"  {item:<{width}}  {count(used.calls, 'call')}, {_usage_text(used)}"
            )
        if total.estimates:
            calls = count(total.estimates, "call")
            self._line(
                "gateway_summary", f"Tokens of {calls} are estimated: the responses did not report them"
            )

    def _line(
        self,
        event: str,
        text: str,
        level: LogLevel = LogLevel.INFO,
        item: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        if self._as_json:
            line = LogLine(
                self._wall_clock(), self._redact(item), level, self._redact(one_line(text).strip())
            )
            self._write(self._redact(json_log_line(line, event, fields)))
        else:
            prefix = f"[{one_line(item)}]" if item else PREFIX
            self._write(self._redact(f"{prefix} {one_line(text)}".rstrip()))


def _call_fields(record: CallRecord) -> dict[str, object]:
    return {
        "provider": record.provider,
        "model": record.model,
        "status": record.status,
        "key": record.key,
        "seconds": round(record.seconds, 3),
        "waited_seconds": round(record.waited, 3),
        "refusals": record.refused,
        "failures": record.failed,
        "input_tokens": record.usage.input_tokens,
        "output_tokens": record.usage.output_tokens,
        "cost": record.cost,
    }


def _call_text(record: CallRecord) -> str:
    parts = [f"{record.provider} {record.model}".strip()]
    if record.status:
        parts.append(f"{record.status}{f' with {record.key}' if record.key else ''}")
    if record.ending is not CallEnding.COMPLETE:
        parts.append(record.ending.value)
    parts.append(duration(record.seconds))
    if record.waited >= 1:
        parts.append(f"waited {duration(record.waited)} for a key")
    if record.refused or record.failed:
        parts.append(f"after {_attempts_text(record.refused, record.failed)}")
    if record.usage.calls:
        about = "about " if record.is_estimate else ""
        parts.append(
            f"{about}{tokens(record.usage.tokens)} tokens{_cache_text(record.usage)}, cost {dollars(record.cost)}"
        )
    return ", ".join(parts)


def _usage_text(used: ItemUsage) -> str:
    return (
        f"{tokens(used.usage.tokens)} tokens{_cache_text(used.usage)}, cost {dollars(used.cost)}, "
        f"{_attempts_text(used.refused, used.failed)} retried, {duration(used.waited)} waiting for keys"
    )


def _attempts_text(refused: int, failed: int) -> str:
    """`1 refusal`, or `1 refusal and 2 failures`."""
    refusals = [count(refused, "refusal")] if refused or not failed else []
    return " and ".join([*refusals, *([count(failed, "failure")] if failed else [])])


def _cache_text(usage: Usage) -> str:
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    if not read and not written:
        return ""
    return f" (cache: {tokens(read)} read, {tokens(written)} written)"
