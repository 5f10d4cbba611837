"""The dialogue of `agentos review`: shows an item, asks what to do with it, and continues with the next one."""

import difflib
import shutil
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.review_answers import ask_answers, edit_answers, question_subject, question_text

if TYPE_CHECKING:
    from agentos.review.queue import PendingReview, ReviewContext

MENU = "Approve, send back, reject, edit, or decide later? [a/s/r/e/l, ? for all keys]"
HELP = """  a  approve: a draft goes to review; at a verdict, the document is approved
  s  send back: ask for a new draft, with your feedback
  r  reject: the item ends as needs revision, with your reason
  e  edit the draft in $EDITOR
  v  view the item again
  d  show what changed since the previous draft
  n  next item, without deciding on this one
  l  decide later: quit (or q)
  ?  show these keys"""


QUESTION_MENU = "Answer, edit the answer, reject, or decide later? [a/e/r/l, ? for all keys]"
BREAKPOINT_MENU = "Approve to continue, reject, or decide later? [a/r/l, ? for all keys]"
_OTHER_KEYS = """  r  reject: the item ends as failed, with your reason
  v  view the item again
  n  next item, without deciding on this one
  l  decide later: quit (or q)
  ?  show these keys"""
QUESTION_HELP = f"""  a  answer here, as JSON on one line
  e  write the answer in $EDITOR
{_OTHER_KEYS}"""
BREAKPOINT_HELP = f"""  a  approve: the graph continues
{_OTHER_KEYS}"""


class Answer(StrEnum):
    """How the dialogue about one item ended."""

    DECIDED = "decided"
    NEXT = "next"
    QUIT = "quit"


def ask_about(
    context: "ReviewContext", named: "Sequence[PendingReview]", others: "Sequence[PendingReview]" = ()
) -> int:
    """Ask about the named items one after the other; then offer the others that are waiting."""
    answer, reviews = Answer.NEXT, [*named, *others]
    for number, pending in enumerate(reviews):
        if number >= len(named) and answer is Answer.DECIDED:
            item = pending.parked_item.item
            if not _goes_on(f"{len(reviews) - number} more waiting. Go on with {item}?"):
                break
        show(item_text(context, pending))
        answer = (_ask_graph if pending.is_question else _ask)(
            context, pending, is_last=number == len(reviews) - 1
        )
        if answer is Answer.QUIT:
            break
    return 0


def _goes_on(question: str) -> bool:
    """Ask; `q` is a no, as at the other prompts."""
    keys = click.Choice(["y", "yes", "n", "no", "q"], case_sensitive=False)
    answer: str = click.prompt(f"{question} [Y/n]", "y", type=keys, show_choices=False, show_default=False)
    return answer.startswith("y")


def _ask(context: "ReviewContext", pending: "PendingReview", is_last: bool) -> Answer:
    while True:
        # Named here too, because a pager leaves nothing of the item on the screen.
        match click.prompt(
            f"{pending.parked_item.item}: {MENU}", type=click.Choice(list("asrevdnlq?")), show_choices=False
        ):
            case "e":
                pending = edit(context, pending)
            case "n" if is_last:
                click.echo("This is the last one that is waiting.")
            case "n":
                return Answer.NEXT
            case "l" | "q":
                _say_undecided(context, pending)
                return Answer.QUIT
            case "a" | "s" | "r" as key:
                _conclude_by_key(context, pending, key)
                return Answer.DECIDED
            case key:
                texts = {"v": item_text, "d": diff_text}
                show(texts[key](context, pending) if key in texts else HELP)


def _ask_graph(context: "ReviewContext", pending: "PendingReview", is_last: bool) -> Answer:
    """The dialogue about a graph's questions: an answer to each of them, or approval at a breakpoint."""
    is_breakpoint = pending.request.is_breakpoint
    while True:
        keys = "arvnlq?" if is_breakpoint else "aervnlq?"
        menu = BREAKPOINT_MENU if is_breakpoint else QUESTION_MENU
        match click.prompt(
            f"{pending.parked_item.item}: {menu}", type=click.Choice(list(keys)), show_choices=False
        ):
            case "n" if is_last:
                click.echo("This is the last one that is waiting.")
            case "n":
                return Answer.NEXT
            case "l" | "q":
                _say_undecided(context, pending)
                return Answer.QUIT
            case "a" if is_breakpoint:
                conclude(context, pending, "approve", "")
                return Answer.DECIDED
            case "a" | "e" as key:
                if (ask_answers if key == "a" else edit_answers)(context, pending):
                    return Answer.DECIDED
            case "r":
                conclude(context, pending, "reject", click.prompt("Reason"))
                return Answer.DECIDED
            case "v":
                show(question_text(context, pending))
            case _:
                click.echo(BREAKPOINT_HELP if is_breakpoint else QUESTION_HELP)


def _say_undecided(context: "ReviewContext", pending: "PendingReview") -> None:
    from agentos.review.queue import review_command

    command = review_command(context, pending.parked_item.item)
    click.echo(f"Nothing was decided. Come back with: {command}")


def _conclude_by_key(context: "ReviewContext", pending: "PendingReview", key: str) -> None:
    match key:
        case "a":
            conclude(context, pending, "approve", "")
        case "s":
            hint = "What should change" + (
                " (empty: use the reviewer's feedback)" if pending.has_feedback else ""
            )
            text = click.prompt(hint, default="" if pending.has_feedback else None, show_default=False)
            conclude(context, pending, "send back", text)
        case _:
            conclude(context, pending, "reject", click.prompt("Reason"))


def show(text: str) -> None:
    """Print a text; on a terminal, one that is longer than the screen goes through the pager."""
    is_long = text.count("\n") >= shutil.get_terminal_size().lines - 1
    if is_long and sys.stdin.isatty() and sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text)


def item_text(context: "ReviewContext", pending: "PendingReview") -> str:
    """The item with its history, its verdict and its draft."""
    from agentos.core.text.line_assembler import clean, one_line
    from agentos.outputs.format import clock
    from agentos.review.queue import change_text, draft_text, lineage

    if pending.is_question:
        return question_text(context, pending)
    parked, pages = pending.parked_item, lineage(context, pending.parked_item)
    width = max((len(page.name) for page in pages), default=0)
    edited = pending.state.edited is not None
    name = "the draft as you edited it" if edited else Path(pending.request.draft).name
    draft = [clean(line) for line in draft_text(context, pending).splitlines()]
    return "\n".join(
        [
            f"{parked.item}: {one_line(parked.title)}",
            f"  {subject(pending)} waiting since {clock(parked.at, time.time())} at {parked.node}",
            *(f"  {text}" for text in [change_text(context, pending)] if text),
            f"  history in {parked.lineage}/:",
            *(f"    {page.name:<{width}}  {page.heading}" for page in pages),
            *(
                f"\n----- {page.name} -----\n{page.text}"
                for page in pages
                if pending.request.verdict.endswith(f"/{page.name}")
            ),
            f"\n----- {name} -----",
            *draft,
            "",
        ]
    )


def diff_text(context: "ReviewContext", pending: "PendingReview") -> str:
    """What changed since the previous draft: by the model, or by the user's own edit."""
    from agentos.core.text.line_assembler import clean
    from agentos.outputs.colour import painter, unpainted
    from agentos.review.queue import draft_text, previous_draft

    if pending.is_question:
        return f"{pending.parked_item.item} has no drafts to compare: its graph asks a question."
    previous = previous_draft(context, pending)
    if previous is None:
        return f"This is the first draft of {pending.parked_item.item}: there is nothing to compare it with."
    name = "edited" if pending.state.edited is not None else Path(pending.request.draft).name
    lines = [clean(line) for line in draft_text(context, pending).splitlines()]
    found = list(difflib.unified_diff(previous.text.splitlines(), lines, previous.name, name, lineterm=""))
    if not found:
        return f"Nothing has changed since {previous.name}."
    plain = painter() is unpainted
    return "\n".join(line if plain else _coloured(line) for line in found)


def _coloured(line: str) -> str:
    colour = {"+": 32, "-": 31, "@": 36}.get(line[:1])
    return f"\x1b[{colour}m{line}\x1b[0m" if colour else line


def subject(pending: "PendingReview") -> str:
    request = pending.request
    if pending.is_question:
        return question_subject(pending)
    if not request.verdict:
        return f"draft {request.round}"
    return f"verdict on draft {request.round} ({'approved' if request.approved else 'needs revision'})"


def edit(context: "ReviewContext", pending: "PendingReview") -> "PendingReview":
    """Open the draft in the editor and keep what was saved."""
    from agentos.config.settings import environment
    from agentos.review.queue import draft_text, save_edit

    if not sys.stdin.isatty() and not {"VISUAL", "EDITOR"} & environment().keys():
        raise click.UsageError(
            "no editor: stdin is not a terminal, and neither VISUAL nor EDITOR names a program"
        )
    before = draft_text(context, pending)
    after = click.edit(before, extension=".md", require_save=False) or ""
    if after == before:
        click.echo("The draft was not changed.")
        return pending
    edited = save_edit(context, pending, after)
    click.echo("Your edited draft was saved.")
    return edited


def conclude(context: "ReviewContext", pending: "PendingReview", action: str, text: str) -> None:
    """Record a decision and say what happens next."""
    record(context, pending, action, text)
    say_how_to_continue(context, [pending])


def record(context: "ReviewContext", pending: "PendingReview", action: str, text: str) -> None:
    from agentos.core.planning.gates import ReviewAction
    from agentos.review.queue import decide, next_step

    decision = decide(context, pending, ReviewAction(action), text)
    click.echo(f"{pending.parked_item.item} is {decision.action.past_tense}: {next_step(pending, decision)}.")


def say_how_to_continue(context: "ReviewContext", decided: "Sequence[PendingReview]") -> None:
    """Print how to continue: each run and each command once, however many items were decided."""
    from agentos.review.queue import SourceChange, continue_command, is_run_alive

    decided = [pending for pending in decided if pending.change is not SourceChange.GONE]
    if not decided:
        return
    alive = {pending.parked_item.run for pending in decided if is_run_alive(context, pending.parked_item)}
    for run in sorted(alive):
        click.echo(f"Run {run} is in progress and picks it up unless it ends first. Otherwise resume with:")
    if not alive:
        click.echo(
            "The fleet continues. Follow it and collect its documents with:"
            if context.fleet
            else "Resume with:"
        )
    for command in dict.fromkeys(continue_command(context, pending.parked_item) for pending in decided):
        click.echo(f"  {command}")
