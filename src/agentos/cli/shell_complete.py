"""What the shell offers where an item, a label or a workflow is named: from disk alone, and never an error."""

from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from agentos.core.errors import AgentosError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from agentos.core.planning.plan import Candidate

    Offer = Callable[[click.Context], Iterable[CompletionItem]]
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(offer: "Offer") -> "Complete":
    """What begins as was typed, in whatever case; what was said before is not offered again."""

    def complete(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:
        prestarted = incomplete.casefold()
        try:
            found = [one for one in offer(ctx) if str(one.value).casefold().startswith(prestarted)]
        except (AgentosError, OSError):
            # The command itself says what is wrong; a shell has no place for it.
            return []
        said = ctx.params.get(param.name or "") or ()
        return [one for one in found if not (isinstance(said, tuple) and one.value in said)]

    return complete


def complete_pending(
    ctx: "click.Context", param: "click.Parameter", incomplete: str
) -> "list[CompletionItem]":
    """Items of a workflow by id, or by number where one is begun; a path is left to the shell."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    by_number = incomplete[:1].isdigit()

    def offer(ctx: "click.Context") -> "list[CompletionItem]":
        return [
            CompletionItem(str(one.item.number) if by_number else one.item.id, help=one.item.title or None)
            for one in _candidates(ctx)
            if _is_worth_naming(one, fresh=bool(ctx.params.get("fresh")))
        ]

    return completer(offer)(ctx, param, incomplete)


def labels(ctx: "click.Context") -> "list[CompletionItem]":
    names = sorted({label for one in _candidates(ctx) for label in one.item.labels})
    return [CompletionItem(name) for name in names]


def workflows(ctx: "click.Context") -> "list[CompletionItem]":
    from agentos.workflows.registry import workflow_names

    return [CompletionItem(name) for name in workflow_names()]


def logged(ctx: "click.Context") -> "list[CompletionItem]":
    """Items that have a log in the run that is meant."""
    from agentos.cli.find_run import find_run

    run = find_run(ctx.params.get("run_id"))
    return [CompletionItem(path.stem) for path in sorted(run.glob("*.log"))]


def failed(ctx: "click.Context") -> "list[CompletionItem]":
    """Items of the run under way that can be put back."""
    from agentos.cli.find_run import living_run
    from agentos.core.protocol.results import Ending
    from agentos.storage.runs import load_run_stats

    run = living_run(ctx.params.get("run_id"), "retry")
    return [CompletionItem(row.item) for row in load_run_stats(run).ending(Ending.FAILED)]


def parked(ctx: "click.Context") -> "list[CompletionItem]":
    """Items that nobody has decided on."""
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext, pending_reviews
    from agentos.storage.home import Home

    settings = read_settings(Flags(repo=ctx.params.get("repo")))
    found = pending_reviews(ReviewContext(settings.project, Home(settings.home), settings.database))
    undecided = [one.parked_item for one in found if one.state.decision is None]
    return [CompletionItem(one.item, help=one.title or None) for one in undecided]


def _candidates(ctx: "click.Context") -> "list[Candidate]":
    """Nothing is asked of GitHub: there the items are those of the last run."""
    from agentos.config.settings import Flags, read_settings
    from agentos.storage.home import Home
    from agentos.workflows.registry import find_workflow

    settings = read_settings(Flags(repo=ctx.params.get("repo")))
    name = _workflow(ctx)
    if settings.github and name == "lld":
        return _of_the_last_run(Home(settings.home).runs, name, settings.project)
    return find_workflow(name, settings.project).candidates(settings.project)


def _workflow(ctx: "click.Context") -> str:
    if ctx.command.name != "run":
        return str(ctx.command.name).removesuffix("-workflow")
    # While an option still lacks its value, click has not told words apart.
    return ctx.params.get("workflow") or next(iter(ctx.args), "")


def _of_the_last_run(runs: Path, workflow: str, project: Path) -> "list[Candidate]":
    from agentos.core.planning.items import Item
    from agentos.core.planning.plan import Candidate, ItemStatus
    from agentos.storage.runs import last_run_of

    last = last_run_of(runs, workflow, project)
    if last is None or last.started is None:
        return []
    titles = dict(zip(last.started.items, last.started.titles, strict=False))
    items = [
        Item(name, workflow, int(name.rpartition("-")[2]), titles.get(name, ""), "")
        for name in last.started.items
    ]
    return [Candidate(item, ItemStatus.PENDING) for item in items]


def _is_worth_naming(candidate: "Candidate", *, fresh: bool) -> bool:
    from agentos.core.planning.plan import ItemStatus

    return candidate.status not in (
        (ItemStatus.CLOSED,) if fresh else (ItemStatus.APPROVED, ItemStatus.CLOSED)
    )
