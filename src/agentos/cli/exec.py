"""`agentos exec`: any program, once for every item."""

import glob
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from agentos.cli.held_back import warn_held_back
from agentos.cli.param_types import Duration, Workers, capped
from agentos.core.constants import DEFAULT_PARALLEL, DISPLAYS, MAX_PARALLEL

EXAMPLES = """\b
Examples:
  agentos exec --items 'ideas/active/*.md' --parallel 3 -- my-agent --prompt-file {item}
  agentos exec 'docs/*.md' -j -- wc -w {item}          GLOBs may stand alone
  git ls-files '*.py' | agentos exec --items-from - -j 4 -- ./check.sh {item}
  agentos exec --items '*.md' --failed -- my-agent {item}     those that failed the last time
  agentos exec --items '*.md' --retries 5 --retry-on any --timeout 10m -- my-agent {item}
  agentos exec --items '*.md' --env GITHUB_TOKEN --joblog jobs.tsv -- my-agent {item}
  agentos exec --items '*.md' --dry-run -- my-agent {item}    what would run; starts nothing

\b
In the command: {item} (or {}), {id}, {name}, {stem}, {folder}, {number}; {{item}} is {item} itself.
Without any of them, the item is the last word. No shell reads it: for one, write sh -c '...' sh {item}.

\b
What the program's exit code means: 0 done, not run again by the same command; 75 try again;
anything else failed. Exit codes of agentos exec: as those of agentos run.
"""


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


class ExecCommand(click.Command):
    """What stands behind `--` is the program's, word for word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, dashes, theirs = _split(args)
        ctx.meta["agentos.program"] = tuple(theirs)
        if not dashes and not {"-h", "--help"} & set(ours):
            raise click.UsageError(
                "no command: expected -- and then the program, such as: agentos exec --items '*.md' -- wc -w {item}",
                ctx,
            )
        return super().parse_args(ctx, ours)


def _split(args: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in args:
        return args, False, []
    place = args.index("--")
    return args[:place], True, args[place + 1 :]


@click.pass_context
def _run(ctx: click.Context, /, **words: Any) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.core.planning.plan import Selection
    from agentos.exec.builder import ExecRequest, run_exec

    program: tuple[str, ...] = ctx.meta["agentos.program"]
    if not program:
        raise click.UsageError("nothing stands behind --; expected the program and its words")
    parallel = None if words["parallel"] is None else capped(words["parallel"])
    settings = read_settings(
        Flags(
            words["repo"],
            timeout=words["timeout"],
            retries=words["retries"],
            parallel=parallel,
            display=words["display"],
        )
    )
    warn_held_back(settings, err=words["json"])
    codes, everything = _codes(words["retry_on"])
    request = ExecRequest(
        sources=tuple(_sources(words, settings.project)),
        program=program,
        selection=Selection(
            everything=True, limit=words["limit"], failed=words["failed"], fresh=words["fresh"]
        ),
        settings=settings,
        command=shlex.join(["agentos", *sys.argv[1:]]).encode("utf-8", "replace").decode(),
        retry_codes=codes,
        retry_any=everything,
        variables=_variables(words["env"]),
        joblog=words["joblog"],
        json=words["json"],
        display=settings.display,
        gateway=not words["no_gateway"],
    )
    if words["dry_run"]:
        return _dry_run(request)
    return run_exec(request, lambda text: click.echo(text, err=request.json))


def _sources(words: dict[str, Any], project: Path) -> list[str]:
    """What is named, what the patterns find, what the list says; nothing named is a usage error."""
    from agentos.core.errors import NothingMatches

    if not words["items"] and not words["named"] and words["items_from"] is None:
        raise click.UsageError("no items: name them with --items 'GLOB', --items-from FILE, or before the --")
    found: list[str] = []
    for pattern in (*words["items"], *words["named"]):
        matches = sorted(glob.glob(pattern, root_dir=project, recursive=True), key=_natural)
        if not matches and glob.has_magic(pattern):
            raise NothingMatches(f"nothing matches {pattern!r} in {project}")
        found += matches or [pattern]
    if words["items_from"] is not None:
        found += _listed(words["items_from"].read())
    return found


def _listed(text: str) -> Iterable[str]:
    if "\0" in text:
        return [part for part in text.split("\0") if part]
    return [line for line in text.splitlines() if line.strip()]


def _codes(word: str) -> tuple[tuple[int, ...], bool]:
    from agentos.core.planning.exec_command import TRY_AGAIN

    if word == "any":
        return (), True
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", word or str(TRY_AGAIN)):
        raise click.UsageError(
            f"--retry-on {word!r} is not what was expected: exit codes such as 1,2 or the word any"
        )
    return (TRY_AGAIN, *(int(code) for code in word.split(",") if code)), False


def _variables(words: tuple[str, ...]) -> dict[str, str]:
    from agentos.config.settings import environment

    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in environment():
            raise click.UsageError(
                f"--env {name}: the variable is not set; give a value with --env {name}=VALUE"
            )
        found[name] = value if equals else environment()[name]
    return found


def _dry_run(request: Any) -> int:
    from agentos.core.planning.exec_command import render_command
    from agentos.exec.builder import explain_none, plan_exec

    def say(text: str) -> None:
        click.echo(text.encode("utf-8", "replace").decode(), err=request.json)

    plan = plan_exec(request)
    if not plan.entries:
        return explain_none(plan, request.selection, say)
    say(f"[COORDINATOR] Dry run mode - would process {len(plan.entries)} items:")
    width = max(len(entry.item.id) for entry in plan.entries)
    for entry in plan.entries:
        say(
            f"  - {entry.item.id:<{width}}  {entry.reason}: {shlex.join(render_command(request.program, entry.item))}"
        )
    say("[COORDINATOR] To start it, leave out --dry-run.")
    return 0


command = ExecCommand(
    "exec",
    params=[
        click.Argument(["named"], nargs=-1, metavar="[ITEM]... -- COMMAND [WORD]..."),
        click.Option(["--items"], multiple=True, metavar="GLOB", help="Files to work on; may be repeated."),
        click.Option(
            ["--items-from"],
            type=click.File("r", errors="surrogateescape"),
            metavar="FILE",
            help="Items, one a line or between NULs; - is stdin.",
        ),
        click.Option(["--limit"], type=click.IntRange(min=1), help="At most so many items."),
        click.Option(["--failed"], is_flag=True, help="Only those that the last run left failed."),
        click.Option(["--fresh"], is_flag=True, help="Also those that are done already."),
        click.Option(
            ["--parallel", "-j"],
            type=Workers(),
            is_flag=False,
            flag_value=str(DEFAULT_PARALLEL),
            help=f"Programs side by side: without a number {DEFAULT_PARALLEL}, at most {MAX_PARALLEL}. Not given: 1.",
        ),
        click.Option(["--dry-run", "-n"], is_flag=True, help="List what would run; start nothing."),
        click.Option(["--timeout"], type=Duration(), help="For one try of one item (30m)."),
        click.Option(["--retries"], type=click.IntRange(min=0), help="For what can pass (2)."),
        click.Option(
            ["--retry-on"],
            default="",
            metavar="CODES",
            help="Exit codes that can pass, beside 75: 1,2 or any.",
        ),
        click.Option(
            ["--env"], multiple=True, metavar="NAME[=VALUE]", help="A variable that the program is to have."
        ),
        click.Option(
            ["--joblog"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="Append a line for every try, as GNU parallel does.",
        ),
        click.Option(
            ["--no-gateway"],
            is_flag=True,
            help="Leave the keys alone: the program brings its own, or needs none.",
        ),
        click.Option(
            ["--display"],
            type=click.Choice(DISPLAYS),
            help="A footer that stays, or plain lines; auto looks at the terminal.",
        ),
        click.Option(
            ["--json"], is_flag=True, help="One JSON event a line on stdout, people's text on stderr."
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The folder that the program runs in (this one).",
        ),
    ],
    help="Run any program once for every item, side by side, and go on where it stopped.",
    epilog=EXAMPLES,
    callback=_run,
    context_settings={"max_content_width": 100},
)
