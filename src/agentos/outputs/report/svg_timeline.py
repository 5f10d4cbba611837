"""The timeline of a run as a picture: items as bars, their nodes coloured, keys below."""

from collections.abc import Iterator
from html import escape
from importlib import resources

from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.format import count, duration
from agentos.outputs.report.axis import Axis, tick_label
from agentos.outputs.report.facts import headline, plain

WIDTH, LABELS, STATES, LANE, BAR, TOP = 1040, 118, 118, 22, 14, 44
MOST_ITEMS = 500
COLOURS = 8
KEPT_FROM_USE = (SpanKind.COOLDOWN, SpanKind.SPENT, SpanKind.QUARANTINE)
PATTERNS = (
    '<pattern id="tl-wait" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="5" height="5"/><line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern>'
    '<pattern id="tl-rest" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<line class="resting" x1="0" y1="0" x2="0" y2="7"/></pattern>'
)


def render_svg(record: RunRecord) -> str:
    """An SVG that stands by itself, or inside a page."""
    items, keys = list(record.timeline.items.values())[:MOST_ITEMS], list(record.timeline.keys.values())
    below = TOP + LANE * len(items) + 36
    bottom = below + LANE * len(keys)
    legend, height = _legend(_nodes(record), bottom + 18)
    seconds = max(record.timeline.last - record.timeline.began, 0.1)
    axis = Axis(seconds, LABELS, WIDTH - STATES)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-labelledby="tl-title tl-desc">',
            f'<title id="tl-title">{escape("Timeline of " + headline(record))}</title>',
            f'<desc id="tl-desc">{escape(described(record))}</desc>',
            f"<style>{_style()}</style><defs>{PATTERNS}</defs>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *_ticks(axis, bottom),
            *_pauses(record, axis, below - 30),
            f'<text class="strong" x="8" y="{TOP - 14}">Items</text>',
            *_items(record, items, axis),
            f'<text class="strong" x="8" y="{below - 8}">Keys</text>',
            *_keys(record, keys, axis, below),
            *legend,
            "</svg>",
        ]
    )


def described(record: RunRecord) -> str:
    """The picture in words."""
    timeline = record.timeline
    lasted = duration(max(0.0, timeline.last - timeline.began))
    waits = [span for lane in timeline.items.values() for span in lane.of(SpanKind.WAIT)]
    rests = [span for lane in timeline.keys.values() for span in lane.of(*KEPT_FROM_USE)]
    cut = len(timeline.items) - MOST_ITEMS
    parts = [
        f"{count(len(timeline.items), 'item')} in {lasted}, each a bar with its nodes in colours; "
        f"below it the calls of {count(len(timeline.keys), 'key')}.",
        f"{count(len(waits), 'wait')} for a key, {duration(sum(span.seconds(timeline.last) for span in waits))} together.",
        f"{count(len(rests), 'rest')} of keys.",
        f"Only the first {MOST_ITEMS} items are drawn." if cut > 0 else "",
        "The tables say the same in figures.",
    ]
    return " ".join(part for part in parts if part)


def _style() -> str:
    return resources.files("agentos.outputs.report").joinpath("picture.css").read_text("utf-8")


def _nodes(record: RunRecord) -> dict[str, str]:
    """Each node with its colour, in the order of their names."""
    names = {span.label for lane in record.timeline.items.values() for span in lane.of(SpanKind.NODE)}
    return {name: f"n{place % COLOURS}" for place, name in enumerate(sorted(names))}


def _ticks(axis: Axis, bottom: float) -> Iterator[str]:
    for seconds in axis.ticks():
        x = axis.x(seconds)
        yield f'<line class="tick" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text class="quiet mid" x="{x:.1f}" y="{TOP - 14}">{tick_label(seconds)}</text>'


def _pauses(record: RunRecord, axis: Axis, bottom: float) -> Iterator[str]:
    for span in record.timeline.run.spans:
        yield _bar(record, span, axis, "pause", (TOP - 8, bottom - TOP + 8))


def _items(record: RunRecord, lanes: list[Lane], axis: Axis) -> Iterator[str]:
    colours = _nodes(record)
    for number, lane in enumerate(lanes):
        y = TOP + number * LANE
        row = record.stats.rows.get(lane.name)
        failed = bool(row and row.outcome and row.outcome.ending is Ending.FAILED)
        yield f'<g><text x="8" y="{y + 12}">{escape(_cut(lane.name))}</text>'
        for span in lane.layers():
            look = {
                SpanKind.ATTEMPT: "work",
                SpanKind.NODE: colours.get(span.label, "n0"),
                SpanKind.RETRY: "again",
            }.get(span.kind, "url(#tl-wait)")
            slim = span.kind in (SpanKind.ATTEMPT, SpanKind.RETRY)
            yield _bar(record, span, axis, look, (y + 4, 6) if slim else (y, BAR))
        word = record.status_of(row) if row else ""
        yield (
            f'<text class="{"failed" if failed else "quiet"}" x="{WIDTH - STATES + 10}" y="{y + 12}">{escape(word)}'
            "</text></g>"
        )


def _keys(record: RunRecord, lanes: list[Lane], axis: Axis, top: int) -> Iterator[str]:
    for number, lane in enumerate(lanes):
        y = top + number * LANE
        calls = lane.of(SpanKind.CALL, SpanKind.REFUSED)
        yield f'<g><text x="8" y="{y + 12}">{escape(_cut(lane.name))}</text>'
        for span in lane.of(*KEPT_FROM_USE):
            yield _bar(record, span, axis, "url(#tl-rest)", (y, BAR))
        for span in calls:
            look = "refused" if span.kind is SpanKind.REFUSED else "call"
            yield _bar(record, span, axis, look, (y + 3, BAR - 6))
        yield f'<text class="quiet" x="{WIDTH - STATES + 10}" y="{y + 12}">{count(len(calls), "call")}</text></g>'


def _bar(record: RunRecord, span: Span, axis: Axis, look: str, place: tuple[float, float]) -> str:
    """A span as a rectangle that says what it is when it is pointed at; `place` is its top and height."""
    timeline = record.timeline
    began, ended = span.began - timeline.began, span.until(timeline.last) - timeline.began
    x, width = axis.x(began), max(axis.x(ended) - axis.x(began), 1.2)
    fill = f'fill="{look}"' if look.startswith("url") else f'class="{look}"'
    return (
        f'<rect {fill} x="{x:.1f}" y="{place[0]}" width="{width:.1f}" height="{place[1]}" rx="1.5">'
        f"<title>{escape(_said(span, began, ended))}</title></rect>"
    )


def _said(span: Span, began: float, ended: float) -> str:
    name = plain(span.label) if span.kind is SpanKind.NODE else span.kind.value
    more = f" ({plain(span.label)})" if span.label and span.kind is not SpanKind.NODE else ""
    lasts = "" if span.ended is not None else ", not over"
    return f"{name}{more}: {duration(ended - began)}, from {tick_label(round(began, 1))}{lasts}"


def _legend(nodes: dict[str, str], top: float) -> tuple[list[str], int]:
    """What the colours mean, in as many lines as it needs, and where it ends."""
    entries = [(plain(name), f'class="{colour}"') for name, colour in nodes.items()]
    entries += [
        ("worker starting", 'class="work"'),
        ("waiting for a key", 'fill="url(#tl-wait)"'),
        ("call", 'class="call"'),
        ("refused call", 'class="refused"'),
        ("key resting", 'fill="url(#tl-rest)"'),
        ("run paused", 'class="pause"'),
    ]
    drawn, x, y = [], 8.0, top
    for name, look in entries:
        width = 30 + 7.2 * len(name)
        if x + width > WIDTH and x > 8:
            x, y = 8.0, y + LANE
        drawn.append(f'<rect {look} x="{x:.1f}" y="{y}" width="12" height="12"/>')
        drawn.append(f'<text class="quiet" x="{x + 17:.1f}" y="{y + 10}">{escape(name)}</text>')
        x += width
    return drawn, int(y + LANE + 4)


def _cut(name: str) -> str:
    shown = plain(name)
    return shown if len(shown) <= 15 else f"{shown[:14]}…"
