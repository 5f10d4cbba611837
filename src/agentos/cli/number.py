"""`agentos number`: gives numbers to issues that have none."""

from pathlib import Path

import click


def _run(repo: Path | None, dry_run: bool) -> int:
    from agentos.config.project import project_prefix, repo_option
    from agentos.config.settings import Flags, environment, read_settings
    from agentos.core.errors import PreflightError
    from agentos.core.planning.items import SKIP_FIXES, SkipReason
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import count, seen_from
    from agentos.outputs.plan_text import skipped_lines
    from agentos.storage.files import ProjectFolder
    from agentos.workflows.file_issue import ISSUES, number_issues, plan_numbers

    settings = read_settings(Flags(repo=repo))
    project, option = settings.project, repo_option(settings.project, environment())
    if settings.github:
        raise PreflightError(
            f"the issues of this project are on GitHub ({settings.github}), where each has a number"
        )
    if not (project / ISSUES).is_dir():
        raise PreflightError(
            f"no issues here: {project} has no {ISSUES} folder. "
            "Go to a project, name one with --repo PATH, or create one: agentos init"
        )
    try:
        plan = plan_numbers(project) if dry_run else number_issues(ProjectFolder(project, click.echo))
    except OSError as error:
        raise PreflightError(
            f"cannot rename the files in {project / ISSUES}: {error.strerror}; make the folder writable, "
            "then run the same command again"
        ) from error
    path = project_prefix(project)
    # This command could not do it, so it must not be named as the fix.
    by_hand = SKIP_FIXES | {SkipReason.NO_NUMBER: "rename {them} by hand, to begin with a free number"}
    for renaming in plan.renamings:
        click.echo(one_line(f"  {path}{renaming.source} -> {path}{renaming.target}"))
    for line in skipped_lines(plan.left, option, by_hand):
        click.echo(one_line(seen_from(path, line)))
    renamed = count(len(plan.renamings), "issue")
    if not plan.renamings:
        click.echo("Every issue has a number." if not plan.left else "No number was given.")
    elif dry_run:
        click.echo(f"Would rename {renamed}. To do it, leave out --dry-run.")
    else:
        click.echo(f"Renamed {renamed}. See what would run: lld-workflow --all --dry-run{option}")
    return 0


command = click.Command(
    "number",
    help="Give a number to each issue that has none, by renaming its file: issues/fix-login.md becomes "
    "issues/043-fix-login.md. Numbers in use, also by a design, are never given again.",
    params=[
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (current folder).",
        ),
        click.Option(["--dry-run", "-n"], is_flag=True, help="Show the new names; rename nothing."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos number --dry-run\n  agentos number --repo ../shop",
)
