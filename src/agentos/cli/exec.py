"""`agentos exec`: runs any program once per item."""

import glob
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentos.cli.page import page_if_wanted
from agentos.cli.param_types import AGENT_NAMES, Dollars, Duration, Workers, passed_variables
from agentos.cli.trust import warn_held_back
from agentos.core.constants import DEFAULT_PARALLEL, DISPLAYS, MAX_PARALLEL

if TYPE_CHECKING:
    from agentos.core.planning.exec_command import WorkspaceKind
    from agentos.core.planning.items import Column
    from agentos.exec.agents import AgentChoice

EXAMPLES = """\b
Examples:
  agentos exec --items 'ideas/active/*.md' --parallel 3 -- my-agent --prompt-file {item}
  agentos exec 'docs/*.md' -j -- wc -w {item}          --items may be left out
  git ls-files '*.py' | agentos exec --items-from - -j 4 -- ./check.sh {item}
  agentos exec --items '*.md' --failed -- my-agent {item}     only items that failed last time
  agentos exec --items '*.md' --retries 5 --retry-on any --timeout 10m -- my-agent {item}
  agentos exec --items '*.md' --env GITHUB_TOKEN --joblog jobs.tsv -- my-agent {item}
  agentos exec --items '*.md' --dry-run -- my-agent {item}    list what would run; start nothing
  agentos exec --agent claude --worktree --items 'tasks/*.md' -j -- {item}
  agentos exec --agent codex 'src/*.py' -- --model gpt-5.4 "Add docstrings to {item}"

\b
Placeholders in the command: {item} (or {}), {id}, {name}, {stem}, {suffix}, {folder}, {number}, the columns of a table,
{gateway}; as in GNU parallel {.}, {/}, {//}, {/.}, {#}; also {item.stem} and so on. {{item}} is a literal {item}.
Without a placeholder, the item is appended as the last argument. The command is not run by a shell;
if you need one, write: sh -c '...' sh {item}.

\b
Exit codes of the program: 0 done, and not run again by the same command; 75 retry; any other: failed.
agentos exec itself exits with the same codes as agentos run.
"""


class ExecCommand(click.Command):
    """Passes everything after `--` to the program unchanged."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["agentos.program"] = tuple(args[end + 1 :])
        if end == len(args) and not {"-h", "--help"} & set(args):
            raise click.UsageError(
                "no command: expected -- and then the program, such as: agentos exec --items '*.md' -- wc -w {item}",
                ctx,
            )
        return super().parse_args(ctx, args[:end])


@click.pass_context
def _run(ctx: click.Context, /, **options: Any) -> int:
    from agentos.cli.worker_limit import limit_workers
    from agentos.config.project import working_folder
    from agentos.config.settings import Flags, read_settings
    from agentos.core.errors import NothingMatches
    from agentos.core.planning.plan import Selection
    from agentos.exec.builder import run_exec
    from agentos.exec.exec_plan import ExecRequest

    words: tuple[str, ...] = ctx.meta["agentos.program"]
    agent = _agent(options, words)
    if not words:
        raise click.UsageError("no command after --: expected the program and its arguments")
    settings = read_settings(
        Flags(
            options["repo"],
            timeout=options["timeout"],
            retries=options["retries"],
            parallel=options["parallel"],
            display=options["display"],
            on_done=options["on_done"],
            budget=options["budget"],
            max_wait=options["max_wait"],
        )
    )
    settings = limit_workers(settings)
    if options["repo"] is None:
        # Items and program are relative to the current folder; the settings are the project's.
        settings = replace(settings, project=working_folder())
    warn_held_back(settings, err=options["json"])
    if options["no_gateway"] and (options["offline"] or options["budget"] or options["max_wait"]):
        raise click.UsageError("--no-gateway: --budget, --max-wait and --offline need the gateway; drop one")
    codes, any_code = _retry_codes(options["retry_on"])
    source = options["items_from"]
    rows = _table_rows(source)
    listed = () if source is None else tuple(rows or _split_list(source.read()))
    if source is not None and not listed:
        raise NothingMatches(f"{'standard input' if source.name == '<stdin>' else source.name} names no item")
    sources = (*_sources(options, settings.project), *listed)
    are_files = all((settings.project / source).is_file() for source in sources)
    request = ExecRequest(
        sources=sources,
        program=agent.command(items_are_files=are_files) if agent else words,
        selection=Selection(
            everything=True, limit=options["limit"], failed=options["failed"], fresh=options["fresh"]
        ),
        settings=settings,
        command=shlex.join(["agentos", *sys.argv[1:]]).encode("utf-8", "replace").decode(),
        retry_codes=codes,
        retry_any=any_code,
        variables=passed_variables(options["env"]),
        joblog=options["joblog"],
        json=options["json"],
        display=settings.display,
        gateway=not options["no_gateway"],
        piped=listed if source and source.name == "<stdin>" else (),
        repo=options["repo"],
        offline=options["offline"],
        max_wait=options["max_wait"],
        isolation=_isolation(options["worktree"], options["copy"]),
        agent=agent,
        columns=rows,
        rerun_changed=options["rerun_changed"],
        keep_order=options["keep_order"],
        sandbox=options["sandbox"],
    )
    if options["dry_run"]:
        return _dry_run(request)
    echo = partial(click.echo, err=request.json)
    with page_if_wanted(options["page"], echo):
        return run_exec(request, echo)


def _agent(options: dict[str, Any], words: tuple[str, ...]) -> "AgentChoice | None":
    from agentos.exec.agents import AgentChoice

    if options["agent"] is None:
        return None
    if options["no_gateway"]:
        raise click.UsageError("--agent uses the gateway: drop --no-gateway")
    if not words or not words[-1].strip():
        raise click.UsageError(
            f"no prompt: expected -- and then the prompt, such as: agentos exec --agent {options['agent']} "
            "--items 'tasks/*.md' -- \"Do the task in {item}\""
        )
    return AgentChoice(options["agent"], words)


def _isolation(worktree: bool, copy: bool) -> "WorkspaceKind | None":
    from agentos.core.planning.exec_command import WorkspaceKind

    if worktree and copy:
        raise click.UsageError("--worktree and --copy: choose one")
    return WorkspaceKind.WORKTREE if worktree else WorkspaceKind.COPY if copy else None


def _sources(options: dict[str, Any], project: Path) -> list[str]:
    """The matches of the patterns, then the named items."""
    from agentos.core.errors import NothingMatches
    from agentos.core.text.values import natural_order

    if not options["items"] and not options["named"] and options["items_from"] is None:
        raise click.UsageError("no items: name them with --items 'GLOB', --items-from FILE, or before the --")
    found: list[str] = []
    for pattern in (*options["items"], *options["named"]):
        matches = sorted(glob.glob(pattern, root_dir=project, recursive=True), key=natural_order)
        if not matches and glob.has_magic(pattern):
            raise NothingMatches(f"nothing matches {pattern!r} in {project}")
        found += matches or [pattern]
    return found


def _table_rows(source: Any) -> "dict[str, tuple[Column, ...]]":
    """The columns of each item of a table; empty if the file is a plain list."""
    from agentos.exec.item_table import is_table, read_table

    if source is None or not is_table(source.name):
        return {}
    return {row.source: row.columns for row in read_table(source.name, source.read())}


def _split_list(text: str) -> Iterable[str]:
    from agentos.exec.item_table import BYTE_ORDER_MARK

    if "\0" in text:
        return [part for part in text.split("\0") if part]
    # Not splitlines: an item may contain other separators, such as a form feed.
    return [line for line in text.removeprefix(BYTE_ORDER_MARK).split("\n") if line.strip()]


def _retry_codes(text: str) -> tuple[tuple[int, ...], bool]:
    from agentos.core.planning.exec_command import TEMPORARY_FAILURE

    if text == "any":
        return (), True
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text or str(TEMPORARY_FAILURE)):
        raise click.UsageError(
            f"invalid --retry-on {text!r}: expected exit codes such as 1,2 or the word any"
        )
    return (TEMPORARY_FAILURE, *(int(code) for code in text.split(",") if code)), False


def _dry_run(request: Any) -> int:
    from agentos.core.planning.exec_command import render_command
    from agentos.core.text.line_assembler import clean_lines
    from agentos.exec.exec_plan import explain_done, explain_gone, explain_none, plan_exec
    from agentos.outputs.format import count

    def say(text: str) -> None:
        click.echo(clean_lines(text), err=request.json)

    plan = plan_exec(request)
    if not plan.entries:
        return explain_none(plan, request.selection, say)
    say(f"[COORDINATOR] Dry run mode - would process {count(len(plan.entries), 'item')}:")
    width = max(len(entry.item.id) for entry in plan.entries)
    for entry in plan.entries:
        say(
            f"  - {entry.item.id:<{width}}  {entry.reason}: {shlex.join(render_command(request.program, entry.item))}"
        )
    explain_gone(plan, say)
    explain_done(plan, say)
    say("[COORDINATOR] To start the run, leave out --dry-run.")
    return 0


command = ExecCommand(
    "exec",
    params=[
        click.Argument(["named"], nargs=-1, metavar="[ITEM]... -- COMMAND [ARG]..."),
        click.Option(["--items"], multiple=True, metavar="GLOB", help="Files to use as items; repeatable."),
        click.Option(
            ["--items-from"],
            type=click.File("r", encoding="utf-8", errors="surrogateescape"),
            metavar="FILE",
            help="File with one item per line, or separated by NULs; - is stdin. A .csv, .tsv, .json or .jsonl file is a "
            "table, whose columns are placeholders.",
        ),
        click.Option(
            ["--agent"],
            type=click.Choice(AGENT_NAMES),
            help="Run this coding agent; what follows the -- is its prompt, after any flags of its own.",
        ),
        click.Option(["--limit"], type=click.IntRange(min=1), help="Select at most this many items."),
        click.Option(["--failed"], is_flag=True, help="Only items that failed in the last run."),
        click.Option(["--fresh"], is_flag=True, help="Include items that are already done."),
        click.Option(
            ["--rerun-changed"],
            is_flag=True,
            help="Include done items whose file or row has changed since.",
        ),
        click.Option(
            ["--keep-order"],
            is_flag=True,
            help="Show the output of the items in order, each after the previous one has ended.",
        ),
        click.Option(
            ["--parallel", "-j"],
            type=Workers(),
            is_flag=False,
            flag_value=str(DEFAULT_PARALLEL),
            help=f"Number of parallel programs, at most {MAX_PARALLEL} (max_parallel). auto: as many as keys and machine can use. Without a number: {DEFAULT_PARALLEL}. Default: 1.",
        ),
        click.Option(["--dry-run", "-n"], is_flag=True, help="List what would run; start nothing."),
        click.Option(["--timeout"], type=Duration(), help="Time limit per attempt (30m)."),
        click.Option(
            ["--retries"], type=click.IntRange(min=0), help="Retries per item after transient errors (2)."
        ),
        click.Option(
            ["--retry-on"],
            default="",
            metavar="CODES",
            help="Exit codes to retry besides 75, such as 1,2, or any.",
        ),
        click.Option(
            ["--env"],
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Environment variable to pass to the program; repeatable.",
        ),
        click.Option(
            ["--worktree"],
            is_flag=True,
            help="Give each item a git worktree and a branch of its own; see: agentos worktrees.",
        ),
        click.Option(
            ["--copy"], is_flag=True, help="Give each item a copy of the folder, where there is no git."
        ),
        click.Option(
            ["--sandbox"],
            is_flag=True,
            help="Run each program in bubblewrap: only its folder is writable, only the gateway can be reached.",
        ),
        click.Option(
            ["--joblog"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="Append a line per attempt, in the format of GNU parallel.",
        ),
        click.Option(
            ["--budget"],
            type=Dollars(),
            metavar="USD",
            help="Stop before the model calls of the programs cost more than this.",
        ),
        click.Option(["--max-wait"], type=Duration(), help="How long a model call may wait for a key (5m)."),
        click.Option(
            ["--offline"], is_flag=True, help="Answer model calls with built-in rules: no key, no network."
        ),
        click.Option(
            ["--no-gateway"],
            is_flag=True,
            help="Do not offer the keys: the program has its own or needs none.",
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
            ["--json"], is_flag=True, help="One JSON event per line on stdout; text for people on stderr."
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder to run the program in (current folder).",
        ),
        click.Option(
            ["--page"], is_flag=True, help="Serve the page alongside the run and print its address."
        ),
    ],
    help="Run any program once per item, in parallel, and resume where it stopped.",
    epilog=EXAMPLES,
    callback=_run,
    context_settings={"max_content_width": 100},
)
