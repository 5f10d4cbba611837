"""`agentos review`: lists parked items and records a person's decision on them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import json_option, print_json
from agentos.cli.review_answers import edit_answers, record_answers
from agentos.cli.review_prompt import (
    ask_about,
    diff_text,
    edit,
    item_text,
    record,
    say_how_to_continue,
    show,
    subject,
)
from agentos.cli.shell_complete import completer, parked_items

if TYPE_CHECKING:
    from agentos.review.queue import PendingReview, ReviewContext

NO_TERMINAL = (
    "nothing was decided: stdin is not a terminal. Decide with a flag: --approve, --send-back TEXT or "
    "--reject TEXT, each optionally with --edit; or only read the item with --show"
)
NO_TERMINAL_TO_ANSWER = (
    "nothing was answered: stdin is not a terminal. Answer with --answer JSON, or only read it with --show"
)
NO_TERMINAL_TO_GO_ON = "nothing was decided: stdin is not a terminal. Decide with --approve or --reject TEXT, or only read it with --show"


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """The flags as click parsed them."""

    items: tuple[str, ...]
    approve: bool
    send_back: str | None
    reject: str | None
    edit: bool
    show: bool
    diff: bool
    repo: Path | None
    answer: tuple[str, ...] = ()
    as_json: bool = False
    fleet: bool = False

    @property
    def decides(self) -> bool:
        return bool(self.answer) or self.approve or self.send_back is not None or self.reject is not None


def _run(**parsed: object) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext
    from agentos.storage.home import Home

    options = ReviewOptions(**parsed)  # type: ignore[arg-type]
    _check(options)
    settings = read_settings(Flags(repo=options.repo))
    if options.fleet:
        from agentos.cli.fleet import fleet_reviews

        with fleet_reviews(settings) as items:
            return _review(ReviewContext(settings.project, Home(settings.home), None, items), options)
    context = ReviewContext(settings.project, Home(settings.home), settings.database)
    if not options.items:
        _check_project(context)
    if not settings.fleet.project:
        return _review(context, options)
    return _review_beside_fleet(context, options)


def _review_beside_fleet(context: "ReviewContext", options: ReviewOptions) -> int:
    """As `_review`, for a project that is also on a fleet, whose items are listed only with `--fleet`."""
    from agentos.core.errors import NothingMatches

    try:
        code = _review(context, options)
    except NothingMatches as error:
        raise NothingMatches(
            f"{error}; on the fleet: agentos review --fleet {' '.join(options.items)}"
        ) from error
    if not options.items and not options.as_json:
        click.echo("Items on the fleet: agentos review --fleet")
    return code


def _check_project(context: "ReviewContext") -> None:
    """Raise PreflightError if this folder is not a project: it has no files of one, and no run has worked here."""
    from agentos.config.project import is_project
    from agentos.core.errors import PreflightError

    if (
        not is_project(context.project)
        and not context.database
        and not context.home.locks(context.project).exists()
    ):
        raise PreflightError(
            f"no project here: {context.project} has neither a backlog nor agentos.toml, and no run has worked on it. "
            "Go to a project, or name one with --repo PATH"
        )


def _review(context: "ReviewContext", options: ReviewOptions) -> int:
    from agentos.review.queue import SourceChange, find_reviews, others_waiting, with_changes

    if not options.items:
        return _list_json(context) if options.as_json else _list(context)
    reviews = with_changes(context, find_reviews(context, options.items))
    is_dropped = options.reject is not None and reviews[0].change is SourceChange.GONE
    if len(reviews) == 1 and reviews[0].state.decision is not None and not is_dropped:
        return _report_decided(context, reviews[0], decides=options.decides or options.edit)
    if options.edit and reviews[0].is_question:
        return 0 if edit_answers(context, reviews[0]) else 1
    if options.decides:
        return _decide(context, [edit(context, reviews[0])] if options.edit else reviews, options)
    if sys.stdin.isatty() and not options.show and not options.diff:
        named = [edit(context, reviews[0])] if options.edit else reviews
        return ask_about(context, named, others_waiting(context, reviews))
    if not options.show and not options.diff:
        is_breakpoint = reviews[0].request.is_breakpoint
        to_answer = NO_TERMINAL_TO_GO_ON if is_breakpoint else NO_TERMINAL_TO_ANSWER
        raise click.UsageError(to_answer if reviews[0].is_question else NO_TERMINAL)
    for pending in reviews:
        show(diff_text(context, pending) if options.diff else item_text(context, pending))
    return 0


def _check(options: ReviewOptions) -> None:
    chosen = [
        options.approve,
        options.send_back is not None,
        options.reject is not None,
        bool(options.answer),
        options.show,
        options.diff,
    ]
    if sum(chosen) > 1:
        raise click.UsageError(
            "--approve, --send-back, --reject, --answer, --show and --diff exclude each other: choose one"
        )
    if options.edit and (len(options.items) > 1 or any(".." in item for item in options.items)):
        raise click.UsageError("--edit opens one draft: name one item")
    if options.edit and options.answer:
        raise click.UsageError("--edit opens a draft or the answers in the editor: use it without --answer")
    if options.as_json and (options.items or any(chosen) or options.edit):
        raise click.UsageError("--json lists the waiting items: use it without ITEM and other flags")
    if not options.items and (any(chosen) or options.edit):
        from agentos.core.text.values import shortened

        text = (options.reject or options.send_back or "").strip()
        flag = "--reject" if options.reject is not None else "--send-back"
        read = f' ("{shortened(text)}" was read as the text of {flag})' if text else ""
        raise click.UsageError(
            f'no item is named{read}; type, for example: agentos review LLD-42 {flag} "what to change"'
        )


def _list_json(context: "ReviewContext") -> int:
    from agentos.review.queue import pending_reviews, review_json

    found = pending_reviews(context)
    print_json({"project": str(context.project), "items": [review_json(pending) for pending in found]})
    return 0


def _list(context: "ReviewContext") -> int:
    from agentos.core.text.line_assembler import one_line
    from agentos.core.text.values import MAX_TITLE, shortened
    from agentos.outputs.format import clock
    from agentos.review.queue import (
        SourceChange,
        change_text,
        continue_command,
        pending_reviews,
        review_command,
        with_changes,
    )

    found = with_changes(context, pending_reviews(context))
    undecided = [pending for pending in found if pending.state.decision is None and not pending.change]
    width = max((len(pending.parked_item.item) for pending in found), default=0)
    for pending in found:
        parked, decision = pending.parked_item, pending.state.decision
        parts = [
            f"{subject(pending)} waiting since {clock(parked.at, time.time())}: "
            f"{shortened(one_line(parked.title), MAX_TITLE)}"
        ]
        if decision:
            parts = [decision.action.past_tense]
        parts += [text for text in [change_text(context, pending)] if text]
        if decision and pending.change is not SourceChange.GONE:
            parts.append(f"resume with: {continue_command(context, parked)}")
        click.echo(f"{parked.item:<{width}}  {'; '.join(parts)}")
    if undecided:
        command = review_command(context, undecided[0].parked_item.item)
        click.echo(f"Read one and decide: {command}")
    elif not found:
        click.echo(
            "No items are waiting for a person. They do after a run with --review, or when a graph asks with interrupt()"
        )
    return 0


def _report_decided(context: "ReviewContext", pending: "PendingReview", decides: bool) -> int:
    from agentos.core.errors import NothingMatches
    from agentos.review.queue import SourceChange, change_text, continue_command

    assert pending.state.decision
    change = change_text(context, pending)
    following = f"resume with: {continue_command(context, pending.parked_item)}"
    if pending.change is not None:
        following = change if pending.change is SourceChange.GONE else f"{change}; {following}"
    text = f"{pending.parked_item.item} was already {pending.state.decision.action.past_tense}; {following}"
    if decides:
        raise NothingMatches(text)
    click.echo(text)
    return 0


def _decide(context: "ReviewContext", reviews: "Sequence[PendingReview]", options: ReviewOptions) -> int:
    """Record the same decision for each item; items for which that fails are reported and skipped."""
    from agentos.core.errors import AgentosError

    action = "approve" if options.approve else "reject" if options.reject is not None else "send back"
    code, decided = 0, []
    for pending in reviews:
        try:
            if options.answer:
                record_answers(context, pending, options.answer)
            else:
                record(context, pending, action, options.reject or options.send_back or "")
            decided.append(pending)
        except AgentosError as error:
            if len(reviews) == 1:
                raise
            click.echo(f"Error: {error}", err=True)
            code = error.exit_code
    if decided:
        say_how_to_continue(context, decided)
    return code


class ReviewCommand(click.Command):
    """Takes the argument after --send-back or --reject as its text, even if it starts with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {name for param in self.params for name in param.opts} | {"--help", "-h"}
        protected = [
            f" {arg}" if before in ("--send-back", "--reject", "--answer") and arg not in flags else arg
            for before, arg in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, protected)


command = ReviewCommand(
    "review",
    help="Decide on items that are waiting for a person; without ITEM, list them. An ITEM is an id, a number or a "
    "range (LLD-40..45).",
    params=[
        click.Argument(["items"], nargs=-1, metavar="[ITEM]...", shell_complete=completer(parked_items)),
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
        click.Option(
            ["--answer"],
            multiple=True,
            metavar="JSON",
            help="Answer what the item's graph asks; NUMBER=JSON for each of several questions.",
        ),
        click.Option(["--edit"], is_flag=True, help="Open the draft, or the answers, in $EDITOR first."),
        click.Option(["--show"], is_flag=True, help="Show the item and decide nothing."),
        click.Option(
            ["--fleet"], is_flag=True, help="Items of the fleet, which continue once they are decided."
        ),
        click.Option(["--diff"], is_flag=True, help="Show what changed since the previous draft."),
        json_option(),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="Project folder (default: the current folder or a parent).",
        ),
    ],
    callback=_run,
    epilog="""\b
Examples:
  agentos review                                  list waiting items
  agentos review LLD-42                           read it, then decide
  agentos review LLD-42 --approve
  agentos review --approve LLD-40..45             several at once
  agentos review LLD-42 --diff                    compare with the previous draft
  agentos review LLD-42 --send-back "name the limit in section 2"
  agentos review LLD-42 --reject "we do not want this"
  agentos review LLD-42 --edit --approve          approve the draft as you edited it
  agentos review TOPICS-7 --answer '{"ok": true}'   answer an interrupt() of your own graph""",
)
