"""The items of a project that wait for a human decision, and how a decision is recorded."""

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from agentos.config.project import repo_option
from agentos.config.settings import Flags, current_folder, environment, read_settings
from agentos.core.errors import AgentosError, ItemError, NothingMatches, UsageError
from agentos.core.planning.gates import (
    Gate,
    GateRequest,
    ParkedItem,
    ReviewAction,
    ReviewDecision,
    ReviewState,
)
from agentos.core.planning.items import Item, ItemRange, matches, parse_range
from agentos.core.protocol.codec import pack
from agentos.core.protocol.ports import Documents
from agentos.core.text.line_assembler import clean, one_line
from agentos.outputs.resume_command import resume_command
from agentos.storage.file_items import FileItems
from agentos.storage.home import Home, checkpoint_number
from agentos.storage.item_store import ProjectItems
from agentos.storage.review_notes import decision_note, edit_note, review_state
from agentos.storage.runs import is_alive, last_run_of, load_run_stats
from agentos.workflows.registry import BUILT_IN, find_workflow

_REVIEW_OPTION = re.compile(r" --review[= ](?:none|draft|verdict|all)(?= |$)")


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """Where to look: the project, its home, and the database named in AGENTOS_WORKFLOW_DB, if any; or a fleet."""

    project: Path
    home: Home
    database: Path | None = None
    fleet: ProjectItems | None = None

    @property
    def items(self) -> ProjectItems:
        return self.fleet or FileItems(self.project, self.home, self.database)


class SourceChange(StrEnum):
    """What has happened to an item's file since the item was parked."""

    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class PendingReview:
    """A parked item: undecided, or decided but not yet continued by a run. `change` is known only if it was looked up."""

    state: ReviewState
    key: str
    change: SourceChange | None = None

    @property
    def parked_item(self) -> ParkedItem:
        return self.state.parked_item

    @property
    def request(self) -> GateRequest:
        return self.parked_item.request

    @property
    def is_question(self) -> bool:
        """Whether a graph's own interrupt or breakpoint waits for an answer, rather than a draft for a review."""
        return self.request.gate is Gate.QUESTION

    @property
    def has_feedback(self) -> bool:
        """Whether the reviewer asked for changes, so that a draft can be sent back without text."""
        return bool(self.request.verdict) and not self.request.approved


@dataclass(frozen=True, slots=True)
class LineagePage:
    """One file of the lineage, without control characters."""

    name: str
    heading: str
    text: str


def pending_reviews(context: ReviewContext) -> list[PendingReview]:
    """Every parked item, undecided ones first."""
    found = [PendingReview(record.state, record.key) for record in context.items.parked()]
    return sorted(found, key=_sort_key)


def with_changes(context: ReviewContext, reviews: Sequence[PendingReview]) -> list[PendingReview]:
    """Add to each item how its file has changed since it was parked; items from GitHub have no file to check."""
    if context.fleet:
        return list(reviews)
    changes: dict[str, SourceChange | None] = {}
    for name in {review.parked_item.workflow for review in reviews}:
        with contextlib.suppress(AgentosError):
            workflow = find_workflow(name, context.project)
            sources = {each.item.id: each.item for each in workflow.candidates(context.project)}
            on_github = workflow.reads_issues and read_settings(Flags(repo=context.project)).github
            for review in reviews:
                if review.parked_item.workflow == name and not on_github:
                    changes[review.key] = _change(context, review, sources.get(review.parked_item.item))
    return [replace(review, change=changes.get(review.key)) for review in reviews]


def _change(context: ReviewContext, review: PendingReview, item: Item | None) -> SourceChange | None:
    if item is None:
        return SourceChange.GONE
    parked_digest = context.items.notes(review.key).get("digest")
    return None if parked_digest == item.digest else SourceChange.CHANGED


def change_text(context: ReviewContext, review: PendingReview) -> str:
    """What a change of the item's file means for the item; empty if the file has not changed."""
    parked = review.parked_item
    match review.change:
        case None:
            return ""
        case SourceChange.GONE:
            drop = review_command(context, parked.item, "--reject")
            return f"its file is gone, so nothing can continue it: restore the file, or drop the item with: {drop}"
        case SourceChange.CHANGED if review.state.decision:
            return "its file has changed since, so it will start over without this decision"
        case SourceChange.CHANGED:
            return f"its file has changed since, so start over with: {_start_over(context, parked)}"


def review_json(pending: PendingReview) -> dict[str, object]:
    """One entry of `agentos review --json`, and of the queue in the page."""
    parked, request, decision = pending.parked_item, pending.request, pending.state.decision
    return {
        "item": parked.item,
        "workflow": parked.workflow,
        "title": parked.title,
        "run": parked.run,
        "node": parked.node,
        "waiting_since": parked.at,
        "round": request.round,
        "draft": request.draft or None,
        "verdict": request.verdict or None,
        "approved": request.approved if request.verdict else None,
        "edited": pending.state.edited is not None,
        "questions": [
            {
                "id": question.id,
                "node": question.node,
                "value": json.loads(question.value),
                "schema": json.loads(question.schema) if question.schema else None,
                "breakpoint": question.breakpoint or None,
            }
            for question in request.questions
        ],
        "decision": decision.action.value if decision else None,
    }


def find_review(context: ReviewContext, item: str) -> PendingReview:
    """The parked item with this id or number; raises NothingMatches or UsageError."""
    found = pending_reviews(context)
    matching = [review for review in found if matches(review.parked_item.item, item)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            f"{item} matches {' and '.join(review.parked_item.item for review in matching)}: give the full id"
        )
    undecided = [review.parked_item.item for review in found if review.state.decision is None]
    raise NothingMatches(
        f"{one_line(item)} is not waiting for a decision in {context.project}; "
        f"waiting: {', '.join(undecided) or 'none'}"
    )


def find_reviews(context: ReviewContext, words: Sequence[str]) -> list[PendingReview]:
    """The parked items that the words name, each once; a range such as LLD-40..45 takes those that are undecided."""
    found: dict[str, PendingReview] = {}
    for word in words:
        span = parse_range(word)
        for review in _in_range(context, span, word) if span else [find_review(context, word)]:
            found[review.parked_item.item] = review
    return list(found.values())


def _in_range(context: ReviewContext, span: ItemRange, word: str) -> list[PendingReview]:
    if span.first > span.last:
        raise UsageError(f"invalid range {word}: expected the smaller number first, such as LLD-40..45")
    found = []
    for review in pending_reviews(context):
        item = review.parked_item.item
        number = item.rpartition("-")[2]
        if number.isdecimal() and span.includes(item, int(number)) and not review.state.decision:
            found.append(review)
    if not found:
        raise NothingMatches(f"none of {word} is waiting for a decision in {context.project}")
    return found


def others_waiting(context: ReviewContext, reviews: Sequence[PendingReview]) -> list[PendingReview]:
    """The undecided items besides these: first those that follow them in the list, then those before."""
    named = {review.parked_item.item for review in reviews}
    last = max(_sort_key(review)[1:] for review in reviews)
    others = [
        review
        for review in pending_reviews(context)
        if review.state.decision is None and review.parked_item.item not in named
    ]
    return sorted(others, key=lambda review: _sort_key(review)[1:] < last)


def previous_draft(context: ReviewContext, review: PendingReview) -> LineagePage | None:
    """The draft to compare with the current one: the one before the person's edit, otherwise that of the previous round."""
    name = review.request.draft.rpartition("/")[2]
    drafts = [
        page
        for page in lineage(context, review.parked_item)
        if page.name.endswith(("-draft.md", "-edited.md"))
    ]
    earlier = [page for page in drafts if page.name < name]
    if review.state.edited is not None:
        return next((page for page in drafts if page.name == name), None)
    return earlier[-1] if earlier else None


def lineage(context: ReviewContext, parked: ParkedItem) -> list[LineagePage]:
    """Every Markdown file in the item's lineage."""
    documents = context.items.documents
    names = [name for name in documents.names(parked.lineage) if name.endswith(".md")]
    return [_page(documents, f"{parked.lineage}/{name}") for name in names]


def draft_text(context: ReviewContext, review: PendingReview) -> str:
    """The current draft: a person's edit if there is one, else as the model wrote it."""
    if review.state.edited is not None:
        return review.state.edited
    try:
        return context.items.documents.read(review.request.draft).decode()
    except (OSError, UnicodeDecodeError) as error:
        fix = f"restore it, or start over with: {_start_over(context, review.parked_item)}"
        raise ItemError(f"cannot read {review.request.draft} ({error}); {fix}") from error


def save_edit(context: ReviewContext, review: PendingReview, draft: str) -> PendingReview:
    """Keep an edited draft until the decision is made; returns the item with it."""
    if not draft.strip():
        raise UsageError("the edited text is empty: the draft was not changed and nothing was decided")
    with undecided(context, review) as items:
        items.write_note(review.key, edit_note(review.request.number), draft)
    return replace(review, state=replace(review.state, edited=draft))


def decide(
    context: ReviewContext, review: PendingReview, action: ReviewAction, text: str = ""
) -> ReviewDecision:
    """Record the decision, with the edited draft if there is one; a run then continues the item."""
    text = text.strip()
    _check_action(review, action)
    if action is ReviewAction.SEND_BACK and not text and not review.has_feedback:
        raise UsageError(
            'no feedback: say what should change, such as --send-back "name the limit in section 2"'
        )
    decision = ReviewDecision(action, text, review.state.edited)
    if action is ReviewAction.REJECT and review.change is SourceChange.GONE:
        _drop(context, review)
        return decision
    with undecided(context, review) as items:
        items.write_note(review.key, decision_note(review.request.number), json.dumps(pack(decision)))
    return decision


def _check_action(review: PendingReview, action: ReviewAction) -> None:
    """Raises UsageError for a decision that does not fit what the item waits for."""
    item = review.parked_item.item
    if not review.is_question:
        return
    allowed: tuple[ReviewAction, ...] = (ReviewAction.REJECT,)
    expected = "--answer JSON, or --reject"
    if review.request.is_breakpoint:
        allowed, expected = (ReviewAction.APPROVE, ReviewAction.REJECT), "--approve to continue, or --reject"
    if action not in allowed:
        raise UsageError(f"{item} waits for an answer, not for a review: expected {expected}")


def _drop(context: ReviewContext, review: PendingReview) -> None:
    """Delete the checkpoint of an item whose file is gone; its documents go to the lineage of finished items."""
    parked, items = review.parked_item, context.items
    workflow = find_workflow(parked.workflow, context.project)
    number, name = checkpoint_number(Path(review.key)), parked.item.rpartition("-")[2]
    if number is None:
        number = int(name) if name.isdecimal() else 0
    items.clean_finished({parked.item: review.key}, lambda item: workflow.tidy(items.documents, number))
    if items.notes(review.key):
        raise UsageError(f"{parked.item} is being worked on right now; see its progress with: agentos status")


def next_step(review: PendingReview, decision: ReviewDecision) -> str:
    """What happens to the item when a run continues it."""
    if review.change is SourceChange.GONE:
        return "it is dropped, because its file is gone"
    match decision.action:
        case ReviewAction.ANSWER:
            return "its graph continues with your answer"
        case ReviewAction.APPROVE if review.is_question:
            return "its graph continues"
        case ReviewAction.REJECT if review.is_question:
            return f"it ends as failed{', with your reason' if decision.text else ''}"
        case ReviewAction.APPROVE:
            return "it ends as approved" if review.request.verdict else "it goes to review"
        case ReviewAction.SEND_BACK:
            return "a new draft will be written"
        case ReviewAction.REJECT:
            return f"it ends as needs revision{', with your reason' if decision.text else ''}"


def continue_command(context: ReviewContext, parked: ParkedItem) -> str:
    """What to type to continue the item: the command of the run that parked it."""
    if context.fleet:
        return command_for(context, f"{_run_item(parked)} --fleet")
    if started := load_run_stats(context.home.runs / parked.run).started:
        return resume_command(started, current_folder())
    return command_for(context, _run_item(parked) + _options(context, parked))


def _run_item(parked: ParkedItem) -> str:
    """The command that runs this item alone."""
    if parked.workflow in BUILT_IN:
        return f"{parked.workflow}-workflow {parked.item.rpartition('-')[2]}"
    return shlex.join(["agentos", "run", parked.workflow, parked.item])


def _start_over(context: ReviewContext, parked: ParkedItem) -> str:
    options = " --fleet" if context.fleet else _options(context, parked)
    return command_for(context, f"{_run_item(parked)} --fresh{options}")


def _options(context: ReviewContext, parked: ParkedItem) -> str:
    """The options without which the item would not go on as before: those of its run, or if that is pruned, of the last one."""
    started = load_run_stats(context.home.runs / parked.run).started
    if started is None and (last := last_run_of(context.home.runs, parked.workflow, context.project)):
        started = last.started
    if started is None:
        return ""
    gate = _REVIEW_OPTION.search(started.command)  # otherwise nobody would be asked about the new draft
    return (" --offline" if started.offline else "") + (gate[0] if gate else "")


def review_command(context: ReviewContext, *words: str) -> str:
    """The `agentos review` command with these words, as typed in the current folder."""
    return command_for(
        context, " ".join(("agentos review", *(("--fleet",) if context.fleet else ()), *words))
    )


def command_for(context: ReviewContext, command: str) -> str:
    """The command as typed in the current folder: with --repo where the project would not be found."""
    return command + repo_option(context.project, environment())


def is_run_alive(context: ReviewContext, parked: ParkedItem) -> bool:
    """Whether the run that parked the item is still running, and so continues it by itself."""
    return is_alive(context.home.runs / parked.run)


@contextlib.contextmanager
def undecided(context: ReviewContext, review: PendingReview) -> Iterator[ProjectItems]:
    """Lock the item against runs while its decision is written; raises if it is being processed or no longer waits."""
    item, items = review.parked_item.item, context.items
    with items.deciding(review.key, item) as notes:
        if notes is None:
            raise UsageError(f"{item} is being worked on right now; see its progress with: agentos status")
        state = review_state(notes)
        if state is None or state.parked_item.request != review.request or state.decision is not None:
            again = review_command(context, item)
            raise NothingMatches(f"{item} no longer waits for this decision; see its state with: {again}")
        # A decision on an outdated draft would have no effect: the item starts over, or is never continued.
        (current,) = with_changes(context, [review])
        if current.change:
            raise UsageError(f"{item} cannot be decided on: {change_text(context, current)}")
        yield items


def _sort_key(review: PendingReview) -> tuple[bool, str, int]:
    prefix, _, number = review.parked_item.item.rpartition("-")
    return review.state.decision is not None, prefix, int(number) if number.isdigit() else 0


def _page(documents: Documents, path: str) -> LineagePage:
    try:
        text = documents.read(path).decode("utf-8", "replace")
    except OSError as error:
        text = f"(cannot read it: {error.strerror})"
    lines = [clean(line) for line in text.splitlines()]
    heading = next((line.lstrip("# ") for line in lines if line.strip()), "")
    return LineagePage(path.rpartition("/")[2], heading, "\n".join(lines))
