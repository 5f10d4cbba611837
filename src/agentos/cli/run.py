"""`agentos run`, `lld-workflow`, `issue-workflow`."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentos.cli.offering import complete_pending, labels, offering, workflows
from agentos.cli.words import Duration, Workers, capped
from agentos.core.bounds import DEFAULT_PARALLEL, DISPLAYS, MAX_PARALLEL, REVIEWS

HELP = {
    "lld": "Turn issues into reviewed low-level designs (docs/lld/active/).",
    "issue": "Turn briefs (ideas/active/) into filed issues.",
}
EXAMPLES = """\b
Examples:
  {name} --all --parallel              every pending item, three at a time
  {name} --all -j 5 --timeout 45m      five at a time, 45 minutes an item
  {name} 42 43 40-45 --dry-run         what would run, and why; starts nothing
  {name} --all --offline               no key, no network: the built-in model
  {name} --failed                      those that the last run left failed
  {name} --fresh 42                    item 42 from the beginning
  {name} --all --label ui --limit 5    the first five labelled ui
  {name} --all --max-iterations 3      at most three reviews an item
  {name} --all --retries 0             never try a crashed item again
  {name} --all --max-wait 10m          give up when no key comes back in ten minutes
  {name} --all --budget 5              stop, resumable, before it costs over five dollars
  {name} --all --review draft          every draft waits for a person: agentos review
  {name} --all --display plain         lines only, no footer
  {name} --all --json                  one JSON event a line on stdout
  {name} --all --repo ../shop          another project

\b
Exit codes: 0 every item reached a verdict or waits for a person; 1 some item failed; 2 usage; 3 no project or home;
4 no usable key; 5 nothing matches; 75 stopped for quota or budget; 130, 143, 129 interrupted.
After anything but 0, the same command goes on where it stopped.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """The flags as they were given."""

    items: tuple[str, ...]
    all: bool
    label: tuple[str, ...]
    limit: int | None
    failed: bool
    fresh: bool
    parallel: int | None
    dry_run: bool
    offline: bool
    max_iterations: int | None
    timeout: float | None
    retries: int | None
    max_wait: float | None
    budget: float | None
    review: str | None
    display: str | None
    json: bool
    repo: Path | None


def options() -> list[click.Parameter]:
    positive = click.IntRange(min=1)
    return [
        click.Argument(["items"], nargs=-1, metavar="[ITEM]...", shell_complete=complete_pending),
        click.Option(["--all"], is_flag=True, help="Every pending item."),
        click.Option(
            ["--label"],
            multiple=True,
            shell_complete=offering(labels),
            help="Only items with this label; may be repeated.",
        ),
        click.Option(["--limit"], type=positive, help="At most so many items."),
        click.Option(["--failed"], is_flag=True, help="Only those that the last run left failed."),
        click.Option(
            ["--fresh"],
            is_flag=True,
            help="Drop the checkpoints of the selected items and start over.",
        ),
        click.Option(
            ["--parallel", "-j"],
            type=Workers(),
            is_flag=False,
            flag_value=str(DEFAULT_PARALLEL),
            help=f"Workers side by side: without a number {DEFAULT_PARALLEL}, at most {MAX_PARALLEL}. Not given: 1.",
        ),
        click.Option(
            ["--dry-run", "-n"],
            is_flag=True,
            help="List what would run and why; start nothing.",
        ),
        click.Option(
            ["--offline"],
            is_flag=True,
            help="No key, no network: the built-in model server answers.",
        ),
        click.Option(
            ["--max-iterations"],
            type=positive,
            help="At most so many reviews an item (5).",
        ),
        click.Option(
            ["--timeout"],
            type=Duration(),
            help="For a whole item, waiting for keys aside (30m).",
        ),
        click.Option(
            ["--retries"],
            type=click.IntRange(min=0),
            help="For errors that can pass (2).",
        ),
        click.Option(
            ["--max-wait"],
            type=Duration(),
            help="For a key to come back; then exit 75 (1h).",
        ),
        click.Option(
            ["--budget"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="USD",
            help="Stop, resumable, before a call that would pass it.",
        ),
        click.Option(
            ["--review"],
            type=click.Choice(REVIEWS),
            help="Park items for a person at their draft, their verdict, or both (none).",
        ),
        click.Option(
            ["--display"],
            type=click.Choice(DISPLAYS),
            help="A footer that stays (live), lines (plain), or only what to type next (none).",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="One JSON event a line on stdout, people's text on stderr.",
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The project's folder (this one).",
        ),
    ]


_BELOW_ZERO = re.compile(r"(?:^| )(?:--parallel[ =]|-j ?)(-\d+)(?: |$)")


class RunCommand(click.Command):
    """Takes `--parallel -1` for a wrong number of workers, not for an option called -1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if found := _BELOW_ZERO.search(" ".join(args)):
            Workers().convert(found[1], None, ctx)
        return super().parse_args(ctx, args)


def workflow_command(workflow: str) -> click.Command:
    name = f"{workflow}-workflow"
    return RunCommand(
        name,
        params=options(),
        help=HELP[workflow],
        epilog=EXAMPLES.format(name=name),
        callback=lambda **words: execute(workflow, Words(**words), name),
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
        },
    )


def _run(workflow: str, **words: Any) -> int:
    return execute(workflow, Words(**words), f"agentos run {workflow}")


command = RunCommand(
    "run",
    params=[click.Argument(["workflow"], shell_complete=offering(workflows)), *options()],
    help="Carry items through a workflow: lld or issue.",
    epilog=EXAMPLES.format(name="agentos run lld"),
    callback=_run,
    context_settings={"max_content_width": 100},
)


def execute(workflow: str, words: Words, name: str) -> int:
    try:
        return _execute(workflow, words, name)
    except KeyboardInterrupt:
        # While everything is loaded: a run that has begun deals with it itself.
        click.echo(f"\n[COORDINATOR] Stopped, nothing is lost. Go on with: {_command(name)}", err=True)
        return 130


def _execute(workflow: str, words: Words, name: str) -> int:
    from agentos.app import run_workflow
    from agentos.core.plan import Selection
    from agentos.request import Request
    from agentos.settings import Flags, read_settings

    _check_selection(words, name)
    parallel = None if words.parallel is None else capped(words.parallel)
    settings = read_settings(
        Flags(
            words.repo,
            words.max_iterations,
            words.timeout,
            words.retries,
            words.max_wait,
            parallel,
            words.budget,
            words.review,
            words.display,
        )
    )
    selection = Selection(
        everything=words.all,
        words=tuple(_relative(word, settings.project) for word in words.items),
        labels=words.label,
        limit=words.limit,
        failed=words.failed,
        fresh=words.fresh,
    )
    request = Request(
        workflow,
        selection,
        settings,
        _command(name),
        words.offline,
        words.json,
        display=settings.display,
    )
    if words.dry_run:
        return _dry_run(request)
    return run_workflow(request, lambda text: click.echo(text, err=words.json))


def _check_selection(words: Words, name: str) -> None:
    if words.all or words.items or words.label or words.failed:
        return
    if words.parallel is not None:
        raise click.UsageError(
            f"nothing is selected: {words.parallel} was read as the number of workers. "
            f"For item {words.parallel} type: {name} {words.parallel} --parallel; "
            f"for every pending item: {name} --all --parallel {min(words.parallel, MAX_PARALLEL)}"
        )
    raise click.UsageError(
        f"nothing is selected: name items ({name} 42), or take every pending one ({name} --all)"
    )


def _relative(word: str, project: Path) -> str:
    """A file's path as the project knows it; other words stay."""
    if "/" in word or word.endswith(".md"):
        place = Path(word).absolute()
        if place.is_relative_to(project):
            return str(place.relative_to(project))
    return word


def _command(name: str) -> str:
    words = sys.argv[1:]
    skip = 2 if name.startswith("agentos run") else 0
    return shlex.join([*name.split(), *words[skip:]])


def _dry_run(request: Any) -> int:
    from agentos.app import plan_run
    from agentos.outlook import look_ahead
    from agentos.outputs.prospect import forecast_json, forecast_lines
    from agentos.outputs.unplanned import explain_nothing, explain_parked

    def say(text: str) -> None:
        click.echo(text, err=request.json)

    plan = plan_run(request, say)
    if not plan.entries:
        return explain_nothing(plan, say)
    say(f"[COORDINATOR] Dry run mode - would process {len(plan.entries)} items:")
    width = max(len(entry.item.id) for entry in plan.entries)
    # In one piece each: they may be thousands.
    lines = [f"  - {entry.item.id:<{width}}  {entry.reason}: {entry.item.title}" for entry in plan.entries]
    say("\n".join(lines))
    if request.json:
        click.echo("\n".join(json.dumps(_planned(entry), ensure_ascii=False) for entry in plan.entries))
    for candidate in plan.elsewhere:
        say(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    explain_parked(plan, say)
    found = look_ahead(plan, request.workflow, request.settings, offline=request.offline)
    if request.json:
        click.echo(json.dumps(forecast_json(found), ensure_ascii=False))
    for line in (*forecast_lines(found), "To start it, leave out --dry-run."):
        say(" ".join(("[COORDINATOR]", line)))
    return 0


def _planned(entry: Any) -> dict[str, str]:
    return {"type": "Planned", "item": entry.item.id, "reason": entry.reason, "title": entry.item.title}
