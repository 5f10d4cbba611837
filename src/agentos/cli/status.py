"""`agentos status`: shows what a run did or is doing."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs
from agentos.cli.json_output import print_json

if TYPE_CHECKING:
    from agentos.core.run_state.run_stats import ItemStats, RunStats
    from agentos.outputs.item_list import ItemList


def _run(
    run_id: str | None,
    run_option: str | None,
    as_json: bool,
    failed: bool,
    verbose: bool,
    fleet: bool,
) -> int:
    if fleet:
        from agentos.cli.fleet_views import show_fleet

        return show_fleet(run_id or run_option, as_json, failed, verbose)
    from agentos.cli.find_run import find_run
    from agentos.config.settings import current_folder
    from agentos.core.protocol.events import RunSuspended
    from agentos.outputs.colour import painter
    from agentos.outputs.footer import progress_rows
    from agentos.outputs.format import clock
    from agentos.outputs.item_list import reason_lines, redo_lines, tries
    from agentos.outputs.resume_command import path_to_project
    from agentos.outputs.summary import as_json as summary_json
    from agentos.outputs.summary import usage_text
    from agentos.storage.runs import is_alive, load_run_stats, stopped_process

    run = find_run(run_id or run_option)
    stats, alive, stopped_pid = load_run_stats(run), is_alive(run), stopped_process(run)
    if stopped_pid and stats.suspended_at is None:
        stats.handle(RunSuspended(), stats.last)  # stopped by SIGSTOP, which the run cannot journal
    if as_json:
        state = {
            **summary_json(stats),
            "alive": alive,
            "paused": stats.paused is not None,
            "suspended": stopped_pid is not None,
        }
        print_json(state)
        return 0
    if stats.started is None:
        click.echo(f"Run {run.name} has written nothing yet.")
        return 0
    now, paint = time.time(), painter()
    click.echo(
        f"Run {run.name} ({stats.started.workflow}) {_state(stats, alive)}, started {clock(stats.began, now)}"
    )
    click.echo(f"  project {stats.started.project}")
    width = max((len(item) for item in stats.rows), default=0)
    at = stats.item_clock(now) if alive else stats.last
    found = _item_list(stats, alive, failed, verbose)
    path, waiting = path_to_project(stats.started, current_folder()), stats.waiting_for_keys
    if found.counts:
        click.echo(paint(f"  {', '.join(found.counts)} (list them: agentos status -v)"), color=True)
    for row in found.rows:
        text = _item_text(row, alive, at, row in waiting, tries(row, stats.reviewing))
        lines = [f"  {row.item:<{width}}  {paint(text)}{_error(row)}"]
        lines += [f"    {line}" for line in reason_lines(row, path)]
        click.echo("\n".join(lines), color=True)
    more = [f"  {line}" for line in redo_lines(found.rows)]
    more += ["  No item failed."] if failed and not found.rows else []
    more += [f"  {usage_text(stats)}"] if stats.usage.calls else []
    more += [paint("\n".join(progress_rows(stats, now)))] if alive else []
    for line in (*more, *_other_live_runs(run, run_id or run_option)):
        click.echo(line, color=True)
    click.echo(_next_step(run, stats, alive, stopped_pid))
    return 0


def _other_live_runs(shown: Path, named: str | None) -> list[str]:
    """The runs in progress besides the one shown, unless that was asked for by name."""
    from agentos.cli.find_run import runs_folder
    from agentos.storage.journal import read_first_record
    from agentos.storage.runs import is_alive, run_folders

    lines = []
    for run in [] if named else run_folders(runs_folder()):
        if run.name != shown.name and is_alive(run):
            started = read_first_record(run)
            what = f"{started.get('workflow')}, {started.get('project')}"
            lines.append(f"Also in progress: {run.name} ({what}); show it: agentos status {run.name}")
    return lines


def _item_list(stats: "RunStats", alive: bool, failed: bool, verbose: bool) -> "ItemList":
    from agentos.core.protocol.results import Ending
    from agentos.outputs.item_list import ItemList, item_list

    if failed:
        return ItemList((), tuple(stats.with_ending(Ending.FAILED, Ending.FAILED_IN_OTHER_RUN)))
    rows = tuple(stats.rows.values())
    return ItemList((), rows) if verbose else item_list(rows, alive=alive)


def _item_text(row: "ItemStats", alive: bool, at: float, waits: bool, tried: str) -> str:
    from agentos.outputs.format import duration, tokens

    state = "waiting for a key" if waits and alive else row.status_in(alive=alive)
    if state in ("waiting", "not started") and not row.usage.calls:
        return state
    where = f" at {row.node}" if row.running and row.node else ""
    return f"{state + where:<31} {tried:<10} {duration(row.age(at)):>7} {tokens(row.usage.tokens):>6} tokens"


def _error(row: "ItemStats") -> str:
    from agentos.core.text.line_assembler import one_line

    return f"  {one_line(row.outcome.error)}" if row.outcome and row.outcome.error else ""


def _state(stats: "RunStats", alive: bool) -> str:
    if stats.ended is not None:
        return "has ended"
    if not alive:
        return "was killed"
    if stats.suspended_at is not None:
        return "is suspended (Ctrl-Z)"
    auto = " (auto)" if stats.auto_workers else ""
    return "is paused" if stats.paused else f"is running with up to {stats.workers} at a time{auto}"


def _next_step(run: Path, stats: "RunStats", alive: bool, stopped_pid: int | None) -> str:
    from agentos.cli.find_run import completion_text, resume_hint, wake_hint
    from agentos.cli.waiting import parked_by, waiting_lines
    from agentos.config.settings import current_folder
    from agentos.core.protocol.results import Ending
    from agentos.outputs.resume_command import retry_command
    from agentos.outputs.summary import continue_command, not_redone

    here = current_folder()
    resume = continue_command(stats, here)
    waiting = [] if alive else waiting_lines(stats, here)
    if not alive and stats.ended is None:
        return "\n".join([*waiting, *not_redone(stats), f"It was killed. Resume with: {resume}"])
    if stats.ended is not None and stats.ended.exit_code:
        following = f"Resume with: {resume}"
        if stats.started and stats.ended.exit_code == 1 and stats.with_ending(Ending.FAILED):
            following = f"Retry the failed items: {retry_command(stats.started, here)}"
        text = f"It ended with exit code {stats.ended.exit_code}. {following}"
        return "\n".join([*waiting, *not_redone(stats), text])
    if stopped_pid:
        return f"Wake it: {wake_hint(stopped_pid)}"
    if alive:
        return (
            f"Resume with: {resume_hint(run)}"
            if stats.paused
            else "Watch it: agentos watch; follow one item: agentos logs -f ITEM; control it: agentos pause, set, stop"
        )
    if parked_by(stats):
        return "\n".join(waiting or ["Later runs have continued the parked items. List them: agentos runs"])
    return "\n".join([f"{completion_text(stats).capitalize()}. Earlier runs: agentos runs", *waiting])


command = click.Command(
    "status",
    help="Show what the last run did or is doing; needs no running process.",
    params=[
        click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
        click.Option(["--run", "run_option"], metavar="RUN", help="Same as the argument."),
        click.Option(
            ["--json", "as_json"], is_flag=True, help="Print one JSON object, always with all items."
        ),
        click.Option(["--failed"], is_flag=True, help="List only the failed items, each with its reason."),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            help="List every item; above 20, most are only counted otherwise.",
        ),
        click.Option(["--fleet"], is_flag=True, help="Show the project's items on the fleet instead."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos status\n  agentos status 20261115T221503Z --json",
)
