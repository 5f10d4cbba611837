"""Answers to what a graph asks with `interrupt()`: read from text, checked, and recorded for the next run."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from agentos.core.errors import UsageError
from agentos.core.planning.gates import QuestionAnswer, ReviewAction, ReviewDecision
from agentos.core.protocol.codec import pack
from agentos.core.text.line_assembler import one_line
from agentos.review.queue import PendingReview, ReviewContext, undecided
from agentos.storage.review_notes import decision_note

MAX_SHOWN = 80  # characters of an invalid answer
_NAME = re.compile(r"[0-9]{1,3}|[0-9a-f]{32}")  # the number of a question, or its id


def answer(context: ReviewContext, review: PendingReview, values: Mapping[str, object]) -> ReviewDecision:
    """Record the answers, by the ids of the questions; a run then resumes the graph with them."""
    item = review.parked_item.item
    _check_is_question(review)
    missing = [question for question in review.request.questions if question.id not in values]
    if missing:
        number = review.request.questions.index(missing[0]) + 1
        raise UsageError(
            f"question {number} of {item} has no answer: expected, for example, --answer {number}=JSON"
        )
    answers = tuple(QuestionAnswer(question, json.dumps(value)) for question, value in values.items())
    decision = ReviewDecision(ReviewAction.ANSWER, answers=answers)
    with undecided(context, review) as items:
        items.write_note(review.key, decision_note(review.request.number), json.dumps(pack(decision)))
    return decision


def read_answers(review: PendingReview, texts: Sequence[str]) -> dict[str, object]:
    """The answers by question id, from `JSON` for a single question, or `NUMBER=JSON` or `ID=JSON` for each."""
    _check_is_question(review)
    questions = review.request.questions
    names = {
        **{str(number): each.id for number, each in enumerate(questions, 1)},
        **{each.id: each.id for each in questions},
    }
    found: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name.strip() not in names:
            if separator and _NAME.fullmatch(name.strip()):
                ids = ", ".join(names)
                raise UsageError(f"{review.parked_item.item} has no question {name.strip()}: expected {ids}")
            if len(questions) != 1:
                raise UsageError(
                    f"{review.parked_item.item} asks {len(questions)} questions: expected --answer NUMBER=JSON for "
                    f"each, such as --answer {shlex.quote(f'1={text.strip()}') if is_json(text) else '1=true'}"
                )
            name, value = "1", text
        question = names[name.strip()]
        if question in found:
            raise UsageError(f"{review.parked_item.item} has two answers to one question: expected one")
        found[question] = _from_json(value)
    return found


def _check_is_question(review: PendingReview) -> None:
    """Raise UsageError if the item waits for a decision, not for an answer."""
    item = review.parked_item.item
    if not review.is_question:
        raise UsageError(
            f"{item} waits for a review, not for an answer: expected --approve, --send-back or --reject"
        )
    if review.request.is_breakpoint:
        raise UsageError(
            f"{item} asks no question, it only pauses: expected --approve to continue, or --reject"
        )


def is_json(text: str) -> bool:
    try:
        _from_json(text)
    except UsageError:
        return False
    return True


def _from_json(text: str) -> object:
    """The value; raises for what JSON does not have, such as NaN, and for lone surrogates, which cannot be stored."""
    text = text.strip()
    try:
        value: object = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        shown = one_line(text.encode("utf-8", "replace").decode())
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
        example = f"; a text needs quotes: {shlex.quote(json.dumps(shown, ensure_ascii=False))}"
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"invalid answer {shown!r}: not JSON ({reason}){example}") from error
    return value


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def answer_form(review: PendingReview) -> str:
    """What the editor shows: each question with `null` in place of its answer."""
    entries = [
        {"id": question.id, "node": question.node, "question": json.loads(question.value), "answer": None}
        for question in review.request.questions
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def read_form(review: PendingReview, text: str) -> dict[str, object]:
    """The answers by question id, from the form as the user saved it. An answer that is still `null` is missing."""
    try:
        entries = _from_json(text)
    except UsageError as error:
        if not isinstance(cause := error.__cause__, json.JSONDecodeError):
            raise
        where = f"line {cause.lineno}, column {cause.colno}"
        raise UsageError(f"the form is not JSON at {where} ({cause.msg}); a text needs quotes") from cause
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and {"id", "answer"} <= entry.keys() for entry in entries
    ):
        raise UsageError("the form was changed: expected a list with an id and an answer for each question")
    given = {entry["id"]: entry["answer"] for entry in entries if entry["answer"] is not None}
    for number, question in enumerate(review.request.questions, 1):
        if question.id not in given:
            raise UsageError(
                f"question {number} has no answer: null stands for none; to answer with null itself, use --answer "
                "instead of the editor"
            )
    return {question.id: given[question.id] for question in review.request.questions}
