"""What every report says, whatever its form."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agentos.core.lines import one_line
from agentos.core.results import Ending, Outcome, Verdict
from agentos.core.story import Story
from agentos.core.tally import Row
from agentos.core.timeline import SpanKind
from agentos.outputs.again import go_on
from agentos.outputs.summary import overhead_words
from agentos.outputs.words import count, dollars, duration, sentence

LONGEST = 300
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
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


def headline(story: Story) -> str:
    started = story.tally.started
    if started is None:
        return f"Run {plain(story.run)}"
    return f"Run {plain(story.run)}: {plain(started.workflow)}, {count(len(started.items), 'item')}"


def run_facts(story: Story) -> list[Fact]:
    tally, started = story.tally, story.tally.started
    facts = [Fact("State", story.state)]
    if started:
        began = datetime.fromtimestamp(tally.began).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        facts += [
            Fact("Began", began),
            Fact("Project", plain(started.project)),
            Fact("Command", plain(started.command)),
            Fact("Workers", str(started.workers)),
        ]
    return [
        *facts,
        Fact("Duration", duration(story.seconds)),
        Fact("Verdicts", _verdicts(story)),
        Fact("Items", _endings(story)),
        Fact("Calls", f"{tally.usage.calls}, {count(tally.refusals, 'refusal')} (429)"),
        Fact("Waited for keys", duration(waited(story))),
        Fact("Tokens", f"{tally.usage.input_tokens:,} in, {tally.usage.output_tokens:,} out"),
        Fact("Cost", dollars(tally.cost)),
        Fact("Coordination overhead", overhead_words(tally) if tally.ended else "known at the end"),
    ]


def item_facts(story: Story) -> Iterator[ItemFacts]:
    titles, refusals = story.titles, _refusals(story)
    for row in story.tally.rows.values():
        yield _item(story, row, plain(titles.get(row.item, "")), refusals[row.item])


def key_facts(story: Story) -> Iterator[KeyFacts]:
    end = story.timeline.last
    for key, lane in story.timeline.keys.items():
        calls, refused = lane.of(SpanKind.CALL), lane.of(SpanKind.REFUSED)
        rests = lane.of(SpanKind.REST, SpanKind.SPENT, SpanKind.QUARANTINE)
        last = rests[-1] if rests and (rests[-1].ended is None or rests[-1].ended > end) else None
        yield KeyFacts(
            plain(key),
            len(calls) + len(refused),
            len(refused),
            sum(span.seconds(end) for span in calls + refused),
            sum(span.seconds(end) for span in rests),
            last.kind.value if last else "usable",
        )


def moments(story: Story) -> list[Moment]:
    """What the coordinator said, with the time."""
    said = ((told.at, sentence(told.event, told.at)) for told in story.told)
    return [Moment(at - story.timeline.began, plain(text)) for at, text in said if text]


def remarks(story: Story) -> list[str]:
    """What a reader must know before believing the rest."""
    found = []
    if story.unread:
        torn = " (the last one was torn while it was written)" if story.torn else ""
        found.append(f"{count(story.unread, 'line')} of the journal cannot be read{torn}: passed over.")
    if story.tally.started is None:
        found.append("The journal does not say how the run began: what is known of it is below.")
    if not story.tally.ended:
        # A report is read anywhere.
        command = go_on(story.tally.started, here="") if story.tally.started else ""
        cure = "" if story.alive or not command else f" Go on with: {plain(command)}"
        found.append(f"The run {story.state}: this is how far it had come.{cure}")
    return found


def waited(story: Story) -> float:
    if story.tally.ended:
        return story.tally.ended.waited
    return sum(_waited(story, item) for item in story.timeline.items)


def _refusals(story: Story) -> Counter[str]:
    lanes = story.timeline.keys.values()
    return Counter(span.label for lane in lanes for span in lane.of(SpanKind.REFUSED))


def _item(story: Story, row: Row, title: str, refusals: int) -> ItemFacts:
    lane = story.timeline.items.get(row.item)
    attempts = lane.of(SpanKind.ATTEMPT) if lane else []
    return ItemFacts(
        item=plain(row.item),
        title=title,
        state=story.word_of(row),
        outcome=row.outcome,
        rounds=row.round,
        attempts=row.attempts or len(attempts),
        began=attempts[0].began - story.timeline.began if attempts else None,
        seconds=story.seconds_of(row),
        waited=_waited(story, row.item),
        calls=row.usage.calls,
        refusals=refusals,
        input_tokens=row.usage.input_tokens,
        output_tokens=row.usage.output_tokens,
        cost=row.cost,
        node=plain(row.node),
    )


def _waited(story: Story, item: str) -> float:
    lane = story.timeline.items.get(item)
    return sum(span.seconds(story.timeline.last) for span in lane.of(SpanKind.WAIT)) if lane else 0.0


def _verdicts(story: Story) -> str:
    approved, revise = (len(story.tally.verdicts(verdict)) for verdict in Verdict)
    return f"{approved} approved, {revise} {'needs' if revise == 1 else 'need'} revision"


def _endings(story: Story) -> str:
    words = [story.word_of(row) for row in story.tally.rows.values()]
    finished = len(story.tally.ending(Ending.FINISHED))
    others = [word for word in dict.fromkeys(words) if word not in {verdict.value for verdict in Verdict}]
    return ", ".join([f"{finished} finished", *(f"{words.count(word)} {word}" for word in others if word)])
