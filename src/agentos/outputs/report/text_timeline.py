"""Renders the timeline of a run as text, for formats without pictures."""

from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.report.facts import plain, tick_label

CELLS = 60
MAX_ITEMS = 100
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WAIT, UNAVAILABLE, CALL, REFUSED, WORK = "~", "/", "=", "!", "-"


def render_text_timeline(record: RunRecord) -> list[str]:
    """One line per item and key, one letter per node, and a legend."""
    timeline = record.timeline
    if not timeline.items:
        return []
    names = sorted({span.label for lane in timeline.items.values() for span in lane.of(SpanKind.NODE)})
    letters = {name: LETTERS[number % len(LETTERS)] for number, name in enumerate(names)}
    items = list(timeline.items.values())
    width = max(len(plain(lane.name)) for lane in (*items, *timeline.keys.values()))
    lines = [
        f"{plain(lane.name):<{width}} |{_draw(record, lane, letters)}|"
        for lane in (*items[:MAX_ITEMS], *timeline.keys.values())
    ]
    more = [f"({len(items) - MAX_ITEMS} more items)"] if len(items) > MAX_ITEMS else []
    end = tick_label(round(timeline.last - timeline.began, 1))
    scale = f"{'':<{width}}  0{end:>{CELLS - 1}}"
    legend = [f"{letter} {plain(name)}" for name, letter in letters.items()]
    legend += [
        f"{WAIT} waiting for a key",
        f"{CALL} call",
        f"{REFUSED} refused",
        f"{UNAVAILABLE} unavailable",
    ]
    return [*lines, *more, scale, ", ".join(legend)]


def _draw(record: RunRecord, lane: Lane, letters: dict[str, str]) -> str:
    timeline = record.timeline
    total = max(timeline.last - timeline.began, 0.001)
    cells = [" "] * CELLS
    for span in lane.layers():
        first = int((span.began - timeline.began) / total * CELLS)
        last = int((span.until(timeline.last) - timeline.began) / total * CELLS)
        for cell in range(first, min(max(last, first + 1), CELLS)):
            cells[cell] = _symbol(span, letters)
    return "".join(cells)


def _symbol(span: Span, letters: dict[str, str]) -> str:
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
            return UNAVAILABLE
        case _:
            return WORK
