"""Runs, items and keys as JSON for the page, taken from the run's record."""

import time

from agentos.config.settings import environment
from agentos.core.errors import ServiceAway, UnsupportedFormat
from agentos.core.protocol.codec import pack
from agentos.core.protocol.results import Ending
from agentos.core.run_state.eta import estimate
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.run_stats import ItemStats, RunStats
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.report.comparison import comparison_json
from agentos.outputs.report.facts import UNAVAILABLE, key_facts, plain
from agentos.outputs.resume_command import resume_command, retry_command, review_command
from agentos.outputs.run_json import run_json, unreadable_run_json
from agentos.outputs.run_log import LogLine
from agentos.outputs.summary import continue_command, next_steps, not_redone
from agentos.page.run_view import RunView, RunViews

Json = dict[str, object]
UNKNOWN_FOLDER = ""
"""The page does not know the folder in which the user will type a command, so each command names its folder."""
MAX_LANES = 200
FLEET_LIMITS = {
    "pause": "A submission cannot be paused: it shares its machines with others. Stop it, checkpointed, and submit the same "
    "items again later; or stop agentos worker on the machines.",
    "workers": "A submission has no workers of its own: each machine runs as many items as its agentos worker --parallel says. "
    "Start agentos worker on more machines, or again with another number.",
    "keys": "The keys are the gateway's. On its machine, type: agentos keys disable NAME, enable NAME or cooldown NAME.",
}
"""What a fleet cannot do from the page, and what to do instead."""


def runs_json(views: RunViews) -> Json:
    """Every run, live ones first, then newest first."""
    rows = [row for run in views.ids() if (row := _run_row(views, run)) is not None]
    rows.sort(key=lambda row: row["state"] in ("ended", "killed", "other version"))
    return {"now": time.time(), "runs": rows, "problem": plain(views.problem) or None}


def _run_row(views: RunViews, run: str) -> Json | None:
    try:
        if totals := views.totals(run):
            more: Json = {"folder": shown_path(totals.started.project) if totals.started else ""}
            more |= {"running": 0, "seconds_left": None, "tokens": totals.usage.tokens}
            return {**run_json(run, totals, alive=False), **more}
        view = views.find(run)
    except UnsupportedFormat:
        return unreadable_run_json(run)
    except ServiceAway:
        return None
    if view is None or view.record.stats.started is None:
        return None
    if view.is_fleet and not view.record.stats.rows:
        return None  # it only joined the items of others
    with view.lock:
        stats, started = view.record.stats, view.record.stats.started
        left = estimate(stats, time.time())
        return {
            **run_json(view.id, stats, view.record.alive),
            "state": run_state(view),
            "folder": shown_path(started.project if started else ""),
            "running": len(stats.running) if view.record.alive else 0,
            "seconds_left": left.seconds_left if view.record.alive else None,
            "tokens": stats.usage.tokens,
        }


def shown_path(path: str) -> str:
    """A folder below the user's own as `~/...`."""
    own = environment().get("HOME", "").rstrip("/")
    return f"~{path[len(own) :]}" if own and path.startswith(f"{own}/") else path


def run_state(view: RunView) -> str:
    """`running`, `paused`, `suspended`, `stopping`, `ended` or `killed`."""
    stats = view.record.stats
    if stats.ended:
        return "ended"
    if not view.record.alive:
        return "killed"
    if view.stopped_pid or stats.suspended_at is not None:
        return "suspended"
    if stats.stopped:
        return "stopping"
    return "paused" if stats.paused else "running"


def run_view_json(view: RunView) -> Json:
    """One run with all its items, as of this `offset` in its journal."""
    with view.lock:
        titles = view.record.titles
        return {
            **state_json(view, -1),
            "titles": {item: plain(title) for item, title in titles.items()},
        }


def state_json(view: RunView, since: int) -> Json:
    """The current state of the run, with the items that changed after the offset `since`."""
    with view.lock:
        rows = view.record.stats.rows
        changed = rows if since < 0 else [item for item in view.rows_changed_since(since) if item in rows]
        return {
            "now": time.time(),
            "offset": view.offset,
            "run": _summary(view),
            "keys": _keys(view.record),
            "rows": [item_json(view.record, rows[item]) for item in changed],
        }


def _summary(view: RunView) -> Json:
    record, stats = view.record, view.record.stats
    now = time.time()
    if stats.started is None:
        return {"run": view.id, "state": run_state(view), "items": 0, "next": []}
    left = estimate(stats, now)
    return {
        **run_json(view.id, stats, record.alive),
        "state": run_state(view),
        "description": record.state,
        "folder": shown_path(stats.started.project),
        "command": plain(stats.started.command),
        "offline": stats.started.offline,
        "running": len(stats.running) if record.alive else 0,
        "is_fleet": view.is_fleet,
        "limits": FLEET_LIMITS if view.is_fleet else {},
        "problem": plain(view.problem) or None,
        "workers": stats.workers,
        "auto_workers": stats.auto_workers,
        "seconds_left": left.seconds_left if record.alive else None,
        "expected_cost": left.cost if record.alive else None,
        "usage": pack(stats.usage),
        "refusals": stats.refusals,
        "paced_until": stats.paced_until or None,
        "last": stats.last,
        "breakers": [
            _span(span) for span in record.timeline.run.of(SpanKind.BREAKER_OPEN) if span.ended is None
        ],
        "alerts": [
            _span(span)
            for span in record.timeline.run.of(SpanKind.EXHAUSTED, SpanKind.LIMITED)
            if span.ended is None and record.alive
        ],
        "next": _next_steps(view),
        "unreadable_lines": record.unread,
    }


def _next_steps(view: RunView) -> list[str]:
    """What to type next; nothing while the run continues by itself."""
    stats = view.record.stats
    if stats.started is None or view.record.alive:
        return []
    if view.is_fleet:
        return _fleet_next_steps(stats)
    if stats.ended is None:
        return [
            *not_redone(stats),
            f"It was killed. Resume with: {continue_command(stats, UNKNOWN_FOLDER)}",
        ]
    if stats.with_ending(Ending.PARKED) and not stats.ended.exit_code:
        return [
            f"Waiting for a person. Decide here, or with: {review_command(stats.started, UNKNOWN_FOLDER)}",
            f"Then resume with: {resume_command(stats.started, UNKNOWN_FOLDER)}",
        ]
    return next_steps(stats, UNKNOWN_FOLDER)


def _fleet_next_steps(stats: RunStats) -> list[str]:
    """Commands to type in the project, whose folder a submission does not know."""
    assert stats.started
    if stats.with_ending(Ending.INTERRUPTED):
        return [
            f"It was stopped, and everything is saved. To resume, type in the project: {stats.started.command}"
        ]
    if stats.with_ending(Ending.FAILED):
        return [
            f"Retry the failed items here, or in the project with: {retry_command(stats.started, UNKNOWN_FOLDER)}"
        ]
    return ["Write its documents into the project with: agentos collect"]


def item_json(record: RunRecord, row: ItemStats) -> Json:
    lane = record.timeline.items.get(row.item)
    return {
        "item": row.item,
        "state": record.status_of(row),
        "node": plain(row.node),
        "round": row.round,
        "running": row.running and record.alive,
        "since": row.since,
        "seconds": round(row.seconds if row.running and record.alive else record.seconds_of(row), 3),
        "attempts": row.attempts or (len(lane.of(SpanKind.ATTEMPT)) if lane else 0),
        "calls": row.usage.calls,
        "tokens": row.usage.tokens,
        "cache_read_tokens": row.usage.cache_read_tokens,
        "cache_write_tokens": row.usage.cache_write_tokens,
        "cost": row.cost,
        "quiet": row.quiet_level,
        "wait": _wait(lane) if lane and record.alive else None,
        "keys": [record.stats.held[lease] for lease in row.leases if lease in record.stats.held],
        "error": plain(row.outcome.error) if row.outcome and row.outcome.error else None,
        "result": plain(row.outcome.result) if row.outcome and row.outcome.result else None,
        "retryable": bool(row.outcome and row.outcome.ending in (Ending.FAILED, Ending.FAILED_IN_OTHER_RUN)),
    }


def _wait(lane: Lane) -> Json | None:
    """What the item waits for, and since when."""
    for span in reversed(lane.spans):
        if span.ended is None and span.kind in (SpanKind.WAIT, SpanKind.RETRY):
            return {"reason": span.kind.value, "detail": plain(span.label), "since": span.began}
    return None


def _keys(record: RunRecord) -> list[Json]:
    held = list(record.stats.held.values())
    found = []
    for facts, lane in zip(key_facts(record), record.timeline.keys.values(), strict=True):
        outage = next((span for span in reversed(lane.of(*UNAVAILABLE)) if _is_open(span)), None)
        found.append(
            {
                "key": facts.key,
                "calls": facts.calls,
                "refusals": facts.refusals,
                "failures": facts.failures,
                "in_use": held.count(lane.name),
                "seconds_used": round(facts.used, 3),
                "state": outage.kind.value if outage else "usable",
                "until": outage.ended if outage else None,
                "reason": plain(outage.label) if outage else "",
            }
        )
    return found


def _is_open(span: Span) -> bool:
    return span.ended is None or span.ended > time.time()


def timeline_json(view: RunView, first: int, count: int) -> Json:
    """The lanes of `count` items, starting with number `first`, and those of all keys."""
    with view.lock:
        timeline, alive = view.record.timeline, view.record.alive
        lanes = list(timeline.items.values())[first : first + min(count, MAX_LANES)]
        nodes = sorted({span.label for lane in timeline.items.values() for span in lane.of(SpanKind.NODE)})
        return {
            "began": timeline.began,
            "last": time.time() if alive else timeline.last,
            "first": first,
            "total": len(timeline.items),
            "nodes": [plain(node) for node in nodes],
            "items": [_lane(lane) for lane in lanes],
            "keys": [_lane(lane) for lane in list(timeline.keys.values())[:MAX_LANES]],
            "run": _lane(timeline.run),
        }


def _lane(lane: Lane) -> Json:
    return {"name": plain(lane.name), "spans": [_span(span) for span in lane.layers()]}


def _span(span: Span) -> Json:
    return {
        "kind": span.kind.value,
        "label": plain(span.label),
        "began": span.began,
        "ended": span.ended,
    }


def log_json(lines: list[LogLine]) -> list[Json]:
    return [
        {"at": line.at, "item": line.item, "level": line.level.value, "text": line.text} for line in lines
    ]


def compare_json(first: RunView, second: RunView) -> Json:
    # Always lock in the same order: two requests that each hold one lock would otherwise deadlock.
    earlier, later = sorted((first, second), key=lambda view: view.id)
    with earlier.lock, later.lock:
        return comparison_json(first.record, second.record)
