"""`agentos runs`: lists, compares and prunes past runs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs
from agentos.cli.json_output import check_json_position, json_option, print_json
from agentos.cli.param_types import Age, ByteSize
from agentos.core.constants import DAY

if TYPE_CHECKING:
    from agentos.core.protocol.events import RunStarted
    from agentos.core.run_state.run_stats import RunStats


def _list(limit: int, as_json: bool = False) -> int:
    from agentos.cli.find_run import runs_folder
    from agentos.core.errors import UnsupportedFormat
    from agentos.outputs.colour import painter
    from agentos.outputs.format import count, duration
    from agentos.storage.runs import is_alive, load_run_stats, run_folders

    folders, paint = run_folders(runs_folder()), painter()
    if as_json:
        shown = [found for folder in folders[:limit] if (found := _run_json(folder))]
        print_json({"runs": shown, "older": max(0, len(folders) - limit)})
        return 0
    if not folders:
        click.echo("No runs yet. Start one with: lld-workflow --all")
        return 0
    for folder in folders[:limit]:
        try:
            stats = load_run_stats(folder)
        except UnsupportedFormat:
            click.echo(f"{folder.name:<20} (written by another version of agentos)")
            continue
        if stats.started is None:
            continue
        end = stats.ended
        state = f"exit {end.exit_code}" if end else ("running" if is_alive(folder) else "killed")
        seconds = end.seconds if end else stats.last - stats.began
        click.echo(
            f"{folder.name:<20} {stats.started.workflow:<6} {paint(f'{state:<9}')} {duration(seconds):>8}  "
            f"{count(len(stats.rows), 'item')}: {paint(_outcomes(stats))}  {stats.started.project}{_program(stats.started)}",
            color=True,
        )
    if len(folders) > limit:
        click.echo(
            f"({len(folders) - limit} older runs not shown; list all: agentos runs --limit {len(folders)})"
        )
    click.echo(
        "Inspect one: agentos status RUN, agentos report RUN; compare two: agentos runs compare", err=True
    )
    return 0


def _program(started: "RunStarted") -> str:
    """The command of `agentos exec`, shortened: its runs are named by a hash of it."""
    from agentos.core.planning.exec_command import is_exec
    from agentos.core.text.line_assembler import one_line
    from agentos.core.text.values import shortened

    return f"  {shortened(one_line(started.command))}" if is_exec(started.workflow) else ""


def _run_json(folder: Path) -> dict[str, object] | None:
    """None if the run has written nothing yet."""
    from agentos.core.errors import UnsupportedFormat
    from agentos.outputs.run_json import run_json, unreadable_run_json
    from agentos.storage.runs import is_alive, load_run_stats

    try:
        stats = load_run_stats(folder)
    except UnsupportedFormat:
        return unreadable_run_json(folder.name)
    return run_json(folder.name, stats, is_alive(folder)) if stats.started else None


def _outcomes(stats: "RunStats") -> str:
    from agentos.core.protocol.results import Ending, Verdict

    stopped = stats.with_ending(Ending.INTERRUPTED)
    always = (
        {
            "approved": stats.with_verdict(Verdict.APPROVED),
            "need revision": stats.with_verdict(Verdict.NEEDS_REVISION),
        }
        if stats.reviewing
        else {"done": stats.with_ending(Ending.FINISHED)}
    )
    always["failed"] = stats.with_ending(Ending.FAILED)
    if_any = {
        "waiting for a person": stats.with_ending(Ending.PARKED),
        "interrupted": [row for row in stopped if row.attempts],
        "not started": [row for row in stopped if not row.attempts],
        "finished by other runs": stats.with_ending(Ending.FINISHED_BY_OTHER_RUN),
        "failed in other runs": stats.with_ending(Ending.FAILED_IN_OTHER_RUN),
        "held by other runs": stats.with_ending(Ending.HELD_BY_OTHER_RUN),
    }
    if len(always.get("need revision", ())) == 1:
        always = {
            "needs revision" if word == "need revision" else word: rows for word, rows in always.items()
        }
    groups = {**always, **{word: rows for word, rows in if_any.items() if rows}}
    return ", ".join(f"{len(rows)} {word}" for word, rows in groups.items())


def _compare(first: str | None, second: str | None, as_json: bool) -> int:
    from agentos.cli.find_run import find_run
    from agentos.outputs.report.comparison import comparison, comparison_json
    from agentos.storage.runs import load_run_record

    newer = find_run(second)
    older = find_run(first) if first else _previous_run(newer)
    if older == newer:
        raise click.UsageError(
            f"cannot compare {older.name} with itself: name two runs (list them: agentos runs)"
        )
    records = load_run_record(older), load_run_record(newer)
    if as_json:
        print_json(comparison_json(*records))
        return 0
    for line in comparison(*records):
        click.echo(line)
    return 0


def _previous_run(run: Path) -> Path:
    """The last run before it of the same workflow on the same project."""
    from agentos.cli.find_run import runs_folder
    from agentos.core.errors import NothingMatches
    from agentos.storage.runs import previous_run, run_folders

    if found := previous_run(run_folders(runs_folder()), run):
        return found
    raise NothingMatches(
        f"no run before {run.name} of the same workflow on the same project; name two runs (list them: agentos runs)"
    )


def _prune(keep: int | None, older_than: float | None, max_size: int | None, dry_run: bool) -> int:
    """Apply the given limits, or without any the retention policy that every run applies."""
    from agentos.cli.find_run import runs_folder
    from agentos.config.settings import Flags, read_settings
    from agentos.outputs.format import count
    from agentos.storage.runs import RetentionPolicy, old_runs, prune, run_folders

    options = {"runs": keep, "bytes": max_size, "seconds": older_than}
    given = {name: value for name, value in options.items() if value is not None}
    unlimited = {name: float("inf") for name in options}
    default = RetentionPolicy(runs=read_settings(Flags()).keep_runs)
    policy = RetentionPolicy(**{**unlimited, **given}) if given else default  # type: ignore[arg-type]
    old = old_runs(runs_folder(), policy, time.time())
    for run in old:
        click.echo(
            f"{run.path.name:<20} {format_size(run.bytes):>9}  {run.seconds / DAY:.1f} days old: {run.reason}"
        )
    left = len(run_folders(runs_folder())) - len(old)
    total = f"{count(len(old), 'run')}, {format_size(sum(run.bytes for run in old))}"
    if dry_run:
        click.echo(f"Would remove {total} and keep {left}. To remove them, leave out --dry-run.")
        return 0
    gone = prune(runs_folder(), policy, time.time())
    for run in old:
        if run.path.exists():
            click.echo(f"Could not remove {run.path}: delete it by hand", err=True)
    click.echo(
        f"Removed {total}; kept {left}." if len(gone) == len(old) else f"Removed {count(len(gone), 'run')}."
    )
    return 0 if len(gone) == len(old) else 1


def format_size(number: int) -> str:
    """Format a size in decimal units: 512 B, 12.0 kB, 3.4 MB."""
    for unit, factor in (("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


@click.pass_context
def _default(ctx: click.Context, limit: int, as_json: bool) -> int:
    check_json_position(ctx, as_json)
    return _list(limit, as_json) if ctx.invoked_subcommand is None else 0


def _limit() -> click.Option:
    return click.Option(
        ["--limit"], type=click.IntRange(min=1), default=20, help="Show at most this many (20)."
    )


command = click.Group(
    "runs",
    help="List, compare and prune past runs, newest first; needs no running process.",
    invoke_without_command=True,
    params=[_limit(), json_option()],
    callback=_default,
    epilog="\b\nExamples:\n  agentos runs --limit 5\n  agentos runs compare\n  agentos runs prune --older-than 30d",
    commands={
        "list": click.Command(
            "list",
            help="List runs: id, workflow, how it ended, duration, results, project.",
            params=[_limit(), json_option()],
            callback=_list,
            epilog="\b\nExample:\n  agentos runs list --limit 5",
        ),
        "compare": click.Command(
            "compare",
            help="Compare two runs: time, calls, tokens, cost, verdicts, refusals. "
            "By default, B is the last run and A the one before B of the same workflow on the same project.",
            params=[
                click.Argument(["first"], required=False, metavar="[A]", shell_complete=complete_runs),
                click.Argument(["second"], required=False, metavar="[B]", shell_complete=complete_runs),
                json_option(),
            ],
            callback=_compare,
            epilog="\b\nExamples:\n  agentos runs compare\n  agentos runs compare 20261115T221503Z latest",
        ),
        "prune": click.Command(
            "prune",
            help="Remove old runs that exceed any of the given limits; without one, apply the limits that every run "
            "applies. Never removes a run in progress, or the newest run of a workflow on an existing project.",
            params=[
                click.Option(["--keep"], type=click.IntRange(min=1), metavar="N", help="Keep the newest N."),
                click.Option(["--older-than"], type=Age(), help="Remove older runs; for example 30d."),
                click.Option(
                    ["--max-size"], type=ByteSize(), help="Keep the newest runs that fit; for example 1GB."
                ),
                click.Option(
                    ["--dry-run", "-n"], is_flag=True, help="List what would be removed; remove nothing."
                ),
            ],
            callback=_prune,
            epilog="\b\nExamples:\n  agentos runs prune --keep 20 --dry-run\n  agentos runs prune --older-than 30d --max-size 1GB",
        ),
    },
)
