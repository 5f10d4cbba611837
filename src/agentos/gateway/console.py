"""What the gateway says to people, a line each."""

from collections.abc import Callable

from agentos.core.protocol import events
from agentos.core.text.line_assembler import one_line
from agentos.gateway.usage import CallEnding, CallRecord, ItemUsage, UsageByItem
from agentos.outputs.format import clock, count, dollars, duration, event_text, tokens

GATEWAY = "[GATEWAY]"


class GatewayConsole:
    """`write` takes one whole line."""

    def __init__(
        self, write: Callable[[str], None], redact: Callable[[str], str], wall: Callable[[], float]
    ) -> None:
        self._write = write
        self._redact = redact
        self._wall = wall

    def write(self, text: str) -> None:
        self._line(GATEWAY, text)

    def news(self, event: events.News | events.CredentialsRejected) -> None:
        if text := event_text(event, self._wall()):
            self.write(text)

    def call_waiting(self, item: str, reason: str) -> None:
        self._line(f"[{item}]", f"Waiting for a key: {reason}")

    def call_ended(self, record: CallRecord) -> None:
        self._line(f"[{record.item}]", _call(record))

    def summary(self, accounts: UsageByItem, seconds: float) -> None:
        total = accounts.total()
        self.write(f"Served {count(total.calls, 'call')} in {duration(seconds)}: {_used(total)}")
        width = max((len(item) for item in accounts.by_item), default=0)
        for item, account in accounts.by_item.items():
            self.write(f"  {item:<{width}}  {count(account.calls, 'call')}, {_used(account)}")
        if total.estimates:
            self.write(f"{count(total.estimates, 'call')} named no tokens; theirs are estimated")

    def started(self, url: str, keys: dict[str, int], max_wait: float) -> None:
        listed = ", ".join(f"{provider} ({count(number, 'key')})" for provider, number in keys.items())
        self.write(
            f"Listening at {url} since {clock(self._wall())} for {listed}; a call waits for a key up to "
            f"{duration(max_wait)}. Ctrl-C ends it."
        )

    def _line(self, prefix: str, text: str) -> None:
        self._write(self._redact(f"{one_line(prefix)} {one_line(text)}".rstrip()))


def _call(record: CallRecord) -> str:
    parts = [f"{record.provider} {record.model}".strip()]
    if record.status:
        parts.append(f"{record.status}{f' with {record.key}' if record.key else ''}")
    if record.ending is not CallEnding.COMPLETE:
        parts.append(record.ending.value)
    parts.append(duration(record.seconds))
    if record.waited >= 1:
        parts.append(f"waited {duration(record.waited)} of it")
    if record.refused:
        parts.append(f"refused {count(record.refused, 'time')} before")
    if record.usage.calls:
        about = "about " if record.is_estimate else ""
        parts.append(f"{about}{tokens(record.usage.tokens)} tokens, cost {dollars(record.cost)}")
    return ", ".join(parts)


def _used(account: ItemUsage) -> str:
    return (
        f"{tokens(account.usage.tokens)} tokens, cost {dollars(account.cost)}, "
        f"{count(account.refused, 'refusal')} on the way, {duration(account.waited)} waited for keys"
    )
