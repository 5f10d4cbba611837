"""The options of `agentos run`, `lld-workflow` and `issue-workflow`."""

from dataclasses import dataclass
from pathlib import Path

import click

from agentos.cli.param_types import Dollars, Duration, ImpliedInt, Workers
from agentos.cli.shell_complete import complete_pending, completer, labels
from agentos.core.constants import DEFAULT_PARALLEL, DISPLAYS, MAX_PARALLEL, REVIEWS

EXAMPLES = """\b
Examples:
  {name} --all --parallel              every pending item, three at a time
  {name} --all -j 5 --timeout 45m      five at a time, 45 minutes per item
  {name} 42 43 40-45 --dry-run         what would run, and why; starts nothing
  {name} --all --offline               no key, no network: the built-in model server
  {name} --failed                      the items that failed in the last run
  {name} --fresh 42                    item 42 from the beginning
  {name} --all --label ui --limit 5    the first five items labelled ui
  {name} --all --max-iterations 3      at most three reviews per item
  {name} --all --retries 0             never retry a crashed item
  {name} --all --max-wait 10m          stop if no key is usable again within ten minutes
  {name} --all --budget 5              stop (resumable) before the cost exceeds five dollars
  {name} --all --review draft          park every draft for a person: agentos review
  {name} 42 --context docs/api.md      show the models this file whole
  {name} --all --env TAVILY_API_KEY    pass this variable to the workers
  {name} --all --display plain         lines only, no footer
  {name} --all --on-done 'notify-send "agentos: $AGENTOS_APPROVED of $AGENTOS_TOTAL approved"'
  {name} --all --json                  one JSON event per line on stdout
  {name} --all --repo ../shop          another project
  {name} --all --page                  watch and control it in a browser
  {name} --all --fleet                 on the machines of a fleet

\b
Exit codes: 0 every item reached a verdict or is waiting for a person; 1 an item failed; 2 usage error;
3 no project or unusable home; 4 no usable key; 5 nothing matches; 75 stopped for quota or budget;
130, 143, 129 interrupted. After any code but 0, the same command resumes where the run stopped.
"""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The flags as click parsed them."""

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
    verbose: bool
    display: str | None
    on_done: str | None
    context: tuple[str, ...]
    env: tuple[str, ...]
    json: bool
    repo: Path | None
    trust: bool
    page: bool = False
    fleet: bool = False
    detach: bool = False


def run_parameters() -> list[click.Parameter]:
    positive = click.IntRange(min=1)
    return [
        click.Argument(["items"], nargs=-1, metavar="[ITEM]...", shell_complete=complete_pending),
        click.Option(["--all"], is_flag=True, help="Select every pending item."),
        click.Option(
            ["--label"],
            multiple=True,
            shell_complete=completer(labels),
            help="Only items with this label; repeatable.",
        ),
        click.Option(["--limit"], type=positive, help="Select at most this many items."),
        click.Option(["--failed"], is_flag=True, help="Only the items that failed in the last run."),
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
            help=f"Number of parallel workers, at most {MAX_PARALLEL} (max_parallel). auto: as many as keys and machine can use. Without a number: {DEFAULT_PARALLEL}. Default: 1.",
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
            help="Maximum number of reviews per item (5).",
        ),
        click.Option(
            ["--timeout"],
            type=Duration(),
            help="Time limit per item, not counting waits for keys (30m).",
        ),
        click.Option(
            ["--retries"],
            type=click.IntRange(min=0),
            help="Retries per item after transient errors (2).",
        ),
        click.Option(
            ["--max-wait"],
            type=Duration(),
            help="How long to wait for a usable key before exiting with 75 (1h).",
        ),
        click.Option(
            ["--budget"],
            type=Dollars(),
            metavar="USD",
            help="Stop (resumable) before a call that would exceed it.",
        ),
        click.Option(
            ["--review"],
            type=click.Choice(REVIEWS),
            help="Park items for a person after their draft, their verdict or both (none).",
        ),
        click.Option(
            ["--display"],
            type=click.Choice(DISPLAYS),
            help="Fixed footer (live), plain lines (plain) or only the next command (none); auto checks the terminal.",
        ),
        click.Option(
            ["--on-done"],
            metavar="CMD",
            help="Run this command line when the run has ended, with its figures in AGENTOS_ variables.",
        ),
        click.Option(
            ["--context"],
            multiple=True,
            metavar="PATH",
            help="Show this file of the project whole to the models; repeatable (see: agentos context).",
        ),
        click.Option(
            ["--env"],
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Environment variable to pass to the workers, such as the key of a tool; repeatable.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="One JSON event per line on stdout; text for people on stderr.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            help="Show errors of a workflow's own code with their whole traceback.",
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (default: the current folder or a parent).",
        ),
        click.Option(
            ["--trust"],
            is_flag=True,
            help="Use all settings of the project's agentos.toml for this run (see: agentos trust).",
        ),
        click.Option(
            ["--page"],
            is_flag=True,
            help="Serve the page alongside the run and print its address (see: agentos page).",
        ),
        click.Option(
            ["--fleet"],
            is_flag=True,
            help="Hand the items to the fleet, follow them and collect their documents (see: agentos worker).",
        ),
        click.Option(
            ["--detach"],
            is_flag=True,
            help="With --fleet: return after submitting; the same command without it follows and collects.",
        ),
    ]
