"""`agentos run`, `lld-workflow` and `issue-workflow`."""

import os.path
import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentos.cli.json_output import print_json
from agentos.cli.page import page_if_wanted
from agentos.cli.param_types import ImpliedInt, Workers, passed_variables
from agentos.cli.run_options import EXAMPLES, RunOptions, run_parameters
from agentos.cli.shell_complete import completer, workflows
from agentos.cli.trust import warn_held_back
from agentos.core.constants import MAX_PARALLEL

if TYPE_CHECKING:
    from agentos.run.api import RunRequest

HELP = {
    "lld": "Turn issues into reviewed low-level designs (docs/lld/active/).",
    "issue": "Turn briefs (ideas/active/) into filed issues.",
}
_NEGATIVE_PARALLEL = re.compile(r"(?:^| )(?:--parallel[ =]|-j ?)(-\d+)(?: |$)")


class RunCommand(click.Command):
    """Reports `--parallel -1` as an invalid worker count rather than as an unknown option -1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if found := _NEGATIVE_PARALLEL.search(" ".join(args)):
            Workers().convert(found[1], None, ctx)
        return super().parse_args(ctx, args)


def workflow_command(workflow: str) -> click.Command:
    name = f"{workflow}-workflow"
    return RunCommand(
        name,
        params=run_parameters(),
        help=HELP[workflow],
        epilog=EXAMPLES.format(name=name),
        callback=lambda **options: execute(workflow, RunOptions(**options), name),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _run(workflow: str, **options: Any) -> int:
    return execute(workflow, RunOptions(**options), f"agentos run {workflow}")


command = RunCommand(
    "run",
    params=[click.Argument(["workflow"], shell_complete=completer(workflows)), *run_parameters()],
    help="Run a workflow on backlog items: lld, issue or one of your own.",
    epilog=EXAMPLES.format(name="agentos run lld"),
    callback=_run,
    context_settings={"max_content_width": 100},
)


def execute(workflow: str, options: RunOptions, name: str) -> int:
    try:
        return _execute(workflow, options, name)
    except KeyboardInterrupt:
        # Only while modules are loading: once a run has started, it handles Ctrl-C itself.
        click.echo(
            f"\n[COORDINATOR] Interrupted; nothing is lost. Resume with: {_command_line(name)}", err=True
        )
        return 130


def _execute(workflow: str, options: RunOptions, name: str) -> int:
    from agentos.cli.worker_limit import limit_workers
    from agentos.config.settings import Flags, read_settings, show_tracebacks
    from agentos.core.planning.plan import Selection
    from agentos.run.api import RunRequest, run_workflow

    _check_selection(options, name)
    if options.verbose:
        show_tracebacks()
    settings = read_settings(
        Flags(
            repo=options.repo,
            max_iterations=options.max_iterations,
            timeout=options.timeout,
            retries=options.retries,
            max_wait=options.max_wait,
            parallel=options.parallel,
            budget=options.budget,
            review=options.review,
            display=options.display,
            on_done=options.on_done,
            context=context_files(options.context, options.repo),
            trust=options.trust or None,
        )
    )
    settings = limit_workers(settings)
    _name_project(settings.project, options)
    warn_held_back(settings, err=options.json)
    words = tuple(_relative_to(settings.project, word) for word in options.items)
    selection = Selection(
        everything=options.all,
        words=words,
        absent=tuple(word for word in words if _is_path(word) and not (settings.project / word).exists()),
        labels=options.label,
        limit=options.limit,
        failed=options.failed,
        fresh=options.fresh,
    )
    request = RunRequest(
        workflow,
        selection,
        settings,
        _command_line(name),
        options.offline,
        options.json,
        display=settings.display,
        asks_review=options.review not in (None, "none"),
        variables=tuple(passed_variables(options.env).items()),
        selecting_words=_selecting_words(name),
    )
    if options.detach and not options.fleet:
        raise click.UsageError("--detach needs --fleet: a run of this machine ends with its terminal")
    if options.dry_run:
        return _dry_run(request)
    echo = partial(click.echo, err=options.json)
    with page_if_wanted(options.page, echo):
        return _run_on_fleet(request, echo, options.detach) if options.fleet else run_workflow(request, echo)


def _run_on_fleet(request: "RunRequest", echo: Callable[[str], None], detach: bool) -> int:
    from agentos.cli.fleet import require_fleet
    from agentos.run.api import RunOrigin, run_with_signals

    require_fleet()
    from agentos.fleet.fleet_run import run_on_fleet

    settings = request.settings
    origin = RunOrigin(
        request.command, echo, request.json, request.display, settings.on_done, settings.notify != "none"
    )
    return run_with_signals(origin, lambda signals: run_on_fleet(request, origin, signals, detach=detach))


def _check_selection(options: RunOptions, name: str) -> None:
    if options.all and options.items:
        raise click.UsageError(
            f"--all selects every pending item, but {options.items[0]} is named too: drop one of the two"
        )
    if options.all or options.items or options.label or options.failed:
        return
    if options.parallel and not isinstance(options.parallel, ImpliedInt):
        raise click.UsageError(
            f"nothing is selected: {options.parallel} was read as the number of workers. "
            f"For item {options.parallel} type: {name} {options.parallel} --parallel; "
            f"for every pending item: {name} --all --parallel {min(options.parallel, MAX_PARALLEL)}"
        )
    raise click.UsageError(
        f"nothing is selected: name items ({name} 42) or select every pending one ({name} --all)"
    )


def _name_project(project: Path, options: RunOptions) -> None:
    """Say which project was found, unless it is the working directory or was given with --repo."""
    from agentos.config.project import working_folder
    from agentos.core.text.line_assembler import one_line

    if options.repo is None and project != working_folder():
        click.echo(f"Project: {one_line(str(project))}", err=options.json)


def context_files(given: tuple[str, ...], repo: Path | None) -> tuple[str, ...] | None:
    """The files to show whole, relative to the project's folder; None if none were given."""
    from agentos.config.file import is_project_path
    from agentos.config.project import find_project, working_folder
    from agentos.config.settings import environment

    if not given:
        return None
    project = repo.absolute() if repo else find_project(working_folder(), environment())
    paths = tuple(_relative_to(project, path) for path in given)
    if outside := [path for path in paths if not is_project_path(path)]:
        raise click.UsageError(f"--context {outside[0]}: expected a file inside the project {project}")
    return paths


def _relative_to(project: Path, word: str) -> str:
    """A file inside the project as a path relative to it; anything else unchanged."""
    if _is_path(word):
        path = Path(os.path.abspath(word))
        if path.is_relative_to(project) and (path.exists() or not (project / word).exists()):
            return str(path.relative_to(project))
    return word


def _is_path(word: str) -> bool:
    return "/" in word or word.endswith(".md")


def _command_line(name: str) -> str:
    """The command that the user typed, to be repeated."""
    return shlex.join([*name.split(), *_arguments(name)])


def _arguments(name: str) -> list[str]:
    return sys.argv[3 if name.startswith("agentos run") else 1 :]


def _selecting_words(name: str) -> tuple[int, ...]:
    """The positions of the items and of `--all` in the command line."""
    parser = click.Command(name, params=run_parameters()).make_parser(click.get_current_context())
    arguments, found = _arguments(name), []
    for index, (before, word) in enumerate(zip(["", *arguments], arguments, strict=False)):
        # Only after an option may a word be something else than an item: the option's value.
        if word == "--all" or (
            not word.startswith("-")
            and (not before.startswith("-") or parser.parse_args([before, word])[0].get("items") == (word,))
        ):
            found.append(len(name.split()) + index)
    return tuple(found)


def _dry_run(request: "RunRequest") -> int:
    from agentos.config.project import project_prefix, repo_option
    from agentos.config.settings import environment
    from agentos.core.forecast.forecast import Unknown
    from agentos.core.text.line_assembler import one_line
    from agentos.core.text.values import MAX_TITLE, shortened
    from agentos.outputs.forecast_text import forecast_json, forecast_lines
    from agentos.outputs.format import count, prefixed, seen_from
    from agentos.outputs.plan_text import explain_empty_plan, explain_skipped, failing_lines
    from agentos.run.api import plan_run
    from agentos.run.forecast_inputs import forecast_plan

    path = project_prefix(request.settings.project)

    def say(text: str) -> None:
        click.echo(text, err=request.json)

    def say_from_here(text: str) -> None:
        say(seen_from(path, text))

    plan, repo = plan_run(request, say), repo_option(request.settings.project, environment())
    if request.json:
        for file in plan.skipped:
            row = {
                "type": "file_skipped",
                "file": file.source,
                "reason": file.reason,
                "problems": file.problems,
            }
            print_json(row)
    if not plan.entries:
        kept_as_files = "" if request.settings.github else request.workflow
        return explain_empty_plan(plan, request.selection, say_from_here, repo, kept_as_files)
    say(f"[COORDINATOR] Dry run mode - would process {count(len(plan.entries), 'item')}:")
    width = max(len(entry.item.id) for entry in plan.entries)
    lines = []
    for entry in plan.entries:
        title = shortened(entry.item.title, MAX_TITLE)
        lines.append(one_line(f"  - {entry.item.id:<{width}}  {entry.reason}: {title}"))
        lines += [prefixed("      will fail:", seen_from(path, problem)) for problem in entry.problems]
    # Print all lines at once, as there may be thousands.
    say("\n".join(lines))
    if request.json:
        rows = (
            {
                "type": "item_planned",
                "item": entry.item.id,
                "reason": entry.reason,
                "title": entry.item.title,
                "problems": entry.problems,
                "source_tokens": entry.item.source_tokens,
            }
            for entry in plan.entries
        )
        print_json(*rows)
    explain_skipped(plan, say_from_here, repo)
    forecast = forecast_plan(plan, request.workflow, request.settings, offline=request.offline)
    if request.json:
        print_json(forecast_json(forecast))
    start = "To start the run, leave out --dry-run."
    notes = {
        Unknown.NO_START: f"Fix the problems above first. {start}",
        Unknown.NO_KEY: f"{start} It needs an API key, or --offline.",
    }
    last = notes.get(forecast.unknown, start) if forecast.unknown else start
    for line in (*forecast_lines(forecast), *forecast.warnings, *failing_lines(plan.entries), last):
        say(f"[COORDINATOR] {line}")
    # A plan is useful even without a key; with invalid settings, the dry run fails as the run would.
    return (forecast.exit_code or 0) if forecast.unknown is Unknown.NO_START else 0
