"""The part of `agentos review` for a graph's own questions: shows what `interrupt()` was given, takes the answers."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from agentos.core.errors import UsageError

if TYPE_CHECKING:
    from agentos.core.planning.gates import Question
    from agentos.review.queue import PendingReview, ReviewContext


def question_subject(pending: "PendingReview") -> str:
    """What the item is waiting with, in a few words."""
    questions = pending.request.questions
    if pending.request.is_breakpoint:
        return f"stopped {questions[0].breakpoint},"
    return "question" if len(questions) == 1 else f"{len(questions)} questions"


def question_text(context: "ReviewContext", pending: "PendingReview") -> str:
    """What the graph asks, and what to type."""
    from agentos.core.text.line_assembler import one_line
    from agentos.outputs.format import clock

    parked, questions = pending.parked_item, pending.request.questions
    lines = [
        f"{parked.item}: {one_line(parked.title)}",
        f"  {question_subject(pending)} waiting since {clock(parked.at, time.time())} at {parked.node}",
    ]
    for number, question in enumerate(questions, 1):
        if not question.breakpoint:
            title = f"question {number}, " if len(questions) > 1 else ""
            lines += [f"\n----- {title}{question.node} -----", *_value_lines(question)]
    return "\n".join([*lines, "", f"Type: {_usage(context, pending)}"])


def ask_answers(context: "ReviewContext", pending: "PendingReview") -> bool:
    """Ask for each answer, as JSON on one line; return whether all were given."""
    from agentos.review.answers import is_json

    values: dict[str, object] = {}
    for number, question in enumerate(pending.request.questions, 1):
        text = click.prompt(
            f"Answer {number} as JSON" if len(pending.request.questions) > 1 else "Answer as JSON"
        )
        while not is_json(text):
            click.echo(
                f"That is not JSON: true, a number, an object, or a text in quotes: {json.dumps(text)}"
            )
            text = click.prompt("Answer as JSON")
        values[question.id] = json.loads(text)
    _record(context, pending, values)
    return True


def edit_answers(context: "ReviewContext", pending: "PendingReview") -> bool:
    """Open the questions in the editor, with a place for each answer; return whether they were answered."""
    from agentos.review.answers import answer_form, read_form

    text = form = answer_form(pending)
    while True:
        text = click.edit(text, extension=".json", require_save=False) or ""
        if text.strip() == form.strip():
            click.echo("Nothing was answered.")
            return False
        try:
            values = read_form(pending, text)
        except UsageError as error:
            click.echo(f"Nothing was answered: {error}")
            if not sys.stdin.isatty() or not click.confirm("Edit it again?", default=True):
                return False
        else:
            _record(context, pending, values)
            return True


def record_answers(context: "ReviewContext", pending: "PendingReview", texts: Sequence[str]) -> None:
    """Record the answers given with `--answer`."""
    from agentos.review.answers import answer, read_answers

    answer(context, pending, read_answers(pending, texts))
    click.echo(f"{pending.parked_item.item} is answered: its graph continues with your answer.")


def _record(context: "ReviewContext", pending: "PendingReview", values: Mapping[str, object]) -> None:
    from agentos.cli.review_prompt import say_how_to_continue
    from agentos.review.answers import answer

    answer(context, pending, values)
    click.echo(f"{pending.parked_item.item} is answered: its graph continues with your answer.")
    say_how_to_continue(context, [pending])


def _value_lines(question: "Question") -> list[str]:
    from agentos.core.text.line_assembler import clean

    value = json.loads(question.value)
    shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    lines = [clean(line) for line in shown.splitlines()]
    if question.schema:
        lines.append(f"expected answer: {clean(question.schema)}")
    return lines


def _usage(context: "ReviewContext", pending: "PendingReview") -> str:
    from agentos.review.queue import review_command

    item, questions = pending.parked_item.item, pending.request.questions
    if pending.request.is_breakpoint:
        return review_command(context, item, "--approve")
    flags = (
        "--answer JSON"
        if len(questions) == 1
        else " ".join(f"--answer {number}=JSON" for number in range(1, len(questions) + 1))
    )
    return review_command(context, item, flags)
