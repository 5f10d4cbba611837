"""The end of a run, in words and as data."""

import json
from typing import Any

from agentos.core import events
from agentos.core.results import Ending, Outcome, Verdict
from agentos.core.tally import Row, Tally
from agentos.core.wire import pack
from agentos.outputs.again import Here, documents, go_on, review, try_failed
from agentos.outputs.words import count, dollars, duration, tokens, why_stopped


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


def summary_lines(tally: Tally, here: Here = None) -> list[str]:
    """The last lines of a run, for whoever is `here`; the very last says what to type next."""
    finished, failed = tally.ending(Ending.FINISHED), tally.ending(Ending.FAILED)
    lines = _table(tally)
    seconds = tally.ended.seconds if tally.ended else 0.0
    lines += [
        "Execution complete:",
        f"  Total: {len(tally.rows)}",
        f"  Succeeded: {len(finished)}",
        f"  Failed: {len(failed)}",
        f"  Duration: {duration(seconds)}",
        *([f"  Verdicts: {_verdicts(tally)}"] if tally.reviewing else []),
        f"  Items: {_items(tally)}",
        *([] if tally.keyless else _spent(tally, here)),
    ]
    return lines + next_steps(tally, here)


def _spent(tally: Tally, here: Here) -> list[str]:
    return [
        f"  Keys: {_keys(tally)}",
        f"  Tokens: {tally.usage.input_tokens:,} in, {tally.usage.output_tokens:,} out, "
        f"{count(tally.usage.calls, 'call')}; cost {dollars(tally.cost)}",
        *(
            f"  Parked: {row.item} waits for a person: {_review(tally, here, row.item)}"
            for row in _parked(tally)
        ),
        f"  Coordination overhead: {_overhead(tally)}",
    ]


def next_steps(tally: Tally, here: Here = None) -> list[str]:
    """What to type next, after whatever happened."""
    command = go_on(tally.started, here) if tally.started else ""
    if tally.stopped is not None:
        why = why_stopped(tally.stopped, tally.stopped_at)
        first = [] if tally.stopped.reason.startswith("SIG") else [f"Stopped: {why}"]
        cure = "agentos keys" if tally.ended and tally.ended.exit_code == 4 else ""
        check = [f"See what is wrong with the keys: {cure}"] if cure else []
        more = ", with more to spend," if tally.stopped.reason == "budget" and not tally.cost else ""
        return [*first, *check, f"Everything is saved. Go on{more} with: {command}"]
    if limited := [row.outcome.error for row in tally.ending(Ending.INTERRUPTED) if row.outcome]:
        return [f"Stopped: {limited[0]}", f"Everything is saved. Go on with: {command}"]
    failed = tally.ending(Ending.FAILED)
    if failed:
        logs = f"See why: agentos logs {failed[0].item}"
        again = try_failed(tally.started, here) if tally.started else ""
        return [logs, f"Try the failed ones again: {again}"]
    if _parked(tally):
        return [f"Decide on what waits for you: {_review(tally, here)}", f"Then go on with: {command}"]
    return [_look(tally, here)]


def overhead(tally: Tally) -> float | None:
    """Per cent of the workers' time that was neither a model's call nor waiting for a key; None without any."""
    lived = sum(row.seconds for row in tally.rows.values())
    called = sum(row.calls for row in tally.rows.values())
    waited = tally.ended.waited if tally.ended else 0.0
    return max(0.0, 100 * (lived - called - waited) / lived) if lived else None


def overhead_words(tally: Tally) -> str:
    found = overhead(tally)
    return "?" if found is None else f"{found:.1f} %"


def as_json(tally: Tally) -> dict[str, Any]:
    """summary.json."""
    return {
        "run": tally.started.run if tally.started else None,
        "workflow": tally.started.workflow if tally.started else None,
        "project": tally.started.project if tally.started else None,
        "began": tally.began,
        "exit_code": tally.ended.exit_code if tally.ended else None,
        "seconds": tally.ended.seconds if tally.ended else None,
        "waited": tally.ended.waited if tally.ended else None,
        "refusals": tally.refusals,
        "overhead_percent": _rounded(overhead(tally), 2),
        "warm_up": _rounded(tally.warm_up, 3),
        "usage": pack(tally.usage),
        "cost": tally.cost,
        "items": [_row_json(row) for row in tally.rows.values()],
    }


def summary_text(tally: Tally) -> str:
    return json.dumps(as_json(tally), indent=2, ensure_ascii=False) + "\n"


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "item": row.item,
        "state": row.word,
        "rounds": row.round,
        "seconds": round(row.seconds, 3),
        "usage": pack(row.usage),
        "cost": row.cost,
        "attempts": row.attempts,
        "outcome": pack(row.outcome) if row.outcome else None,
    }


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def _overhead(tally: Tally) -> str:
    if tally.warm_up is None:
        return "? (no worker came up)"
    return f"{overhead_words(tally)} (first worker after {duration(tally.warm_up)})"


def _finished(outcome: Outcome, seconds: float) -> str:
    if outcome.error:
        return f"Finished before: {outcome.verdict or 'done'}"
    if outcome.verdict is None:
        return f"Done in {duration(seconds)}" + (f": {outcome.result}" if outcome.result else "")
    word = "Approved" if outcome.verdict is Verdict.APPROVED else "Needs revision"
    return f"{word} after {count(outcome.rounds, 'review')} in {duration(seconds)}: {outcome.result}"


def _table(tally: Tally) -> list[str]:
    """A line for every item that was begun."""
    width = max((len(row.item) for row in tally.rows.values()), default=0)
    reviewed = tally.reviewed
    rows = [row for row in tally.rows.values() if row.attempts]
    tries = [count(row.round, "round") if reviewed else count(row.attempts, "attempt") for row in rows]
    spent = _timed if tally.keyless else _paid
    return [
        f"{row.item:<{width}}  {row.word:<14}  {spent(row, tried)}{_why(row)}".rstrip()
        for row, tried in zip(rows, tries, strict=True)
    ]


def _timed(row: Row, tried: str) -> str:
    return f"{tried:<10} {duration(row.seconds):>7}"


def _paid(row: Row, tried: str) -> str:
    return f"{tried:<9} {duration(row.seconds):>6} {tokens(row.usage.tokens):>5} tokens  cost {dollars(row.cost)}"


def _why(row: Row) -> str:
    return f"  {row.outcome.error}" if row.outcome and row.outcome.error else ""


def _verdicts(tally: Tally) -> str:
    approved, revise = (
        tally.verdicts(Verdict.APPROVED),
        tally.verdicts(Verdict.NEEDS_REVISION),
    )
    verb = "needs" if len(revise) == 1 else "need"
    return f"{len(approved)} approved, {len(revise)} {verb} revision"


def _items(tally: Tally) -> str:
    parts = [f"{len(tally.ending(Ending.FINISHED))} completed"]
    stopped = tally.ending(Ending.INTERRUPTED)
    groups = {
        "failed": tally.ending(Ending.FAILED),
        "waiting for a person": tally.ending(Ending.PARKED),
        "interrupted": [row for row in stopped if row.attempts],
        "not begun": [row for row in stopped if not row.attempts],
        "on another run": tally.ending(Ending.ELSEWHERE),
    }
    parts += [f"{len(rows)} {word} ({_names(rows)})" for word, rows in groups.items() if rows]
    return ", ".join(parts)


def _parked(tally: Tally) -> list[Row]:
    return tally.ending(Ending.PARKED)


def _review(tally: Tally, here: Here, *items: str) -> str:
    return review(tally.started, here, *items) if tally.started else "agentos review"


def _names(rows: list[Row]) -> str:
    """All of a few, the first and the last of many."""
    names = [row.item for row in rows]
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:5])} ... {names[-1]}"


def _keys(tally: Tally) -> str:
    waited = tally.ended.waited if tally.ended else 0.0
    return f"{count(tally.refusals, 'refusal')} (429), {duration(waited)} waited for keys"


def _look(tally: Tally, here: Here) -> str:
    results = [row.outcome.result for row in tally.rows.values() if row.outcome and row.outcome.result]
    if not results or not tally.started:
        return "See them all: agentos status"
    return f"Read them: ls {documents(tally.started, here, results)}"
