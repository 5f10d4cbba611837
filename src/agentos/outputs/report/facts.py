"""What every report says, whatever its form."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import ItemStats
from agentos.core.run_state.timeline import SpanKind
from agentos.core.text.line_assembler import one_line
from agentos.outputs.format import count, dollars, duration, event_text
from agentos.outputs.resume_command import resume_command
from agentos.outputs.summary import overhead_words

MAX_TEXT = 300
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """One item's row; `waited` and `seconds` in seconds, `began` from the beginning of the run."""

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
    input_tokens: int
    output_tokens: int
    cost: float | None
    node: str

    @property
    def error(self) -> str:
        return plain(self.outcome.error or "") if self.outcome else ""

    @property
    def result(self) -> str:
        return plain(self.outcome.result or "") if self.outcome else ""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key's row: calls, and how long it was used and kept from use."""

    key: str
    calls: int
    refusals: int
    used: float
    rested: float
    state: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Something worth telling, so many seconds after the beginning."""

    seconds: float
    text: str


def plain(text: str) -> str:
    """A text from outside as one line that every form can hold."""
    shown = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", one_line(text))
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}…"


def headline(record: RunRecord) -> str:
    started = record.stats.started
    if started is None:
        return f"Run {plain(record.run)}"
    return f"Run {plain(record.run)}: {plain(started.workflow)}, {count(len(started.items), 'item')}"


def run_facts(record: RunRecord) -> list[Fact]:
    stats, started = record.stats, record.stats.started
    facts = [Fact("State", record.state)]
    if started:
        began = datetime.fromtimestamp(stats.began).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        facts += [
            Fact("Began", began),
            Fact("Project", plain(started.project)),
            Fact("Command", plain(started.command)),
            Fact("Workers", str(started.workers)),
        ]
    return [
        *facts,
        Fact("Duration", duration(record.seconds)),
        Fact("Verdicts", _verdicts(record)),
        Fact("Items", _endings(record)),
        Fact("Calls", f"{stats.usage.calls}, {count(stats.refusals, 'refusal')} (429)"),
        Fact("Waited for keys", duration(waited(record))),
        Fact("Tokens", f"{stats.usage.input_tokens:,} in, {stats.usage.output_tokens:,} out"),
        Fact("Cost", dollars(stats.cost)),
        Fact("Coordination overhead", overhead_words(stats) if stats.ended else "known at the end"),
    ]


def item_facts(record: RunRecord) -> Iterator[ItemFacts]:
    titles, refusals = record.titles, _refusals(record)
    for row in record.stats.rows.values():
        yield _item(record, row, plain(titles.get(row.item, "")), refusals[row.item])


def key_facts(record: RunRecord) -> Iterator[KeyFacts]:
    end = record.timeline.last
    for key, lane in record.timeline.keys.items():
        calls, refused = lane.of(SpanKind.CALL), lane.of(SpanKind.REFUSED)
        rests = lane.of(SpanKind.COOLDOWN, SpanKind.SPENT, SpanKind.QUARANTINE)
        last = rests[-1] if rests and (rests[-1].ended is None or rests[-1].ended > end) else None
        yield KeyFacts(
            plain(key),
            len(calls) + len(refused),
            len(refused),
            sum(span.seconds(end) for span in calls + refused),
            sum(span.seconds(end) for span in rests),
            last.kind.value if last else "usable",
        )


def moments(record: RunRecord) -> list[Moment]:
    """What the coordinator said, with the time."""
    said = ((told.at, event_text(told.event, told.at)) for told in record.timed_events)
    return [Moment(at - record.timeline.began, plain(text)) for at, text in said if text]


def remarks(record: RunRecord) -> list[str]:
    """What a reader must know before believing the rest."""
    found = []
    if record.unread:
        torn = " (the last one was torn while it was written)" if record.torn else ""
        found.append(f"{count(record.unread, 'line')} of the journal cannot be read{torn}: passed over.")
    if record.stats.started is None:
        found.append("The journal does not say how the run began: what is known of it is below.")
    if not record.stats.ended:
        # A report is read anywhere.
        command = resume_command(record.stats.started, here="") if record.stats.started else ""
        cure = "" if record.alive or not command else f" Go on with: {plain(command)}"
        found.append(f"The run {record.state}: this is how far it had come.{cure}")
    return found


def waited(record: RunRecord) -> float:
    if record.stats.ended:
        return record.stats.ended.waited_seconds
    return sum(_waited(record, item) for item in record.timeline.items)


def _refusals(record: RunRecord) -> Counter[str]:
    lanes = record.timeline.keys.values()
    return Counter(span.label for lane in lanes for span in lane.of(SpanKind.REFUSED))


def _item(record: RunRecord, row: ItemStats, title: str, refusals: int) -> ItemFacts:
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
        refusals=refusals,
        input_tokens=row.usage.input_tokens,
        output_tokens=row.usage.output_tokens,
        cost=row.cost,
        node=plain(row.node),
    )


def _waited(record: RunRecord, item: str) -> float:
    lane = record.timeline.items.get(item)
    return sum(span.seconds(record.timeline.last) for span in lane.of(SpanKind.WAIT)) if lane else 0.0


def _verdicts(record: RunRecord) -> str:
    approved, revise = (len(record.stats.verdicts(verdict)) for verdict in Verdict)
    return f"{approved} approved, {revise} {'needs' if revise == 1 else 'need'} revision"


def _endings(record: RunRecord) -> str:
    words = [record.status_of(row) for row in record.stats.rows.values()]
    finished = len(record.stats.ending(Ending.FINISHED))
    others = [word for word in dict.fromkeys(words) if word not in {verdict.value for verdict in Verdict}]
    return ", ".join([f"{finished} finished", *(f"{words.count(word)} {word}" for word in others if word)])
