"""`agentos run`, `lld-workflow`, `issue-workflow`."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from agentos.cli.held_back import warn_held_back
from agentos.cli.param_types import ImpliedInt, Workers, capped
from agentos.cli.run_options import EXAMPLES, RunOptions, options
from agentos.cli.shell_complete import completer, workflows
from agentos.core.constants import MAX_PARALLEL

HELP = {
    "lld": "Turn issues into reviewed low-level designs (docs/lld/active/).",
    "issue": "Turn briefs (ideas/active/) into filed issues.",
}
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
        callback=lambda **words: execute(workflow, RunOptions(**words), name),
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
        },
    )


def _run(workflow: str, **words: Any) -> int:
    return execute(workflow, RunOptions(**words), f"agentos run {workflow}")


command = RunCommand(
    "run",
    params=[click.Argument(["workflow"], shell_complete=completer(workflows)), *options()],
    help="Carry items through a workflow: lld or issue.",
    epilog=EXAMPLES.format(name="agentos run lld"),
    callback=_run,
    context_settings={"max_content_width": 100},
)


def execute(workflow: str, words: RunOptions, name: str) -> int:
    try:
        return _execute(workflow, words, name)
    except KeyboardInterrupt:
        # While everything is loaded: a run that has begun deals with it itself.
        click.echo(f"\n[COORDINATOR] Stopped, nothing is lost. Go on with: {_command(name)}", err=True)
        return 130


def _execute(workflow: str, words: RunOptions, name: str) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.core.planning.plan import Selection
    from agentos.run.api import run_workflow
    from agentos.run.request import RunRequest

    _check_selection(words, name)
    settings = read_settings(
        Flags(
            repo=words.repo,
            max_iterations=words.max_iterations,
            timeout=words.timeout,
            retries=words.retries,
            max_wait=words.max_wait,
            parallel=None if words.parallel is None else capped(words.parallel),
            budget=words.budget,
            review=words.review,
            display=words.display,
            trust=words.trust or None,
        )
    )
    warn_held_back(settings, workflow, err=words.json)
    selection = Selection(
        everything=words.all,
        words=tuple(_relative(word, settings.project) for word in words.items),
        labels=words.label,
        limit=words.limit,
        failed=words.failed,
        fresh=words.fresh,
    )
    request = RunRequest(
        workflow,
        selection,
        settings,
        _command(name),
        words.offline,
        words.json,
        display=settings.display,
    )
    if words.dry_run:
        from agentos.cli.dry_run import dry_run

        return dry_run(request)
    return run_workflow(request, lambda text: click.echo(text, err=words.json))


def _check_selection(words: RunOptions, name: str) -> None:
    if words.all and words.items:
        raise click.UsageError(
            f"--all takes every pending item, and {words.items[0]} is named besides: leave out one of the two"
        )
    if words.all or words.items or words.label or words.failed:
        return
    if words.parallel is not None and not isinstance(words.parallel, ImpliedInt):
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
