"""Candidates for shell completion. Read only from disk; completion never fails."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from agentos.core.errors import AgentosError

if TYPE_CHECKING:
    from agentos.core.planning.items import Candidate

Source = Callable[[click.Context], Iterable[CompletionItem]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(source: Source) -> Complete:
    """Offer candidates that start with the typed text, ignoring case, and are not on the command line yet."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        start = incomplete.casefold()
        try:
            found = [option for option in source(ctx) if str(option.value).casefold().startswith(start)]
        except (AgentosError, OSError):
            # The command itself reports what is wrong; a shell cannot show it.
            return []
        given = ctx.params.get(param.name or "") or ()
        return [option for option in found if not (isinstance(given, tuple) and option.value in given)]

    return complete


def complete_pending(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Pending items by id, or by number once a digit is typed; paths are left to the shell."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    by_number = incomplete[:1].isdigit()

    def pending(ctx: click.Context) -> list[CompletionItem]:
        from agentos.core.planning.items import ItemStatus

        fresh = bool(ctx.params.get("fresh"))
        hidden = (ItemStatus.CLOSED,) if fresh else (ItemStatus.APPROVED, ItemStatus.CLOSED)
        items = [candidate.item for candidate in _candidates(ctx) if candidate.status not in hidden]
        return [
            CompletionItem(str(item.number) if by_number else item.id, help=item.title or None)
            for item in items
            if not by_number or item.id.endswith(f"-{item.number}")
        ]

    return completer(pending)(ctx, param, incomplete)


def labels(ctx: click.Context) -> list[CompletionItem]:
    names = sorted({label for candidate in _candidates(ctx) for label in candidate.item.labels})
    return [CompletionItem(name) for name in names]


def workflows(ctx: click.Context) -> list[CompletionItem]:
    from agentos.workflows.registry import workflow_names

    return [CompletionItem(name) for name in workflow_names()]


def logged_items(ctx: click.Context) -> list[CompletionItem]:
    """Items that have a log in the chosen run."""
    from agentos.cli.find_run import find_run

    run = find_run(ctx.params.get("run_id"))
    return [CompletionItem(path.stem) for path in sorted(run.glob("*.log"))]


def failed_items(ctx: click.Context) -> list[CompletionItem]:
    """Items of the run in progress that can be retried."""
    from agentos.cli.find_run import find_live_run
    from agentos.core.protocol.results import Ending
    from agentos.storage.runs import load_run_stats

    run = find_live_run(ctx.params.get("run_id"), "retry")
    return [CompletionItem(row.item) for row in load_run_stats(run).with_ending(Ending.FAILED)]


def parked_items(ctx: click.Context) -> list[CompletionItem]:
    """Items that are waiting for a decision."""
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext, pending_reviews
    from agentos.storage.home import Home

    settings = read_settings(Flags(repo=ctx.params.get("repo")))
    found = pending_reviews(ReviewContext(settings.project, Home(settings.home), settings.database))
    undecided = [pending.parked_item for pending in found if pending.state.decision is None]
    return [CompletionItem(parked.item, help=parked.title or None) for parked in undecided]


def _candidates(ctx: click.Context) -> "list[Candidate]":
    """The workflow's items. Completion never calls GitHub: with GitHub issues, those of the last run."""
    from agentos.config.settings import Flags, read_settings
    from agentos.storage.home import Home
    from agentos.workflows.registry import find_workflow

    settings = read_settings(Flags(repo=ctx.params.get("repo")))
    name = _workflow_name(ctx)
    workflow = find_workflow(name, settings.project)
    if settings.github and workflow.reads_issues:
        return _items_of_last_run(Home(settings.home).runs, name, settings.project)
    return workflow.candidates(settings.project)


def _workflow_name(ctx: click.Context) -> str:
    if ctx.command.name != "run":
        return str(ctx.command.name).removesuffix("-workflow")
    # While an option has no value yet, click has not assigned the arguments.
    return ctx.params.get("workflow") or next(iter(ctx.args), "")


def _items_of_last_run(runs: Path, workflow: str, project: Path) -> "list[Candidate]":
    from agentos.core.planning.items import Candidate, Item, ItemStatus
    from agentos.storage.runs import last_run_of

    last = last_run_of(runs, workflow, project)
    if last is None or last.started is None:
        return []
    titles = dict(zip(last.started.items, last.started.titles, strict=False))
    items = []
    for name in last.started.items:
        number = name.rpartition("-")[2]  # an item without a number is completed by its id alone
        items.append(
            Item(name, workflow, int(number) if number.isdecimal() else -1, titles.get(name, ""), "")
        )
    return [Candidate(item, ItemStatus.PENDING) for item in items]
