"""Renders the timeline of a run as SVG: the keys with their calls, then a bar per item with its nodes in colours."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib import resources

from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.format import count, duration
from agentos.outputs.report.facts import UNAVAILABLE, headline, plain, tick_label

# All sizes are in SVG units: the whole picture, its left and right columns, a lane, its bar, the space at the top.
WIDTH, LABELS, STATES, LANE, BAR, TOP = 1040, 118, 118, 22, 14, 44
MAX_ITEMS = 500
PAUSES = (SpanKind.PAUSED, SpanKind.SUSPENDED)
"""Spans in which the items stand still; the run's other spans concern the keys, whose calls in flight continue."""
STATE_STYLES = {"approved": "good", "needs revision": "warn", "failed": "failed", "killed": "failed"}
MAX_TICKS = 10
TICK_STEPS = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)
"""Round intervals between ticks, in seconds; beyond the last one, it is doubled repeatedly."""
COLOURS = 8
PATTERNS = (
    '<pattern id="tl-wait" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="5" height="5"/><line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern>'
    '<pattern id="tl-rest" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<line class="resting" x1="0" y1="0" x2="0" y2="7"/></pattern>'
)


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps times from 0 to `seconds` to positions from `left` to `right`."""

    seconds: float
    left: float
    right: float

    def x(self, seconds: float) -> float:
        share = min(1.0, max(0.0, seconds / self.seconds)) if self.seconds > 0 else 0.0
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """Round times, few enough to be legible."""
        step = next((step for step in TICK_STEPS if self.seconds / step <= MAX_TICKS), TICK_STEPS[-1])
        while self.seconds / step > MAX_TICKS:
            step *= 2
        return [number * step for number in range(int(self.seconds / step) + 1)]


def render_svg(record: RunRecord) -> str:
    """An SVG document, which can also be embedded in a page."""
    items, keys = list(record.timeline.items.values())[:MAX_ITEMS], list(record.timeline.keys.values())
    below = TOP + LANE * len(keys) + 36
    bottom = below + LANE * len(items)
    legend, height = _legend(_nodes(record), bottom + 18)
    seconds = max(record.timeline.last - record.timeline.began, 0.1)
    axis = Axis(seconds, LABELS, WIDTH - STATES)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-labelledby="tl-title tl-desc">',
            f'<title id="tl-title">{escape("Timeline of " + headline(record))}</title>',
            f'<desc id="tl-desc">{escape(describe_timeline(record))}</desc>',
            f"<style>{_style()}</style><defs>{PATTERNS}</defs>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *_ticks(axis, bottom),
            f'<text class="strong" x="8" y="{TOP - 14}">Keys</text>',
            *_key_states(record, axis, below - 30),
            *_keys(record, keys, axis, TOP),
            f'<text class="strong" x="8" y="{below - 8}">Items</text>',
            *_pauses(record, axis, below - 8, bottom),
            *_items(record, items, axis, below),
            *legend,
            "</svg>",
        ]
    )


def describe_timeline(record: RunRecord) -> str:
    """The picture in words, for those who cannot see it."""
    timeline = record.timeline
    total = duration(max(0.0, timeline.last - timeline.began))
    waits = [span for lane in timeline.items.values() for span in lane.of(SpanKind.WAIT)]
    outages = [span for lane in timeline.keys.values() for span in lane.of(*UNAVAILABLE)]
    hidden = len(timeline.items) - MAX_ITEMS
    parts = [
        f"The calls of {count(len(timeline.keys), 'key')}; below, {count(len(timeline.items), 'item')} in {total}, one bar "
        "each with its nodes in colours.",
        f"{count(len(waits), 'wait')} for a key, {duration(sum(span.seconds(timeline.last) for span in waits))} in total.",
        f"Keys were unavailable {count(len(outages), 'time')}.",
        f"Only the first {MAX_ITEMS} items are drawn." if hidden > 0 else "",
        "The tables give the same in figures.",
    ]
    return " ".join(part for part in parts if part)


def _style() -> str:
    return resources.files("agentos.outputs.report").joinpath("picture.css").read_text("utf-8")


def _nodes(record: RunRecord) -> dict[str, str]:
    """Each node's CSS class, in the order of node names."""
    names = {span.label for lane in record.timeline.items.values() for span in lane.of(SpanKind.NODE)}
    return {name: f"n{number % COLOURS}" for number, name in enumerate(sorted(names))}


def _ticks(axis: Axis, bottom: float) -> Iterator[str]:
    for seconds in axis.ticks():
        x = axis.x(seconds)
        yield f'<line class="tick" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text class="quiet mid" x="{x:.1f}" y="{TOP - 14}">{tick_label(seconds)}</text>'


def _key_states(record: RunRecord, axis: Axis, bottom: float) -> Iterator[str]:
    """The background of the keys: when every slot was in use, every key was limited, or a provider failed."""
    for span in record.timeline.run.spans:
        if span.kind not in PAUSES:
            style = "full" if span.kind is SpanKind.EXHAUSTED else "limited"
            yield _bar(record, span, axis, style, (TOP - 8, bottom - TOP + 8))


def _pauses(record: RunRecord, axis: Axis, top: float, bottom: float) -> Iterator[str]:
    """The background of the items: when the run was paused or suspended."""
    for span in record.timeline.run.of(*PAUSES):
        yield _bar(record, span, axis, "pause", (top, bottom - top))


def _items(record: RunRecord, lanes: list[Lane], axis: Axis, top: int) -> Iterator[str]:
    colours = _nodes(record)
    for number, lane in enumerate(lanes):
        y = top + number * LANE
        row = record.stats.rows.get(lane.name)
        yield f'<g><text x="8" y="{y + 12}">{escape(_shortened_label(lane.name))}</text>'
        for span in lane.layers():
            style = {
                SpanKind.ATTEMPT: "work",
                SpanKind.NODE: colours.get(span.label, "n0"),
                SpanKind.RETRY: "again",
            }.get(span.kind, "url(#tl-wait)")
            slim = span.kind in (SpanKind.ATTEMPT, SpanKind.RETRY)
            yield _bar(record, span, axis, style, (y + 4, 6) if slim else (y, BAR))
        state = record.status_of(row) if row else ""
        yield (
            f'<text class="{STATE_STYLES.get(state, "quiet")}" x="{WIDTH - STATES + 10}" y="{y + 12}">{escape(state)}'
            "</text></g>"
        )


def _keys(record: RunRecord, lanes: list[Lane], axis: Axis, top: int) -> Iterator[str]:
    for number, lane in enumerate(lanes):
        y = top + number * LANE
        calls = lane.of(SpanKind.CALL, SpanKind.REFUSED, SpanKind.FAILED)
        yield f'<g><text x="8" y="{y + 12}">{escape(_shortened_label(lane.name))}</text>'
        for span in lane.of(*UNAVAILABLE):
            yield _bar(record, span, axis, "url(#tl-rest)", (y, BAR))
        for span in calls:
            style = "call" if span.kind is SpanKind.CALL else "refused"
            yield _bar(record, span, axis, style, (y + 3, BAR - 6))
        yield f'<text class="quiet" x="{WIDTH - STATES + 10}" y="{y + 12}">{count(len(calls), "call")}</text></g>'


def _bar(record: RunRecord, span: Span, axis: Axis, style: str, extent: tuple[float, float]) -> str:
    """A span as a rectangle with a tooltip; `style` is a CSS class or a pattern, `extent` its top and height."""
    timeline = record.timeline
    began, ended = span.began - timeline.began, span.until(timeline.last) - timeline.began
    x, width = axis.x(began), max(axis.x(ended) - axis.x(began), 1.2)
    fill = f'fill="{style}"' if style.startswith("url") else f'class="{style}"'
    return (
        f'<rect {fill} x="{x:.1f}" y="{extent[0]}" width="{width:.1f}" height="{extent[1]}" rx="1.5">'
        f"<title>{escape(_tooltip(span, began, ended))}</title></rect>"
    )


def _tooltip(span: Span, began: float, ended: float) -> str:
    name = plain(span.label) if span.kind is SpanKind.NODE else span.kind.value
    details = f" ({plain(span.label)})" if span.label and span.kind is not SpanKind.NODE else ""
    unfinished = "" if span.ended is not None else ", not over"
    return f"{name}{details}: {duration(ended - began)}, from {tick_label(round(began, 1))}{unfinished}"


def _legend(nodes: dict[str, str], top: float) -> tuple[list[str], int]:
    """The legend, wrapped to the width, and the height at which it ends."""
    entries = [(plain(name), f'class="{colour}"') for name, colour in nodes.items()]
    entries += [
        ("worker starting", 'class="work"'),
        ("waiting for a key", 'fill="url(#tl-wait)"'),
        ("call", 'class="call"'),
        ("refused or failed call", 'class="refused"'),
        ("key unavailable", 'fill="url(#tl-rest)"'),
        ("pool exhausted, calls wait", 'class="full"'),
        ("all keys limited, or provider failing", 'class="limited"'),
        ("run paused", 'class="pause"'),
    ]
    drawn, x, y = [], 8.0, top
    for name, fill in entries:
        width = 30 + 7.2 * len(name)
        if x + width > WIDTH and x > 8:
            x, y = 8.0, y + LANE
        drawn.append(f'<rect {fill} x="{x:.1f}" y="{y}" width="12" height="12"/>')
        drawn.append(f'<text class="quiet" x="{x + 17:.1f}" y="{y + 10}">{escape(name)}</text>')
        x += width
    return drawn, int(y + LANE + 4)


def _shortened_label(name: str) -> str:
    shown = plain(name)
    return shown if len(shown) <= 15 else f"{shown[:14]}…"
