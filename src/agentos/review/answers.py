"""Answers to what a graph asks with `interrupt()`: read from text, checked, and recorded for the next run."""

import json
import shlex
from collections.abc import Mapping, Sequence

from agentos.core.errors import UsageError
from agentos.core.planning.gates import QuestionAnswer, ReviewAction, ReviewDecision
from agentos.core.protocol.codec import pack
from agentos.core.text.line_assembler import one_line
from agentos.review.queue import PendingReview, ReviewContext, undecided
from agentos.storage.review_notes import decision_note


def answer(context: ReviewContext, review: PendingReview, values: Mapping[str, object]) -> ReviewDecision:
    """Record the answers, by the ids of the questions; a run then resumes the graph with them."""
    item = review.parked_item.item
    if not review.asks:
        raise UsageError(
            f"{item} waits for a review, not for an answer: expected --approve, --send-back or --reject"
        )
    if review.request.is_breakpoint:
        raise UsageError(f"{item} asks nothing, it only waits: expected --approve to go on, or --reject")
    missing = [question for question in review.request.questions if question.id not in values]
    if missing:
        number = review.request.questions.index(missing[0]) + 1
        raise UsageError(
            f"question {number} of {item} has no answer: expected such as --answer {number}=JSON"
        )
    answers = tuple(QuestionAnswer(question, json.dumps(value)) for question, value in values.items())
    decision = ReviewDecision(ReviewAction.ANSWER, answers=answers)
    with undecided(context, review) as items:
        items.write_note(review.key, decision_note(review.request.number), json.dumps(pack(decision)))
    return decision


def read_answers(review: PendingReview, texts: Sequence[str]) -> dict[str, object]:
    """The answers by question id, from `JSON` for a single question, or `NUMBER=JSON` or `ID=JSON` for each."""
    questions = review.request.questions
    names = {
        **{str(number): each.id for number, each in enumerate(questions, 1)},
        **{each.id: each.id for each in questions},
    }
    found: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name.strip() not in names:
            if len(questions) != 1:
                raise UsageError(
                    f"{review.parked_item.item} asks {len(questions)} questions: expected --answer NUMBER=JSON for "
                    f"each, such as --answer 1={shlex.quote(text) if is_json(text) else 'true'}"
                )
            name, value = "1", text
        found[names[name.strip()]] = _from_json(value)
    return found


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _from_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        example = shlex.quote(json.dumps(text.strip(), ensure_ascii=False))
        raise UsageError(
            f"invalid answer {one_line(text)!r}: not JSON ({error}); a text needs quotes: {example}"
        ) from error


def answer_form(review: PendingReview) -> str:
    """What the editor shows: each question with an empty answer."""
    entries = [
        {"id": question.id, "node": question.node, "question": json.loads(question.value), "answer": None}
        for question in review.request.questions
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def read_form(review: PendingReview, text: str) -> dict[str, object]:
    """The answers by question id, from the form as the user saved it."""
    entries = _from_json(text)
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and {"id", "answer"} <= entry.keys() for entry in entries
    ):
        raise UsageError("the form was changed: expected a list with an id and an answer for each question")
    known = {question.id for question in review.request.questions}
    return {entry["id"]: entry["answer"] for entry in entries if entry["id"] in known}
