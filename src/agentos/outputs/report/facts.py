"""Gathers the contents of a report, independent of its format."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import ItemStats, RunStats
from agentos.core.run_state.timeline import SpanKind
from agentos.core.text.line_assembler import one_line
from agentos.core.text.values import with_visible_characters
from agentos.outputs.format import count, dollars, duration, event_text, tokens_in_and_out
from agentos.outputs.summary import continue_command, not_redone, overhead, overhead_text, skipped_text

MAX_TEXT = 300  # characters
UNAVAILABLE = (SpanKind.COOLDOWN, SpanKind.SPENT, SpanKind.QUARANTINE)
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ReportFact:
    """A line of the summary; a command is shown in a form that can be copied."""

    name: str
    text: str
    is_command: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A caveat, with the command that helps, if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """One item's row; times are in seconds, `began` since the start of the run."""

    item: str
    title: str
    state: str
    outcome: Outcome | None
    rounds: int
    attempts: int
    began: float | None
    seconds: float
    waited: float
    calls: int
    refusals: int
    failures: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: float | None
    node: str

    @property
    def error(self) -> str:
        return plain(self.outcome.error or "") if self.outcome else ""

    @property
    def reasons(self) -> str:
        """Details of what is wrong with a failed item, or with a draft that was not approved."""
        return plain("; ".join(self.outcome.details)) if self.outcome else ""

    @property
    def result(self) -> str:
        return plain(self.outcome.result or "") if self.outcome else ""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key's row: its calls, and for how many seconds it was in use and unavailable.

    The provider has answered `refusals` calls with a refusal, and `failures` with a server error or not at all.
    """

    key: str
    calls: int
    refusals: int
    failures: int
    used: float
    unavailable: float
    state: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line of the coordinator, `seconds` after the start of the run."""

    seconds: float
    text: str


def plain(text: str) -> str:
    """Untrusted text as one line of limited length without invisible characters, valid in every format."""
    shown = with_visible_characters(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", one_line(text)))
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}…"


def headline(record: RunRecord) -> str:
    started = record.stats.started
    if started is None:
        return f"Run {plain(record.run)}"
    return f"Run {plain(record.run)}: {plain(started.workflow)}, {count(len(started.items), 'item')}"


def run_facts(record: RunRecord) -> list[ReportFact]:
    stats, started = record.stats, record.stats.started
    facts = [ReportFact("State", record.state)]
    if started:
        began = datetime.fromtimestamp(stats.began).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        facts += [
            ReportFact("Began", began),
            ReportFact("Project", plain(started.project)),
            ReportFact("Command", plain(started.command), is_command=True),
            ReportFact("Workers", _workers(stats)),
        ]
    return [
        *facts,
        ReportFact("Duration", duration(record.seconds)),
        ReportFact("Verdicts", _verdicts(record)),
        ReportFact("Items", _endings(record)),
        *([ReportFact("Skipped", plain(skipped))] if (skipped := skipped_text(stats)) else []),
        ReportFact("Calls", f"{stats.usage.calls}, {count(stats.refusals, 'refusal')} (429)"),
        ReportFact("Waited for keys", duration(waited(record))),
        ReportFact("Tokens", tokens_in_and_out(stats.usage)),
        ReportFact("Cost", dollars(stats.cost)),
        *_overhead(record),
    ]


def _workers(stats: RunStats) -> str:
    """The number of workers, or its range if it changed during the run."""
    least, most = min(stats.worker_counts), max(stats.worker_counts)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} (auto)" if stats.started and stats.started.auto_workers else number


def _overhead(record: RunRecord) -> list[ReportFact]:
    """Empty if the number would be meaningless."""
    if not record.stats.ended or overhead(record.stats) is None:
        return []
    return [ReportFact("Coordination overhead", overhead_text(record.stats))]


def item_facts(record: RunRecord) -> Iterator[ItemFacts]:
    titles, unanswered = record.titles, _unanswered_calls(record)
    for row in record.stats.rows.values():
        yield _item(record, row, plain(titles.get(row.item, "")), unanswered)


def key_facts(record: RunRecord) -> Iterator[KeyFacts]:
    end = record.timeline.last
    for key, lane in record.timeline.keys.items():
        calls = lane.of(SpanKind.CALL, SpanKind.REFUSED, SpanKind.FAILED)
        outages = lane.of(*UNAVAILABLE)
        last = outages[-1] if outages and (outages[-1].ended is None or outages[-1].ended > end) else None
        yield KeyFacts(
            plain(key),
            len(calls),
            len(lane.of(SpanKind.REFUSED)),
            len(lane.of(SpanKind.FAILED)),
            sum(span.seconds(end) for span in calls),
            sum(span.seconds(end) for span in outages),
            last.kind.value if last else "usable",
        )


def log_entries(record: RunRecord) -> list[LogEntry]:
    """The coordinator's lines with their times."""
    lines = ((timed.at, event_text(timed.event, timed.at)) for timed in record.timed_events)
    return [LogEntry(at - record.timeline.began, plain(text)) for at, text in lines if text]


def remarks(record: RunRecord) -> list[Remark]:
    """Caveats: unreadable journal lines, and a run that has not ended."""
    found = []
    if record.unread:
        torn = " (the last one is incomplete)" if record.torn else ""
        found.append(Remark(f"Skipped {count(record.unread, 'unreadable line')} of the journal{torn}."))
    if record.stats.started is None:
        found.append(
            Remark("The start of the run is missing from the journal; this report shows what is known.")
        )
    if not record.stats.ended:
        # A report may be read from any folder.
        command = continue_command(record.stats, here="")
        text = f"The run {record.state}. This report shows its progress so far."
        ended = command and not record.alive
        found.append(Remark(f"{text} Resume with: ", plain(command)) if ended else Remark(text))
        if ended:
            found += [Remark(f"{line}.") for line in not_redone(record.stats)]
    return found


def waited(record: RunRecord) -> float:
    if record.stats.ended:
        return record.stats.ended.waited_seconds
    return sum(_waited(record, item) for item in record.timeline.items)


def _unanswered_calls(record: RunRecord) -> Counter[tuple[str, SpanKind]]:
    """The number of calls that were refused and that failed, by item."""
    lanes = record.timeline.keys.values()
    return Counter(
        (span.label, span.kind) for lane in lanes for span in lane.of(SpanKind.REFUSED, SpanKind.FAILED)
    )


def _item(
    record: RunRecord, row: ItemStats, title: str, unanswered: Counter[tuple[str, SpanKind]]
) -> ItemFacts:
    lane = record.timeline.items.get(row.item)
    attempts = lane.of(SpanKind.ATTEMPT) if lane else []
    return ItemFacts(
        item=plain(row.item),
        title=title,
        state=record.status_of(row),
        outcome=row.outcome,
        rounds=row.round,
        attempts=row.attempts or len(attempts),
        began=attempts[0].began - record.timeline.began if attempts else None,
        seconds=record.seconds_of(row),
        waited=_waited(record, row.item),
        calls=row.usage.calls,
        refusals=unanswered[row.item, SpanKind.REFUSED],
        failures=unanswered[row.item, SpanKind.FAILED],
        input_tokens=row.usage.input_tokens,
        output_tokens=row.usage.output_tokens,
        cache_read_tokens=row.usage.cache_read_tokens,
        cache_write_tokens=row.usage.cache_write_tokens,
        cost=row.cost,
        node=plain(row.node),
    )


def _waited(record: RunRecord, item: str) -> float:
    lane = record.timeline.items.get(item)
    return sum(span.seconds(record.timeline.last) for span in lane.of(SpanKind.WAIT)) if lane else 0.0


def _verdicts(record: RunRecord) -> str:
    approved, revise = (len(record.stats.with_verdict(verdict)) for verdict in Verdict)
    return f"{approved} approved, {revise} {'needs' if revise == 1 else 'need'} revision"


def _endings(record: RunRecord) -> str:
    states = [record.status_of(row) for row in record.stats.rows.values()]
    finished = len(record.stats.with_ending(Ending.FINISHED))
    others = [state for state in dict.fromkeys(states) if state and state not in list(Verdict)]
    return ", ".join([f"{finished} finished", *(f"{states.count(state)} {state}" for state in others)])


def tick_label(seconds: float) -> str:
    """A time on an axis: 0, 0.5s, 30s, 1:30, 2:00:00."""
    if seconds < 60:
        return f"{seconds:g}s" if seconds else "0"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
