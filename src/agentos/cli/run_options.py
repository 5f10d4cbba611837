"""The words that a run understands."""

from dataclasses import dataclass
from pathlib import Path

import click

from agentos.cli.param_types import Duration, ImpliedInt, Workers
from agentos.cli.shell_complete import complete_pending, completer, labels
from agentos.core.constants import DEFAULT_PARALLEL, DISPLAYS, MAX_PARALLEL, REVIEWS

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
class RunOptions:
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
    trust: bool


def options() -> list[click.Parameter]:
    positive = click.IntRange(min=1)
    return [
        click.Argument(["items"], nargs=-1, metavar="[ITEM]...", shell_complete=complete_pending),
        click.Option(["--all"], is_flag=True, help="Every pending item."),
        click.Option(
            ["--label"],
            multiple=True,
            shell_complete=completer(labels),
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
            flag_value=ImpliedInt(DEFAULT_PARALLEL),
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
        click.Option(
            ["--trust"],
            is_flag=True,
            help="Use all settings of the project's agentos.toml for this run (see: agentos trust).",
        ),
    ]
