"""`agentos report`: exports a run as Markdown, HTML, JUnit or CSV."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.find_run import complete_runs

if TYPE_CHECKING:
    from agentos.core.run_state.run_record import RunRecord

FORMATS = ("md", "html", "junit", "csv")
SUFFIXES = {".md": "md", ".html": "html", ".htm": "html", ".xml": "junit", ".csv": "csv"}


def _run(run_id: str | None, form: str | None, output: Path | None) -> int:
    from agentos.cli.find_run import find_run
    from agentos.config.project import working_folder
    from agentos.core.errors import NothingMatches
    from agentos.outputs.format import count
    from agentos.storage.runs import load_run_record

    chosen = form or _format_for(output)
    run = find_run(run_id)
    try:
        record = load_run_record(run)
    except FileNotFoundError as error:
        raise NothingMatches(
            f"run {run.name} has no journal ({error.filename}); list other runs with: agentos runs"
        ) from error
    text = write_report(record, chosen, output.absolute().parent if output else working_folder())
    if output is None:
        click.echo(text, nl=False)
        return 0
    _write(output, text)
    items = count(len(record.stats.rows), "item")
    click.echo(f"Wrote {output} ({chosen}, {items}; the run {record.state})", err=True)
    return 0


def _format_for(output: Path | None) -> str:
    if output is None or not output.suffix:
        return "md"
    if output.suffix.lower() not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise click.UsageError(
            f"unknown file type {output.suffix} of {output.name}: expected {expected}, or choose with --format"
        )
    return SUFFIXES[output.suffix.lower()]


def write_report(record: "RunRecord", form: str, folder: Path) -> str:
    """Render the report; its links to documents are relative to `folder`."""
    match form:
        case "html":
            from agentos.outputs.report.html import render_html

            return render_html(record, str(folder))
        case "junit":
            from agentos.outputs.report.exports import render_junit

            return render_junit(record)
        case "csv":
            from agentos.outputs.report.exports import render_csv

            return render_csv(record)
        case _:
            from agentos.outputs.report.markdown import render_markdown

            return render_markdown(record)


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: an older report stays until the new one is complete."""
    from agentos.core.errors import PreflightError
    from agentos.storage.files import Folder

    try:
        Folder(path.parent).write(path.name, text.encode(errors="replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PreflightError(f"cannot write {path}: {reason}; choose a file in a writable folder") from error


command = click.Command(
    "report",
    help="Export a run as Markdown, HTML with a timeline, JUnit or CSV; by default the last run. "
    "Works for runs that are in progress, have ended or were killed.",
    params=[
        click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
        click.Option(
            ["--format", "form"],
            type=click.Choice(FORMATS),
            help="Format; by default from the file name, else md.",
        ),
        click.Option(
            ["--output", "-o"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="File to write instead of stdout.",
        ),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos report\n  agentos report -o report.html\n"
    "  agentos report 20261115T221503Z --format junit -o results.xml",
)
