"""`agentos report`: a run as a document."""

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
    from agentos.core.errors import NothingMatches
    from agentos.outputs.format import count
    from agentos.storage.runs import load_run_record

    chosen = form or _form_of(output)
    run = find_run(run_id)
    try:
        record = load_run_record(run)
    except FileNotFoundError as error:
        raise NothingMatches(
            f"run {run.name} has no journal ({error.filename}); see the others with: agentos runs"
        ) from error
    text = write_report(record, chosen)
    if output is None:
        click.echo(text, nl=False)
        return 0
    _keep(output, text)
    items = count(len(record.stats.rows), "item")
    click.echo(f"Written: {output} ({chosen}, {items}, the run {record.state})", err=True)
    return 0


def _form_of(output: Path | None) -> str:
    if output is None or not output.suffix:
        return "md"
    if output.suffix.lower() not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise click.UsageError(f"{output.name} ends in {output.suffix}, expected {expected}; or say --format")
    return SUFFIXES[output.suffix.lower()]


def write_report(record: "RunRecord", form: str) -> str:
    match form:
        case "html":
            from agentos.outputs.report.html import render_html

            return render_html(record)
        case "junit":
            from agentos.outputs.report.junit import junit

            return junit(record)
        case "csv":
            from agentos.outputs.report.csv_table import render_csv

            return render_csv(record)
        case _:
            from agentos.outputs.report.markdown import markdown

            return markdown(record)


def _keep(path: Path, text: str) -> None:
    """Whole or not at all: a report that was there stays until the new one is complete."""
    from agentos.core.errors import PreflightError
    from agentos.storage.files import Folder

    try:
        Folder(path.parent).write(path.name, text.encode(errors="replace"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PreflightError(
            f"cannot write {path}: {why}; name a file in a folder that can be written"
        ) from error


command = click.Command(
    "report",
    help="A run as Markdown, as a page with a timeline, as JUnit or CSV; the last run if none is named. "
    "Works on a run that is under way, has ended or was killed.",
    params=[
        click.Argument(["run_id"], required=False, metavar="[RUN]", shell_complete=complete_runs),
        click.Option(
            ["--format", "form"],
            type=click.Choice(FORMATS),
            help="If not given: by the name of the file, or md.",
        ),
        click.Option(
            ["--output", "-o"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="A file instead of stdout.",
        ),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos report\n  agentos report -o report.html\n"
    "  agentos report 20261115T221503Z --format junit -o results.xml",
)
