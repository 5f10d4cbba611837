"""`agentos review`: a person's word on items that are parked."""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.shell_complete import completer, parked

if TYPE_CHECKING:
    from agentos.core.planning.gates import ReviewDecision
    from agentos.review.queue import PendingReview, ReviewContext

NO_TERMINAL = (
    "nothing was decided: the input is not a terminal. Say it with a flag: --approve, --send-back TEXT or "
    "--reject TEXT, each also with --edit; or only look, with --show"
)
MENU = "Approve, send back, reject, edit, or decide later? [a/s/r/e/l]"
ORDER = 'name the item first: agentos review LLD-42 --send-back "what is to change"'


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """The flags as they were given."""

    item: str | None
    approve: bool
    send_back: str | None
    reject: str | None
    edit: bool
    show: bool
    repo: Path | None

    @property
    def decides(self) -> bool:
        return self.approve or self.send_back is not None or self.reject is not None


def _run(**given: object) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.review.queue import ReviewContext, find_review
    from agentos.storage.home import Home

    words = ReviewOptions(**given)  # type: ignore[arg-type]
    _check(words)
    settings = read_settings(Flags(repo=words.repo))
    place = ReviewContext(settings.project, Home(settings.home), settings.database)
    if words.item is None:
        return _list(place)
    one = find_review(place, words.item)
    if one.state.decision is not None:
        return _tell_decided(place, one, decides=words.decides or words.edit)
    if not words.decides:
        _show(place, one)
    if words.show:
        return 0
    if not words.decides and not sys.stdin.isatty():
        raise click.UsageError(NO_TERMINAL)
    if words.edit:
        one = _edit(place, one)
    return _decide(place, one, words) if words.decides else _ask(place, one)


def _check(words: ReviewOptions) -> None:
    said = [words.approve, words.send_back is not None, words.reject is not None, words.show]
    if sum(said) > 1:
        raise click.UsageError("say one of --approve, --send-back, --reject and --show")
    if words.item is None and (any(said) or words.edit):
        raise click.UsageError(ORDER)


def _list(place: "ReviewContext") -> int:
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import clock
    from agentos.review.queue import command_for, continue_command, pending_reviews

    found = pending_reviews(place)
    open_ones = [one for one in found if one.state.decision is None]
    width = max((len(one.parked_item.item) for one in found), default=0)
    for one in found:
        parking, decision = one.parked_item, one.state.decision
        state = (
            f"{decision.action.past_tense}, goes on with: {continue_command(place, parking)}"
            if decision
            else f"{_subject(one)} waits since {clock(parking.at, time.time())}: {one_line(parking.title)}"
        )
        click.echo(f"{parking.item:<{width}}  {state}")
    if open_ones:
        click.echo(
            f"Read one and decide: {command_for(place, f'agentos review {open_ones[0].parked_item.item}')}"
        )
    elif not found:
        click.echo("Nothing waits for a person. Ask for it with: lld-workflow --all --review draft")
    return 0


def _subject(one: "PendingReview") -> str:
    asked = one.request
    if not asked.verdict:
        return f"draft {asked.round}"
    return f"verdict on draft {asked.round} ({'approved' if asked.approved else 'needs revision'})"


def _tell_decided(place: "ReviewContext", one: "PendingReview", decides: bool) -> int:
    from agentos.core.errors import NothingMatches
    from agentos.review.queue import continue_command

    assert one.state.decision
    said = f"{one.parked_item.item} was {one.state.decision.action.past_tense} by a person"
    told = f"{said}; it goes on with: {continue_command(place, one.parked_item)}"
    if decides:
        raise NothingMatches(told)
    click.echo(told)
    return 0


def _show(place: "ReviewContext", one: "PendingReview") -> None:
    from agentos.core.text.line_assembler import clean, one_line
    from agentos.outputs.format import clock
    from agentos.review.queue import draft_text, lineage

    parking, pages = one.parked_item, lineage(place, one.parked_item)
    click.echo(f"{parking.item}: {one_line(parking.title)}")
    click.echo(f"  {_subject(one)} waits since {clock(parking.at, time.time())} at {parking.node}")
    click.echo(f"  history, in {parking.lineage}/:")
    width = max((len(page.name) for page in pages), default=0)
    for page in pages:
        click.echo(f"    {page.name:<{width}}  {page.heading}")
    for page in pages:
        if one.request.verdict.endswith(f"/{page.name}"):
            click.echo(f"\n----- {page.name} -----\n{page.text}")
    name = "the draft as you edited it" if one.state.edited is not None else Path(one.request.draft).name
    click.echo(f"\n----- {name} -----")
    click.echo("\n".join(clean(line) for line in draft_text(place, one).splitlines()) + "\n")


def _edit(place: "ReviewContext", one: "PendingReview") -> "PendingReview":
    """Opens the editor; what comes out of it is the draft from now on."""
    from agentos.review.queue import draft_text, save_edit

    before = draft_text(place, one)
    after = click.edit(before, extension=".md", require_save=False) or ""
    if not after.strip():
        raise click.UsageError("the editor left nothing: the draft stays as it was, and nothing was decided")
    if after == before:
        click.echo("The draft was not changed.")
        return one
    save_edit(place, one, after)
    click.echo("The draft is now as you edited it.")
    return replace(one, state=replace(one.state, edited=after))


def _ask(place: "ReviewContext", one: "PendingReview") -> int:
    while True:
        match click.prompt(MENU, type=click.Choice(list("asrel")), show_choices=False):
            case "a":
                return _conclude(place, one, "approve", "")
            case "s":
                hint = "What is to change" + (" (empty: what the reviewer says)" if _revises(one) else "")
                text = click.prompt(hint, default="" if _revises(one) else None, show_default=False)
                return _conclude(place, one, "send back", text)
            case "r":
                return _conclude(place, one, "reject", click.prompt("Why"))
            case "e":
                one = _edit(place, one)
            case _:
                click.echo(f"Nothing was decided. Come back with: agentos review {one.parked_item.item}")
                return 0


def _decide(place: "ReviewContext", one: "PendingReview", words: ReviewOptions) -> int:
    if words.approve:
        return _conclude(place, one, "approve", "")
    if words.reject is not None:
        return _conclude(place, one, "reject", words.reject)
    text = words.send_back or ""
    if not text.strip() and not _revises(one):
        raise click.UsageError('say what is to change: --send-back "the second section lacks a limit"')
    return _conclude(place, one, "send back", text)


def _conclude(place: "ReviewContext", one: "PendingReview", act: str, text: str) -> int:
    from agentos.core.planning.gates import ReviewAction, ReviewDecision
    from agentos.review.queue import continue_command, decide, is_run_alive

    decision = ReviewDecision(ReviewAction(act), text.strip(), one.state.edited)
    decide(place, one, decision)
    click.echo(f"{one.parked_item.item} is {decision.action.past_tense}: {_following(one, decision)}.")
    if is_run_alive(place, one.parked_item):
        click.echo(
            f"Run {one.parked_item.run} is under way and takes it up while it has other work. Else go on with:"
        )
    else:
        click.echo("Go on with:")
    click.echo(f"  {continue_command(place, one.parked_item)}")
    return 0


def _following(one: "PendingReview", decision: "ReviewDecision") -> str:
    if decision.action == "approve":
        return "its verdict is approved" if one.request.verdict else "it goes on to its review"
    if decision.action == "send back":
        return "a new draft is next"
    return f"it ends as needs revision{', with your reasons' if decision.text else ''}"


def _revises(one: "PendingReview") -> bool:
    """Whether there is a reviewer's feedback that a draft can be sent back with."""
    return bool(one.request.verdict) and not one.request.approved


class ReviewCommand(click.Command):
    """Takes what follows --send-back or --reject for its text, also when it begins with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {name for param in self.params for name in param.opts} | {"--help", "-h"}
        words = [
            f" {word}" if before in ("--send-back", "--reject") and word not in flags else word
            for before, word in zip(["", *args], args, strict=False)
        ]
        return super().parse_args(ctx, words)


command = ReviewCommand(
    "review",
    help="Decide on items that are parked for a person; without ITEM, list them.",
    params=[
        click.Argument(["item"], required=False, shell_complete=completer(parked)),
        click.Option(["--approve"], is_flag=True, help="The draft goes to review; a verdict is approved."),
        click.Option(
            ["--send-back"],
            is_flag=False,
            flag_value="",
            metavar="[TEXT]",
            help="A new draft, with TEXT as feedback; without it, with what the reviewer says.",
        ),
        click.Option(
            ["--reject"],
            is_flag=False,
            flag_value="",
            metavar="[TEXT]",
            help="The item ends as needs revision, with TEXT as the reason.",
        ),
        click.Option(["--edit"], is_flag=True, help="Open the draft in $EDITOR first."),
        click.Option(["--show"], is_flag=True, help="Only show the item."),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path, file_okay=False),
            help="The project's folder (this one).",
        ),
    ],
    callback=_run,
    epilog="""\b
Examples:
  agentos review                                  what waits
  agentos review LLD-42                           read it, then decide
  agentos review LLD-42 --approve
  agentos review LLD-42 --send-back "name the limit in section 2"
  agentos review LLD-42 --reject "we do not want this"
  agentos review LLD-42 --edit --approve          with the draft as you edited it""",
)
