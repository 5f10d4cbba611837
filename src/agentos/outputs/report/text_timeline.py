"""The timeline of a run in letters, for places that show no picture."""

from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.report.axis import tick_label
from agentos.outputs.report.facts import plain

CELLS = 60
MOST_ITEMS = 100
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WAIT, REST, CALL, REFUSED, WORK = "~", "/", "=", "!", "-"


def render_text_timeline(record: RunRecord) -> list[str]:
    """A line an item and a key, a letter a node; what they mean stands below."""
    timeline = record.timeline
    if not timeline.items:
        return []
    names = sorted({span.label for lane in timeline.items.values() for span in lane.of(SpanKind.NODE)})
    letters = {name: LETTERS[place % len(LETTERS)] for place, name in enumerate(names)}
    items = list(timeline.items.values())
    width = max(len(plain(lane.name)) for lane in (*items, *timeline.keys.values()))
    lines = [
        f"{plain(lane.name):<{width}} |{_drawn(record, lane, letters)}|"
        for lane in (*items[:MOST_ITEMS], *timeline.keys.values())
    ]
    more = [f"({len(items) - MOST_ITEMS} more items)"] if len(items) > MOST_ITEMS else []
    end = tick_label(round(timeline.last - timeline.began, 1))
    scale = f"{'':<{width}}  0{end:>{CELLS - 1}}"
    meaning = [f"{letter} {plain(name)}" for name, letter in letters.items()]
    meaning += [f"{WAIT} waits for a key", f"{CALL} call", f"{REFUSED} refused", f"{REST} rests"]
    return [*lines, *more, scale, ", ".join(meaning)]


def _drawn(record: RunRecord, lane: Lane, letters: dict[str, str]) -> str:
    timeline = record.timeline
    whole = max(timeline.last - timeline.began, 0.001)
    cells = [" "] * CELLS
    for span in lane.layers():
        first = int((span.began - timeline.began) / whole * CELLS)
        last = int((span.until(timeline.last) - timeline.began) / whole * CELLS)
        for cell in range(first, min(max(last, first + 1), CELLS)):
            cells[cell] = _letter(span, letters)
    return "".join(cells)


def _letter(span: Span, letters: dict[str, str]) -> str:
    match span.kind:
        case SpanKind.NODE:
            return letters[span.label]
        case SpanKind.WAIT:
            return WAIT
        case SpanKind.CALL:
            return CALL
        case SpanKind.REFUSED:
            return REFUSED
        case SpanKind.COOLDOWN | SpanKind.SPENT | SpanKind.QUARANTINE:
            return REST
        case _:
            return WORK
