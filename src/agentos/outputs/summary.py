"""The summary of a run, as text and as JSON."""

import json
from typing import Any

from agentos.core.protocol import events
from agentos.core.protocol.codec import pack
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.run_state.run_stats import TAKEN, ItemStats, RunStats
from agentos.outputs.format import (
    count,
    dollars,
    duration,
    name_list,
    number_ranges,
    seen_from,
    stop_reason,
    tokens,
    tokens_in_and_out,
)
from agentos.outputs.item_list import MANY, item_list, reason_lines, redo_lines, shown_result, tries
from agentos.outputs.resume_command import (
    Here,
    is_on_fleet,
    path_to_project,
    project_command,
    redo_command,
    result_folders,
    resume_command,
    retry_command,
    review_command,
    with_double_budget,
)

MIN_MEASURED_WORK = 10.0  # seconds of all workers together; below it, the overhead is noise
MIN_MEASURED_CALL = 0.2  # seconds per call on average; only the offline server answers faster, no model does
MAX_ADDRESSES = 3


def ending_lines(event: events.ItemEnded, path: str = "") -> list[str]:
    """The lines that report how an item ended; `path` leads from the reader's folder to the project."""
    outcome = event.outcome
    match outcome.ending:
        case Ending.FAILED:
            return [
                f"FAILED: {outcome.error}",
                *(f"  {seen_from(path, line)}" for line in outcome.details),
            ]
        case Ending.FINISHED:
            return [_finished(outcome, event.seconds, path)]
        case Ending.HELD_BY_OTHER_RUN | Ending.FAILED_IN_OTHER_RUN:
            return [f"Skipped: {outcome.error}"]
        case Ending.FINISHED_BY_OTHER_RUN:
            return [f"Skipped: {outcome.error}" + (f" ({outcome.verdict})" if outcome.verdict else "")]
        case Ending.INTERRUPTED:
            if not event.attempts:
                return []
            return [
                f"Interrupted at {event.node}: checkpointed"
                if event.node
                else "Interrupted before its first checkpoint"
            ]
        case Ending.PARKED:
            return [f"Parked at {event.node}: waiting for a person"]


def summary_lines(stats: RunStats, here: Here = None) -> list[str]:
    """The final lines of a run; the last one says what to type next in the folder `here`."""
    finished, failed = stats.with_ending(Ending.FINISHED), stats.with_ending(Ending.FAILED)
    lines = _table(stats, here)
    seconds = stats.ended.seconds if stats.ended else 0.0
    lines += [
        "Execution stopped:" if stats.with_ending(Ending.INTERRUPTED) else "Execution complete:",
        f"  Total: {len(stats.rows)}",
        f"  Succeeded: {len(finished)}",
        f"  Failed: {len(failed)}",
        f"  Duration: {duration(seconds)}",
        *([f"  Verdicts: {_verdicts(stats)}"] if stats.reviewing else []),
        f"  Items: {_items(stats)}",
        *_other_runs(stats),
        *([f"  Skipped: {skipped}"] if (skipped := skipped_text(stats, here)) else []),
        *([] if stats.keyless else _usage_lines(stats, here)),
    ]
    return lines + next_steps(stats, here)


def _usage_lines(stats: RunStats, here: Here) -> list[str]:
    return [
        f"  Keys: {_keys(stats)}",
        f"  {usage_text(stats)}",
        *_cuts(stats),
        *_parked_lines(stats, here),
        *([] if overhead(stats) is None else [f"  Coordination overhead: {_overhead(stats)}"]),
    ]


def usage_text(stats: RunStats) -> str:
    """`Tokens: 12,000 in (9,000 read from the cache), 300 out, 4 calls; cost $0.02`."""
    calls = count(stats.usage.calls, "call")
    return f"Tokens: {tokens_in_and_out(stats.usage)}, {calls}; cost {dollars(stats.cost)}"


def _cuts(stats: RunStats) -> list[str]:
    if not stats.cuts:
        return []
    items = [row.item for row in stats.rows.values() if row.cuts]
    return [
        f"  Cut: {count(stats.cuts, 'answer')} ({', '.join(items)}), no token within call_timeout; "
        f"{stats.cut_tokens:,} generated tokens are counted"
    ]


def _parked_lines(stats: RunStats, here: Here) -> list[str]:
    parked = stats.with_ending(Ending.PARKED)
    if len(parked) > MANY:
        return [f"  Parked: {len(parked)} items are waiting for a person: {_review(stats, here)}"]
    return [
        f"  Parked: {row.item} is waiting for a person: {_review(stats, here, row.item)}" for row in parked
    ]


def next_steps(stats: RunStats, here: Here = None) -> list[str]:
    """Why the run stopped, if it did, and what to type next."""
    command = continue_command(stats, here)
    unfinished = [
        row for row in stats.rows.values() if row.outcome is None or row.outcome.ending is Ending.INTERRUPTED
    ]
    if stats.stopped is not None and unfinished:
        reason = f"Stopped: {stop_reason(stats.stopped, stats.stopped_at)}"
        lines = [] if stats.stopped.reason.startswith("SIG") else [reason]
        if stats.ended and stats.ended.exit_code == 4:
            lines.append("See what is wrong with the keys: agentos keys")
        higher = ", with a higher budget," if _is_budget_too_low(stats) else ""
        return [*lines, *not_redone(stats), f"Everything is saved. Resume{higher} with: {command}"]
    if limited := [row.outcome.error for row in stats.with_ending(Ending.INTERRUPTED) if row.outcome]:
        return [
            f"Stopped: {limited[0]}",
            *not_redone(stats),
            f"Everything is saved. Resume with: {command}",
        ]
    failed = stats.with_ending(Ending.FAILED) or stats.with_ending(Ending.FAILED_IN_OTHER_RUN)
    if failed:
        retry = retry_command(stats.started, here) if stats.started else ""
        return [f"See why: agentos logs {failed[0].item}", f"Retry the failed items: {retry}"]
    if stats.with_ending(Ending.PARKED):
        following = (
            "They continue then; collect their documents with"
            if stats.started and is_on_fleet(stats.started)
            else "Then resume with"
        )
        return [f"Decide on the waiting items: {_review(stats, here)}", f"{following}: {command}"]
    if any(row.has_workspace for row in stats.rows.values()):
        return ["See what the items changed: agentos worktrees"]
    results = [row.outcome.result for row in stats.rows.values() if row.outcome and row.outcome.result]
    if not results or not stats.started:
        return ["See all items: agentos status"]
    return _read_results(stats.started, here, results)


def continue_command(stats: RunStats, here: Here) -> str:
    """What to type to continue the run."""
    return "; ".join(continue_commands(stats, here))


def continue_commands(stats: RunStats, here: Here) -> list[str]:
    """The command that continues the run, and another that redoes what `--fresh` did not reach."""
    if stats.started is None:
        return []
    left = _not_redone(stats)
    done = (Ending.FINISHED, *TAKEN)
    others = [row for row in stats.rows.values() if not (row.outcome and row.outcome.ending in done)]
    commands = [resume_command(stats.started, here)] if len(others) > len(left) or not left else []
    if left:
        commands.append(redo_command(stats.started, here, _numbers(left)))
    return [with_double_budget(each) for each in commands] if _is_budget_too_low(stats) else commands


def _is_budget_too_low(stats: RunStats) -> bool:
    """Whether the budget was too small for even one call, so that the same command would stop again."""
    return stats.stopped is not None and stats.stopped.reason == "budget" and not stats.cost


def not_redone(stats: RunStats) -> list[str]:
    """Names the items that `--fresh` did not reach."""
    left = _not_redone(stats)
    if not left:
        return []
    return [
        f"Not redone: {_names(left)}; redo {'it' if len(left) == 1 else 'them'} with --fresh {_numbers(left)}"
    ]


def _not_redone(stats: RunStats) -> list[ItemStats]:
    """The items that `--fresh` did not reach. Without the flag, the same command would consider them finished.

    Once its first node has started, an item is resumed, because its checkpoint records the redo.
    """
    redone = set(stats.started.redone) if stats.started else set()
    return [
        row
        for row in stats.rows.values()
        if row.item in redone
        and not row.node
        and (row.outcome is None or row.outcome.ending is Ending.INTERRUPTED)
    ]


def _numbers(rows: list[ItemStats]) -> str:
    return number_ranges(row.item.partition("-")[2] for row in rows)


def _read_results(started: events.RunStarted, here: Here, results: list[str]) -> list[str]:
    """How to read the results: folders are listed, the addresses of filed issues are printed."""
    filed = [result for result in results if "://" in result]
    files = [result for result in results if "://" not in result]
    lines = [f"Read the results: ls {result_folders(started, here, files)}"] if files else []
    if filed:
        shown = filed if len(filed) <= MAX_ADDRESSES else sorted({url.rpartition("/")[0] for url in filed})
        lines.insert(0, f"Read the filed {'issue' if len(filed) == 1 else 'issues'}: {' '.join(shown)}")
    return lines


def overhead(stats: RunStats) -> float | None:
    """Per cent of the workers' time, after their start-up, spent neither in model calls nor waiting for keys.

    None where the number would mean nothing: in a short run; after Ctrl-Z, when calls in flight went on without us;
    in a run without model calls of its own (`agentos exec`); with `--offline`, or a server that answers at once.
    """
    if stats.was_suspended or stats.started is None or not stats.started.keys or not stats.usage.calls:
        return None
    if stats.started.offline:
        return None
    total = sum(row.seconds - row.start_up for row in stats.rows.values())
    calling = sum(row.call_seconds for row in stats.rows.values())
    waited = stats.ended.waited_seconds if stats.ended else 0.0
    if total < MIN_MEASURED_WORK or calling / stats.usage.calls < MIN_MEASURED_CALL:
        return None
    return max(0.0, 100 * (total - calling - waited) / total)


def overhead_text(stats: RunStats) -> str:
    percent = overhead(stats)
    return "not measured" if percent is None else f"{percent:.1f} %"


def as_json(stats: RunStats) -> dict[str, Any]:
    """The content of summary.json."""
    return {
        "run": stats.started.run if stats.started else None,
        "workflow": stats.started.workflow if stats.started else None,
        "project": stats.started.project if stats.started else None,
        "began": stats.began,
        "exit_code": stats.ended.exit_code if stats.ended else None,
        "seconds": stats.ended.seconds if stats.ended else None,
        "waited_seconds": stats.ended.waited_seconds if stats.ended else None,
        "refusals": stats.refusals,
        "cuts": stats.cuts,
        "overhead_percent": _rounded(overhead(stats), 2),
        "warm_up_seconds": _rounded(stats.warm_up, 3),
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
        "waits_for_key": row.waits_for_key,
        "rounds": row.round,
        "seconds": round(row.seconds, 3),
        "usage": pack(row.usage),
        "cost": row.cost,
        "attempts": row.attempts,
        "cuts": row.cuts,
        "outcome": pack(row.outcome) if row.outcome else None,
    }


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def _overhead(stats: RunStats) -> str:
    return f"{overhead_text(stats)} (first worker after {duration(stats.warm_up or 0.0)})"


def _finished(outcome: Outcome, seconds: float, path: str) -> str:
    result = shown_result(outcome.result, path)
    if outcome.earlier_attempt:
        return f"Already finished by an earlier attempt: {outcome.verdict or 'done'}"
    if outcome.verdict is None:
        return f"Done in {duration(seconds)}" + (f": {result}" if result else "")
    verdict = "Approved" if outcome.verdict is Verdict.APPROVED else "Needs revision"
    return f"{verdict} after {count(outcome.rounds, 'review')} in {duration(seconds)}: {result}"


def _table(stats: RunStats, here: Here) -> list[str]:
    """One line for each item that this run worked on."""
    path = path_to_project(stats.started, here) if stats.started else ""
    width = max((len(row.item) for row in stats.rows.values()), default=0)
    own = [row for row in stats.rows.values() if row.attempts and not row.is_taken]
    found = item_list(own)
    rows, counts = found.rows, [f"{', '.join(found.counts)} (list them: agentos status -v)"]
    figures = _time_figures if stats.keyless else _usage_figures
    lines = counts if found.counts else []
    for row in rows:
        tried = tries(row, stats.reviewing)
        lines.append(f"{row.item:<{width}}  {row.status:<14}  {figures(row, tried)}{_error(row)}".rstrip())
        lines += [f"  {line}" for line in reason_lines(row, path)]
    return lines + redo_lines(rows)


def _time_figures(row: ItemStats, tried: str) -> str:
    return f"{tried:<10} {duration(row.seconds):>7}"


def _usage_figures(row: ItemStats, tried: str) -> str:
    return f"{tried:<9} {duration(row.seconds):>6} {tokens(row.usage.tokens):>5} tokens  cost {dollars(row.cost)}"


def _error(row: ItemStats) -> str:
    return f"  {row.outcome.error}" if row.outcome and row.outcome.error else ""


def _verdicts(stats: RunStats) -> str:
    approved, revise = (
        stats.with_verdict(Verdict.APPROVED),
        stats.with_verdict(Verdict.NEEDS_REVISION),
    )
    verb = "needs" if len(revise) == 1 else "need"
    return f"{len(approved)} approved, {len(revise)} {verb} revision"


def _items(stats: RunStats) -> str:
    parts = [f"{len(stats.with_ending(Ending.FINISHED))} completed"]
    stopped = stats.with_ending(Ending.INTERRUPTED)
    groups = {
        "failed": stats.with_ending(Ending.FAILED),
        "waiting for a person": stats.with_ending(Ending.PARKED),
        "interrupted": [row for row in stopped if row.attempts],
        "not started": [row for row in stopped if not row.attempts],
    }
    parts += [f"{len(rows)} {word} ({_names(rows)})" for word, rows in groups.items() if rows]
    return ", ".join(parts)


def _other_runs(stats: RunStats) -> list[str]:
    """What other runs, or people, did with this run's items; the lines above count only what this run did itself."""
    groups = {
        "finished": stats.with_ending(Ending.FINISHED_BY_OTHER_RUN),
        "failed": stats.with_ending(Ending.FAILED_IN_OTHER_RUN),
        "in progress": stats.with_ending(Ending.HELD_BY_OTHER_RUN),
    }
    parts = [f"{len(rows)} {word} ({_names(rows)})" for word, rows in groups.items() if rows]
    return [f"  Elsewhere: {', '.join(parts)}"] if parts else []


def skipped_text(stats: RunStats, here: Here = None) -> str:
    """The files that look like items but are not; empty if there are none."""
    files = stats.started.skipped if stats.started else ()
    if not files or not stats.started:
        return ""
    names, doctor = ", ".join(files[:5]), project_command(stats.started, here, "doctor")
    names += " ..." if len(files) > 5 else ""
    return f"{count(len(files), 'file')} that cannot be an item ({names}); see: {doctor}"


def _review(stats: RunStats, here: Here, *items: str) -> str:
    return review_command(stats.started, here, *items) if stats.started else "agentos review"


def _names(rows: list[ItemStats]) -> str:
    return name_list([row.item for row in rows])


def _keys(stats: RunStats) -> str:
    waited = stats.ended.waited_seconds if stats.ended else 0.0
    return f"{count(stats.refusals, 'refusal')} (429), {duration(waited)} waited for keys"
