"""`agentos review`: lists parked items and records a person's decision on them."""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import json_option, print_json, review_json
from agentos.cli.shell_complete import completer, parked_items

if TYPE_CHECKING:
    from agentos.core.planning.gates import ReviewDecision
    from agentos.review.queue import PendingReview, ReviewContext

NO_TERMINAL = (
    "nothing was decided: stdin is not a terminal. Decide with a flag: --approve, --send-back TEXT or "
    "--reject TEXT, each optionally with --edit; or only read the item with --show"
)
MENU = "Approve, send back, reject, edit, or decide later? [a/s/r/e/l]"
NO_ITEM = 'no item is named; expected such as: agentos review LLD-42 --send-back "what to change"'


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """The flags as click parsed them."""

    item: str | None
    approve: bool
    send_back: str | None
    reject: str | None
    edit: bool
    show: bool
    repo: Path | None
    as_json: bool = False

    @property
    def decides(self) -> bool:
        return self.approve or self.send_back is not None or self.reject is not None


def _run(**parsed: object) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext, find_review
    from agentos.storage.home import Home

    options = ReviewOptions(**parsed)  # type: ignore[arg-type]
    _check(options)
    settings = read_settings(Flags(repo=options.repo))
    context = ReviewContext(settings.project, Home(settings.home), settings.database)
    if options.item is None:
        return _list_json(context) if options.as_json else _list(context)
    pending = find_review(context, options.item)
    if pending.state.decision is not None:
        return _report_decided(context, pending, decides=options.decides or options.edit)
    if not options.decides:
        _show(context, pending)
    if options.show:
        return 0
    if not options.decides and not sys.stdin.isatty():
        raise click.UsageError(NO_TERMINAL)
    if options.edit:
        pending = _edit(context, pending)
    return _decide(context, pending, options) if options.decides else _ask(context, pending)


def _check(options: ReviewOptions) -> None:
    chosen = [options.approve, options.send_back is not None, options.reject is not None, options.show]
    if sum(chosen) > 1:
        raise click.UsageError("--approve, --send-back, --reject and --show exclude each other: choose one")
    if options.as_json and (options.item is not None or any(chosen) or options.edit):
        raise click.UsageError("--json lists the waiting items: use it without ITEM and other flags")
    if options.item is None and (any(chosen) or options.edit):
        raise click.UsageError(NO_ITEM)


def _list_json(context: "ReviewContext") -> int:
    from agentos.review.queue import pending_reviews

    found = pending_reviews(context)
    print_json({"project": str(context.project), "items": [review_json(pending) for pending in found]})
    return 0


def _list(context: "ReviewContext") -> int:
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import clock
    from agentos.review.queue import command_for, continue_command, pending_reviews

    found = pending_reviews(context)
    undecided = [pending for pending in found if pending.state.decision is None]
    width = max((len(pending.parked_item.item) for pending in found), default=0)
    for pending in found:
        parked, decision = pending.parked_item, pending.state.decision
        state = (
            f"{decision.action.past_tense}; resume with: {continue_command(context, parked)}"
            if decision
            else f"{_subject(pending)} waiting since {clock(parked.at, time.time())}: {one_line(parked.title)}"
        )
        click.echo(f"{parked.item:<{width}}  {state}")
    if undecided:
        command = command_for(context, f"agentos review {undecided[0].parked_item.item}")
        click.echo(f"Read one and decide: {command}")
    elif not found:
        click.echo("No items are waiting for a person. Park drafts with: lld-workflow --all --review draft")
    return 0


def _subject(pending: "PendingReview") -> str:
    request = pending.request
    if not request.verdict:
        return f"draft {request.round}"
    return f"verdict on draft {request.round} ({'approved' if request.approved else 'needs revision'})"


def _report_decided(context: "ReviewContext", pending: "PendingReview", decides: bool) -> int:
    from agentos.core.errors import NothingMatches
    from agentos.review.queue import continue_command

    assert pending.state.decision
    text = (
        f"{pending.parked_item.item} was already {pending.state.decision.action.past_tense}; "
        f"resume with: {continue_command(context, pending.parked_item)}"
    )
    if decides:
        raise NothingMatches(text)
    click.echo(text)
    return 0


def _show(context: "ReviewContext", pending: "PendingReview") -> None:
    from agentos.core.text.line_assembler import clean, one_line
    from agentos.outputs.format import clock
    from agentos.review.queue import draft_text, lineage

    parked, pages = pending.parked_item, lineage(context, pending.parked_item)
    click.echo(f"{parked.item}: {one_line(parked.title)}")
    click.echo(f"  {_subject(pending)} waiting since {clock(parked.at, time.time())} at {parked.node}")
    click.echo(f"  history in {parked.lineage}/:")
    width = max((len(page.name) for page in pages), default=0)
    for page in pages:
        click.echo(f"    {page.name:<{width}}  {page.heading}")
    for page in pages:
        if pending.request.verdict.endswith(f"/{page.name}"):
            click.echo(f"\n----- {page.name} -----\n{page.text}")
    name = (
        "the draft as you edited it" if pending.state.edited is not None else Path(pending.request.draft).name
    )
    click.echo(f"\n----- {name} -----")
    click.echo("\n".join(clean(line) for line in draft_text(context, pending).splitlines()) + "\n")


def _edit(context: "ReviewContext", pending: "PendingReview") -> "PendingReview":
    """Open the draft in the editor and keep what was saved."""
    from agentos.review.queue import draft_text, save_edit

    before = draft_text(context, pending)
    after = click.edit(before, extension=".md", require_save=False) or ""
    if not after.strip():
        raise click.UsageError("the edited text is empty: the draft was not changed and nothing was decided")
    if after == before:
        click.echo("The draft was not changed.")
        return pending
    save_edit(context, pending, after)
    click.echo("Your edited draft was saved.")
    return replace(pending, state=replace(pending.state, edited=after))


def _ask(context: "ReviewContext", pending: "PendingReview") -> int:
    while True:
        match click.prompt(MENU, type=click.Choice(list("asrel")), show_choices=False):
            case "a":
                return _conclude(context, pending, "approve", "")
            case "s":
                hint = "What should change" + (
                    " (empty: use the reviewer's feedback)" if _has_feedback(pending) else ""
                )
                text = click.prompt(hint, default="" if _has_feedback(pending) else None, show_default=False)
                return _conclude(context, pending, "send back", text)
            case "r":
                return _conclude(context, pending, "reject", click.prompt("Reason"))
            case "e":
                pending = _edit(context, pending)
            case _:
                click.echo(f"Nothing was decided. Come back with: agentos review {pending.parked_item.item}")
                return 0


def _decide(context: "ReviewContext", pending: "PendingReview", options: ReviewOptions) -> int:
    if options.approve:
        return _conclude(context, pending, "approve", "")
    if options.reject is not None:
        return _conclude(context, pending, "reject", options.reject)
    text = options.send_back or ""
    if not text.strip() and not _has_feedback(pending):
        raise click.UsageError(
            'no feedback: say what should change, such as --send-back "name the limit in section 2"'
        )
    return _conclude(context, pending, "send back", text)


def _conclude(context: "ReviewContext", pending: "PendingReview", action: str, text: str) -> int:
    from agentos.core.planning.gates import ReviewAction, ReviewDecision
    from agentos.review.queue import continue_command, decide, is_run_alive

    decision = ReviewDecision(ReviewAction(action), text.strip(), pending.state.edited)
    decide(context, pending, decision)
    click.echo(
        f"{pending.parked_item.item} is {decision.action.past_tense}: {_next_step(pending, decision)}."
    )
    if is_run_alive(context, pending.parked_item):
        click.echo(
            f"Run {pending.parked_item.run} is in progress and picks it up unless it ends first. Otherwise resume with:"
        )
    else:
        click.echo("Resume with:")
    click.echo(f"  {continue_command(context, pending.parked_item)}")
    return 0


def _next_step(pending: "PendingReview", decision: "ReviewDecision") -> str:
    if decision.action == "approve":
        return "it ends as approved" if pending.request.verdict else "it goes to review"
    if decision.action == "send back":
        return "a new draft will be written"
    return f"it ends as needs revision{', with your reason' if decision.text else ''}"


def _has_feedback(pending: "PendingReview") -> bool:
    """Whether the reviewer asked for changes, so that a draft can be sent back without text."""
    return bool(pending.request.verdict) and not pending.request.approved


class ReviewCommand(click.Command):
    """Takes the argument after --send-back or --reject as its text, even if it starts with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {name for param in self.params for name in param.opts} | {"--help", "-h"}
        protected = [
            f" {arg}" if before in ("--send-back", "--reject") and arg not in flags else arg
            for before, arg in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, protected)


command = ReviewCommand(
    "review",
    help="Decide on items that are waiting for a person; without ITEM, list them.",
    params=[
        click.Argument(["item"], required=False, shell_complete=completer(parked_items)),
        click.Option(["--approve"], is_flag=True, help="Send the draft to review, or approve a verdict."),
        click.Option(
            ["--send-back"],
            is_flag=False,
            flag_value="",
            metavar="[TEXT]",
            help="Ask for a new draft with TEXT, or else the reviewer's comments, as feedback.",
        ),
        click.Option(
            ["--reject"],
            is_flag=False,
            flag_value="",
            metavar="[TEXT]",
            help="End the item as needs revision, with TEXT as the reason.",
        ),
        click.Option(["--edit"], is_flag=True, help="Open the draft in $EDITOR first."),
        click.Option(["--show"], is_flag=True, help="Show the item and decide nothing."),
        json_option(),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (found upward from the current folder).",
        ),
    ],
    callback=_run,
    epilog="""\b
Examples:
  agentos review                                  list waiting items
  agentos review LLD-42                           read it, then decide
  agentos review LLD-42 --approve
  agentos review LLD-42 --send-back "name the limit in section 2"
  agentos review LLD-42 --reject "we do not want this"
  agentos review LLD-42 --edit --approve          approve the draft as you edited it""",
)
