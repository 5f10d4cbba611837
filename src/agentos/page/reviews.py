"""The queue of parked items in all projects, and decisions on them, through the same code as `agentos review`."""

from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import AgentosError, NothingMatches, UsageError
from agentos.core.planning.gates import ParkedItem, ReviewAction, ReviewDecision
from agentos.outputs.report.facts import plain
from agentos.outputs.resume_command import resume_command
from agentos.page.item_view import diff_lines
from agentos.page.markdown import parse_markdown
from agentos.page.run_view import RunViews
from agentos.page.views import ANYWHERE, Json
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
)
from agentos.storage.home import Home

MAX_TEXT = 100_000  # characters of feedback


class DecidedMeanwhile(AgentosError):
    """Somebody else decided first, or the item waits at another gate than the one that was shown."""


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """What the page sends. `number` is the gate that was shown, so that no decision hits another draft."""

    item: str
    number: int
    action: ReviewAction
    text: str = ""
    draft: str | None = None
    project: str = ""
    answers: Json | None = None
    """Answers to a graph's questions, by the id of the question."""


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    """Parked items of every project that has a run in this home."""

    home: Home
    views: RunViews

    def overview(self) -> Json:
        entries = [
            {**_entry_json(context, pending), "project": str(context.project)}
            for context, pending in self._pending()
        ]
        return {"items": entries, "waiting": sum(entry["decision"] is None for entry in entries)}

    def show(self, item: str, project: str) -> Json:
        """One item with everything that a person needs to decide."""
        context, pending = self._find(item, project)
        if pending.asks:
            return {**_entry_json(context, pending), "project": str(context.project)}
        pages = lineage(context, pending.parked_item)
        draft = draft_text(context, pending)
        verdict = next((page for page in pages if pending.request.verdict.endswith(f"/{page.name}")), None)
        return {
            **_entry_json(context, pending),
            "project": str(context.project),
            "draft_text": draft,
            "draft_nodes": parse_markdown(draft),
            "verdict_nodes": parse_markdown(verdict.text) if verdict else None,
            "documents": [{"name": page.name, "heading": plain(page.heading)} for page in pages],
            "changes": _changes(pages, pending, draft),
        }

    def decide(self, request: DecisionRequest) -> Json:
        """Record the decision. Raises DecidedMeanwhile if somebody else was faster."""
        context, pending = self._find(request.item, request.project)
        if len(request.text) > MAX_TEXT:
            raise UsageError(f"the text is longer than {MAX_TEXT:,} characters")
        if pending.state.decision is not None:
            taken = pending.state.decision.action.past_tense
            raise DecidedMeanwhile(
                f"{request.item} was already {taken} by somebody else; nothing was changed"
            )
        if pending.request.number != request.number:
            raise DecidedMeanwhile(f"{request.item} waits with a newer draft by now: read it, then decide")
        try:
            decision = _record(context, pending, request)
        except NothingMatches as error:
            raise DecidedMeanwhile(f"{request.item} was decided by somebody else meanwhile") from error
        parked = pending.parked_item
        return {
            "item": parked.item,
            "decision": decision.action.value,
            "next": next_step(pending, decision),
            "run": parked.run,
            "run_alive": is_run_alive(context, parked),
            "command": self._command(context, parked),
        }

    def _command(self, context: ReviewContext, parked: ParkedItem) -> str:
        view = self.views.find(parked.run)
        started = view.record.stats.started if view else None
        return resume_command(started, ANYWHERE) if started else continue_command(context, parked)

    def _pending(self) -> list[tuple[ReviewContext, PendingReview]]:
        contexts = [
            ReviewContext(project, self.home) for project in self.views.projects() if project.is_dir()
        ]
        return [(context, pending) for context in contexts for pending in pending_reviews(context)]

    def _find(self, item: str, project: str) -> tuple[ReviewContext, PendingReview]:
        found = [
            (context, pending)
            for context, pending in self._pending()
            if pending.parked_item.item == item and project in ("", str(context.project))
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


def _entry_json(context: ReviewContext, pending: PendingReview) -> Json:
    return {
        **review_json(pending),
        "title": plain(pending.parked_item.title),
        "number": pending.request.number,
        "gate": pending.request.gate.value,
        "has_feedback": pending.has_feedback,
        "run_alive": is_run_alive(context, pending.parked_item),
    }


def _changes(pages: list[LineagePage], pending: PendingReview, draft: str) -> list[list[str]] | None:
    """What changed since the draft before; None for the first one."""
    drafts = [page for page in pages if page.name.endswith(("-draft.md", "-edited.md"))]
    earlier = [page for page in drafts if page.name < Path(pending.request.draft).name]
    if not earlier:
        return None
    try:
        return diff_lines(earlier[-1].text.splitlines(), draft.splitlines())
    except UsageError:
        return None
