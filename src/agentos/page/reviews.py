"""The queue of parked items in all projects, and decisions on them, with the same code as `agentos review`."""

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agentos.core.errors import AgentosError, NothingMatches, UsageError
from agentos.core.planning.gates import ReviewAction, ReviewDecision
from agentos.outputs.report.facts import plain
from agentos.outputs.resume_command import resume_command
from agentos.page.item_view import diff_lines
from agentos.page.markdown import parse_markdown
from agentos.page.run_view import HomeRuns
from agentos.page.views import UNKNOWN_FOLDER, Json
from agentos.review.answers import answer
from agentos.review.queue import (
    LineagePage,
    PendingReview,
    ReviewContext,
    continue_command,
    decide,
    draft_text,
    is_run_alive,
    lineage,
    next_step,
    pending_reviews,
    review_json,
    save_edit,
    with_changes,
)
from agentos.storage.home import Home

MAX_TEXT = 100_000  # characters of feedback


class DecidedMeanwhile(AgentosError):
    """Somebody else decided first, or the item now waits at another gate than the one shown."""


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """What the page sends. `number` is the gate that was shown, so that no decision applies to another draft."""

    item: str
    number: int
    action: ReviewAction
    text: str = ""
    draft: str | None = None
    project: str = ""
    answers: Json | None = None
    """Answers to a graph's questions, by the id of the question."""


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """A parked item, with the name and the place of its project."""

    project: str
    context: ReviewContext
    pending: PendingReview


class ReviewSource(Protocol):
    """Where parked items are: in the projects of a home, or on a fleet."""

    @property
    def is_fleet(self) -> bool: ...

    def session(self) -> AbstractContextManager[object]:
        """Entered while items are read or decided on."""
        ...

    def waiting(self, *, with_documents: bool) -> list[WaitingItem]:
        """Undecided items first, then decided ones that have not continued yet."""
        ...

    def command(self, waiting: WaitingItem) -> str:
        """What to type if its run does not pick up the decision by itself."""
        ...

    def notify_run(self, waiting: WaitingItem) -> str:
        """Tell the item's run of a decision; returns what went wrong, or an empty string."""
        ...


@dataclass(frozen=True, slots=True)
class HomeReviews:
    """Parked items of every project that has a run in this home."""

    home: Home
    views: HomeRuns
    is_fleet: bool = False

    def session(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def waiting(self, *, with_documents: bool) -> list[WaitingItem]:
        contexts = [
            ReviewContext(project, self.home) for project in self.views.projects() if project.is_dir()
        ]
        return [
            WaitingItem(str(context.project), context, pending)
            for context in contexts
            for pending in pending_reviews(context)
        ]

    def command(self, waiting: WaitingItem) -> str:
        parked = waiting.pending.parked_item
        view = self.views.find(parked.run)
        started = view.record.stats.started if view else None
        return (
            resume_command(started, UNKNOWN_FOLDER) if started else continue_command(waiting.context, parked)
        )

    def notify_run(self, waiting: WaitingItem) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    """The items that wait for a person, as JSON, and decisions on them."""

    source: ReviewSource

    def overview(self) -> Json:
        with self.source.session():
            entries = [
                self._entry(waiting) | {"command": self._resume_command(waiting)}
                for waiting in self.source.waiting(with_documents=False)
            ]
        return {"items": entries, "waiting": sum(entry["decision"] is None for entry in entries)}

    def show(self, item: str, project: str) -> Json:
        """One item with everything that a person needs to decide."""
        with self.source.session():
            return self._show(self._find(item, project))

    def decide(self, request: DecisionRequest) -> Json:
        """Record the decision. Raises DecidedMeanwhile if somebody else decided first."""
        if len(request.text) > MAX_TEXT:
            raise UsageError(f"the text is longer than {MAX_TEXT:,} characters")
        with self.source.session():
            waiting = self._find(request.item, request.project)
            (pending,) = with_changes(waiting.context, [waiting.pending])
            waiting = replace(waiting, pending=pending)
            decision = self._record(waiting, request)
        return {
            "item": pending.parked_item.item,
            "decision": decision.action.value,
            "next": next_step(pending, decision),
            "run": pending.parked_item.run,
            "run_alive": self._is_run_alive(waiting),
            "command": self.source.command(waiting),
            "warning": self.source.notify_run(waiting) or None,
        }

    def _record(self, waiting: WaitingItem, request: DecisionRequest) -> ReviewDecision:
        pending = waiting.pending
        if pending.state.decision is not None:
            taken = pending.state.decision.action.past_tense
            raise DecidedMeanwhile(f"{request.item} was already {taken}; nothing was changed")
        if pending.request.number != request.number:
            raise DecidedMeanwhile(f"{request.item} has a newer draft by now: read it, then decide")
        try:
            return _record(waiting.context, pending, request)
        except NothingMatches as error:
            raise DecidedMeanwhile(f"{request.item} was decided on in the meantime") from error

    def _show(self, waiting: WaitingItem) -> Json:
        context, pending = waiting.context, waiting.pending
        entry = self._entry(waiting)
        if pending.is_question:
            return entry
        pages = lineage(context, pending.parked_item)
        draft = draft_text(context, pending)
        verdict = next((page for page in pages if pending.request.verdict.endswith(f"/{page.name}")), None)
        return {
            **entry,
            "draft_text": draft,
            "draft_nodes": parse_markdown(draft),
            "verdict_nodes": parse_markdown(verdict.text) if verdict else None,
            "documents": [{"name": page.name, "heading": plain(page.heading)} for page in pages],
            "changes": _changes(pages, pending, draft),
        }

    def _entry(self, waiting: WaitingItem) -> Json:
        pending = waiting.pending
        return {
            **review_json(pending),
            "project": waiting.project,
            "title": plain(pending.parked_item.title),
            "number": pending.request.number,
            "gate": pending.request.gate.value,
            "has_feedback": pending.has_feedback,
            "run_alive": self._is_run_alive(waiting),
        }

    def _resume_command(self, waiting: WaitingItem) -> str | None:
        """What to type for a decided item that no run in progress will continue."""
        is_decided = waiting.pending.state.decision is not None
        return self.source.command(waiting) if is_decided and not self._is_run_alive(waiting) else None

    def _is_run_alive(self, waiting: WaitingItem) -> bool:
        return self.source.is_fleet or is_run_alive(waiting.context, waiting.pending.parked_item)

    def _find(self, item: str, project: str) -> WaitingItem:
        found = [
            waiting
            for waiting in self.source.waiting(with_documents=True)
            if waiting.pending.parked_item.item == item and project in ("", waiting.project)
        ]
        if not found:
            raise NothingMatches(f"{plain(item)} is not waiting for a decision")
        if len(found) > 1:
            raise UsageError(f"{plain(item)} waits in several projects: name one as project")
        return found[0]


def _record(context: ReviewContext, pending: PendingReview, request: DecisionRequest) -> ReviewDecision:
    if request.action is ReviewAction.ANSWER:
        return answer(context, pending, request.answers or {})
    if request.draft is not None and request.draft != draft_text(context, pending):
        pending = save_edit(context, pending, request.draft)
    return decide(context, pending, request.action, request.text)


def _changes(pages: list[LineagePage], pending: PendingReview, draft: str) -> list[list[str]] | None:
    """What changed since the previous draft; None for the first one."""
    drafts = [page for page in pages if page.name.endswith(("-draft.md", "-edited.md"))]
    earlier = [page for page in drafts if page.name < Path(pending.request.draft).name]
    if not earlier:
        return None
    try:
        return diff_lines(earlier[-1].text.splitlines(), draft.splitlines())
    except UsageError:
        return None
