"""Asks models for drafts and reviews. If an answer is cut off, empty or unreadable, it asks once more; if that answer
is no better, the item fails."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentos.core.errors import EmptyAnswer, ItemError
from agentos.core.planning.review_parser import Review, UnreadableReview, read_review
from agentos.core.protocol.ports import ModelRequest, ModelResponse
from agentos.core.protocol.results import FinishReason
from agentos.core.text.answer_text import apply_revision, has_sections, unwrap
from agentos.workflows.node_context import NodeContext

WORDS_PER_TOKEN = 0.6  # for English Markdown
FIXES = {
    FinishReason.LENGTH: "raise max_output_tokens in agentos.toml, or split the item",
    FinishReason.FILTERED: "the provider withheld it: change the item's text, or choose another model",
}
NO_SECTION = "contains no section: each begins with a heading in a line that starts with ##"


@dataclass(frozen=True, slots=True)
class _Draft:
    """A draft as the model wrote it. `problem` says why it cannot be used, and is empty if it can."""

    text: str
    model: str
    finish: FinishReason
    problem: str


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """A complete document, and the model that wrote or revised it."""

    text: str
    model: str


@dataclass(frozen=True, slots=True)
class ModelReview:
    review: Review
    model: str


async def ask_for_draft(context: NodeContext, call: str, request: ModelRequest, previous: str) -> ModelDraft:
    """Return a complete document. To revise `previous`, the model writes only the changed sections; the others are kept.

    `call` names the model call in the checkpoint, from which a resumed item takes the answer.
    """
    draft = await _draft(context, call, request, previous)
    if draft.problem:
        context.say(f"The answer {draft.problem}: asking once more")
        draft = await _draft(context, f"{call}-again", _ask_again(context, request, draft.problem), previous)
    if draft.problem:
        await context.forget(call, f"{call}-again")
        details = (FIXES[draft.finish],) if draft.finish in FIXES else ()
        raise ItemError(f"no complete draft after two calls: the last answer {draft.problem}", details)
    text = apply_revision(previous, draft.text) if previous else f"{draft.text}\n"
    return ModelDraft(text, draft.model)


async def ask_for_review(
    context: NodeContext, call: str, request: ModelRequest, earlier: Sequence[int]
) -> ModelReview:
    """Return a review that says for each point of earlier reviews, given by number, whether it is resolved."""
    try:
        return await _review(context, call, request, earlier)
    except UnreadableReview as error:
        problem = str(error)
    context.say(f"The review cannot be read ({problem}): asking once more")
    again = _ask_again(context, request, problem)
    try:
        return await _review(context, f"{call}-again", again, earlier, lenient=True)
    except _UnreadableAnswer as error:
        await context.forget(call, f"{call}-again")
        raise ItemError(
            f"the reviewer's answers cannot be read ({error.size}; does the server support response_format?)",
            (f"the last answer: {error}",),
        ) from error


class _UnreadableAnswer(UnreadableReview):
    """An answer that cannot be parsed; `size` says how long it was and whether it was cut off."""

    def __init__(self, problem: str, size: str) -> None:
        super().__init__(problem)
        self.size = size


async def _draft(context: NodeContext, call: str, request: ModelRequest, previous: str) -> _Draft:
    try:
        response = await context.ask(call, request)
    except EmptyAnswer as error:
        return _Draft("", "", FinishReason(error.finish), f"is empty ({error})")
    text = unwrap(response.text)
    return _Draft(text, response.model, response.finish, _draft_problem(response, text, previous))


def _draft_problem(response: ModelResponse, text: str, previous: str) -> str:
    if response.finish is not FinishReason.STOP:
        return _unfinished(response)
    if not text.strip():
        return "is empty"
    return NO_SECTION if previous and has_sections(previous) and not has_sections(text) else ""


async def _review(
    context: NodeContext, call: str, request: ModelRequest, earlier: Sequence[int], *, lenient: bool = False
) -> ModelReview:
    try:
        response = await context.ask(call, request)
    except EmptyAnswer as error:
        raise _UnreadableAnswer(str(error), "no text") from error
    try:
        return ModelReview(read_review(response.text, earlier, lenient=lenient), response.model)
    except UnreadableReview as error:
        written = f"{response.usage.output_tokens:,} tokens"
        is_cut = response.finish is FinishReason.LENGTH
        raise _UnreadableAnswer(
            str(error), f"cut off at {written}" if is_cut else f"{written}, not cut off"
        ) from error


def _unfinished(response: ModelResponse) -> str:
    """Why the answer ends where it does, as the predicate of a sentence."""
    written = response.usage.output_tokens
    words = round(written * WORDS_PER_TOKEN)
    how = {
        FinishReason.LENGTH: f"was cut off at the limit of {written:,} tokens, which is about {words:,} words",
        FinishReason.FILTERED: f"was withheld or cut off by the provider after {written:,} tokens",
        FinishReason.PAUSED: f"was paused by the server after {written:,} tokens",
    }.get(response.finish, f"ended early after {written:,} tokens")
    return f"{how} (finish reason: {response.finish_detail or response.finish})"


def _ask_again(context: NodeContext, request: ModelRequest, problem: str) -> ModelRequest:
    name = "review_again" if request.schema else "draft_again"
    return replace(request, prompt=f"{request.prompt}\n\n{context.prompt(name, problem=problem).strip()}")
