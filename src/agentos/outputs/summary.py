"""The end of a run, in words and as data."""

import json
from typing import Any

from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.run_state.run_stats import ItemStats, RunStats
from agentos.outputs.format import count, dollars, duration, tokens, why_stopped
from agentos.outputs.resume_command import Here, documents, resume_command, retry_command, review_command


def ending_lines(event: events.ItemEnded) -> list[str]:
    """What is said of one item at its end, on lines of its own."""
    outcome = event.outcome
    match outcome.ending:
        case Ending.FAILED:
            return [
                f"FAILED: {outcome.error}",
                *(f"  {line}" for line in outcome.details),
            ]
        case Ending.FINISHED:
            return [_finished(outcome, event.seconds)]
        case Ending.ELSEWHERE:
            return [f"Left alone: {outcome.error}"]
        case Ending.INTERRUPTED:
            if not event.attempts:
                return []
            return [
                f"Interrupted at {event.node}: checkpointed"
                if event.node
                else "Interrupted: it begins again the next time"
            ]
        case Ending.PARKED:
            return [f"Parked at {event.node}: waits for a person"]


def summary_lines(stats: RunStats, here: Here = None) -> list[str]:
    """The last lines of a run, for whoever is `here`; the very last says what to type next."""
    finished, failed = stats.ending(Ending.FINISHED), stats.ending(Ending.FAILED)
    lines = _table(stats)
    seconds = stats.ended.seconds if stats.ended else 0.0
    lines += [
        "Execution complete:",
        f"  Total: {len(stats.rows)}",
        f"  Succeeded: {len(finished)}",
        f"  Failed: {len(failed)}",
        f"  Duration: {duration(seconds)}",
        *([f"  Verdicts: {_verdicts(stats)}"] if stats.reviewing else []),
        f"  Items: {_items(stats)}",
        *([] if stats.keyless else _spent(stats, here)),
    ]
    return lines + next_steps(stats, here)


def _spent(stats: RunStats, here: Here) -> list[str]:
    return [
        f"  Keys: {_keys(stats)}",
        f"  Tokens: {stats.usage.input_tokens:,} in, {stats.usage.output_tokens:,} out, "
        f"{count(stats.usage.calls, 'call')}; cost {dollars(stats.cost)}",
        *(
            f"  Parked: {row.item} waits for a person: {_review(stats, here, row.item)}"
            for row in _parked(stats)
        ),
        f"  Coordination overhead: {_overhead(stats)}",
    ]


def next_steps(stats: RunStats, here: Here = None) -> list[str]:
    """What to type next, after whatever happened."""
    command = resume_command(stats.started, here) if stats.started else ""
    if stats.stopped is not None:
        why = why_stopped(stats.stopped, stats.stopped_at)
        first = [] if stats.stopped.reason.startswith("SIG") else [f"Stopped: {why}"]
        cure = "agentos keys" if stats.ended and stats.ended.exit_code == 4 else ""
        check = [f"See what is wrong with the keys: {cure}"] if cure else []
        more = ", with more to spend," if stats.stopped.reason == "budget" and not stats.cost else ""
        return [*first, *check, f"Everything is saved. Go on{more} with: {command}"]
    if limited := [row.outcome.error for row in stats.ending(Ending.INTERRUPTED) if row.outcome]:
        return [f"Stopped: {limited[0]}", f"Everything is saved. Go on with: {command}"]
    failed = stats.ending(Ending.FAILED)
    if failed:
        logs = f"See why: agentos logs {failed[0].item}"
        again = retry_command(stats.started, here) if stats.started else ""
        return [logs, f"Try the failed ones again: {again}"]
    if _parked(stats):
        return [f"Decide on what waits for you: {_review(stats, here)}", f"Then go on with: {command}"]
    return [_look(stats, here)]


def overhead(stats: RunStats) -> float | None:
    """Per cent of the workers' time that was neither a model's call nor waiting for a key; None without any."""
    lived = sum(row.seconds for row in stats.rows.values())
    called = sum(row.calls for row in stats.rows.values())
    waited = stats.ended.waited_seconds if stats.ended else 0.0
    return max(0.0, 100 * (lived - called - waited) / lived) if lived else None


def overhead_words(stats: RunStats) -> str:
    found = overhead(stats)
    return "?" if found is None else f"{found:.1f} %"


def as_json(stats: RunStats) -> dict[str, Any]:
    """summary.json."""
    return {
        "run": stats.started.run if stats.started else None,
        "workflow": stats.started.workflow if stats.started else None,
        "project": stats.started.project if stats.started else None,
        "began": stats.began,
        "exit_code": stats.ended.exit_code if stats.ended else None,
        "seconds": stats.ended.seconds if stats.ended else None,
        "waited": stats.ended.waited_seconds if stats.ended else None,
        "refusals": stats.refusals,
        "overhead_percent": _rounded(overhead(stats), 2),
        "warm_up": _rounded(stats.warm_up, 3),
        "usage": pack(stats.usage),
        "cost": stats.cost,
        "items": [_row_json(row) for row in stats.rows.values()],
    }


def summary_text(stats: RunStats) -> str:
    return json.dumps(as_json(stats), indent=2, ensure_ascii=False) + "\n"


def _row_json(row: ItemStats) -> dict[str, Any]:
    return {
        "item": row.item,
        "state": row.status,
        "rounds": row.round,
        "seconds": round(row.seconds, 3),
        "usage": pack(row.usage),
        "cost": row.cost,
        "attempts": row.attempts,
        "outcome": pack(row.outcome) if row.outcome else None,
    }


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def _overhead(stats: RunStats) -> str:
    if stats.warm_up is None:
        return "? (no worker came up)"
    return f"{overhead_words(stats)} (first worker after {duration(stats.warm_up)})"


def _finished(outcome: Outcome, seconds: float) -> str:
    if outcome.error:
        return f"Finished before: {outcome.verdict or 'done'}"
    if outcome.verdict is None:
        return f"Done in {duration(seconds)}" + (f": {outcome.result}" if outcome.result else "")
    word = "Approved" if outcome.verdict is Verdict.APPROVED else "Needs revision"
    return f"{word} after {count(outcome.rounds, 'review')} in {duration(seconds)}: {outcome.result}"


def _table(stats: RunStats) -> list[str]:
    """A line for every item that was begun."""
    width = max((len(row.item) for row in stats.rows.values()), default=0)
    reviewed = stats.reviewed
    rows = [row for row in stats.rows.values() if row.attempts]
    tries = [count(row.round, "round") if reviewed else count(row.attempts, "attempt") for row in rows]
    spent = _timed if stats.keyless else _paid
    return [
        f"{row.item:<{width}}  {row.status:<14}  {spent(row, tried)}{_why(row)}".rstrip()
        for row, tried in zip(rows, tries, strict=True)
    ]


def _timed(row: ItemStats, tried: str) -> str:
    return f"{tried:<10} {duration(row.seconds):>7}"


def _paid(row: ItemStats, tried: str) -> str:
    return f"{tried:<9} {duration(row.seconds):>6} {tokens(row.usage.tokens):>5} tokens  cost {dollars(row.cost)}"


def _why(row: ItemStats) -> str:
    return f"  {row.outcome.error}" if row.outcome and row.outcome.error else ""


def _verdicts(stats: RunStats) -> str:
    approved, revise = (
        stats.verdicts(Verdict.APPROVED),
        stats.verdicts(Verdict.NEEDS_REVISION),
    )
    verb = "needs" if len(revise) == 1 else "need"
    return f"{len(approved)} approved, {len(revise)} {verb} revision"


def _items(stats: RunStats) -> str:
    parts = [f"{len(stats.ending(Ending.FINISHED))} completed"]
    stopped = stats.ending(Ending.INTERRUPTED)
    groups = {
        "failed": stats.ending(Ending.FAILED),
        "waiting for a person": stats.ending(Ending.PARKED),
        "interrupted": [row for row in stopped if row.attempts],
        "not begun": [row for row in stopped if not row.attempts],
        "on another run": stats.ending(Ending.ELSEWHERE),
    }
    parts += [f"{len(rows)} {word} ({_names(rows)})" for word, rows in groups.items() if rows]
    return ", ".join(parts)


def _parked(stats: RunStats) -> list[ItemStats]:
    return stats.ending(Ending.PARKED)


def _review(stats: RunStats, here: Here, *items: str) -> str:
    return review_command(stats.started, here, *items) if stats.started else "agentos review"


def _names(rows: list[ItemStats]) -> str:
    """All of a few, the first and the last of many."""
    names = [row.item for row in rows]
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:5])} ... {names[-1]}"


def _keys(stats: RunStats) -> str:
    waited = stats.ended.waited_seconds if stats.ended else 0.0
    return f"{count(stats.refusals, 'refusal')} (429), {duration(waited)} waited for keys"


def _look(stats: RunStats, here: Here) -> str:
    results = [row.outcome.result for row in stats.rows.values() if row.outcome and row.outcome.result]
    if not results or not stats.started:
        return "See them all: agentos status"
    return f"Read them: ls {documents(stats.started, here, results)}"
