"""The human gate nodes: park an item until a person decides, then apply the decision."""

from agentos.core.planning.gates import Gate, GateRequest, ReviewAction, ReviewDecision
from agentos.core.protocol.results import Verdict
from agentos.workflows.node_context import NodeContext
from agentos.workflows.review_loop import State

__all__ = ["HumanGate", "stage_of"]
REJECTED = "rejected by a person"
PERSON = "a person"


class HumanGate:
    """A gate on a draft or on a verdict; the state's `stage` says which of the two is to be decided."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def human(self, state: State) -> State:
        """Pass through unless this gate was requested with `--review` or the item is already parked here."""
        request = _gate_request(state)
        if (decision := self._context.decision(request)) is None:
            return {}
        self._context.say(f"A person has {decision.action.past_tense} the {request.gate}")
        saved = self._save(decision, request, state)
        return {**saved, **_apply(decision, request, {**state, **saved}), "decision_count": request.number}

    def _save(self, decision: ReviewDecision, request: GateRequest, state: State) -> State:
        """Write the person's edit and feedback to the lineage. Idempotent, since the node may run again."""
        context, lineage_count, saved = self._context, state["lineage_count"], State()
        if decision.draft is not None:
            lineage_count += 1
            saved["draft"] = context.write_lineage(lineage_count, "edited", decision.draft)
            saved["drafter"] = _with_person(state["drafter"], "edited by")
        if decision.text or decision.action is ReviewAction.REJECT:
            lineage_count += 1
            heading = f"# A person on draft {request.round}: {decision.action.past_tense}"
            text = f"{heading}\n\n{decision.text}".strip() + "\n"
            saved["feedback"] = [*state["feedback"], context.write_lineage(lineage_count, "feedback", text)]
        return {**saved, "lineage_count": lineage_count}


def stage_of(state: State) -> Gate:
    return Gate(state.get("stage", Gate.DRAFT.value))


def _gate_request(state: State) -> GateRequest:
    gate = stage_of(state)
    reviewed = gate is Gate.VERDICT
    return GateRequest(
        number=state.get("decision_count", 0) + 1,
        gate=gate,
        round=state["round"],
        draft=state["draft"]["path"],
        verdict=state["feedback"][-1]["path"] if reviewed else "",
        approved=reviewed and state["verdict"] == Verdict.APPROVED.value,
    )


def _apply(decision: ReviewDecision, request: GateRequest, state: State) -> State:
    """What the decision changes in the state. A person overrules both the reviewer and --max-iterations."""
    unreviewed = state.get("unreviewed_count", 0) + (request.gate is Gate.DRAFT)
    reviewer = _with_person(state.get("reviewer", ""), "then")
    match decision.action, request.gate:
        case ReviewAction.APPROVE, Gate.DRAFT:
            return {}
        case ReviewAction.APPROVE, Gate.VERDICT:
            return {"verdict": Verdict.APPROVED.value, "stop_reason": "", "reviewer": reviewer}
        case ReviewAction.SEND_BACK, _:
            revise = Verdict.NEEDS_REVISION.value
            return {"sent_back": True, "unreviewed_count": unreviewed, "verdict": revise, "stop_reason": ""}
        case _:
            return {
                "verdict": Verdict.NEEDS_REVISION.value,
                "stop_reason": REJECTED,
                "unreviewed_count": unreviewed,
                "reviewer": reviewer,
            }


def _with_person(model: str, joined_by: str) -> str:
    """The author or reviewer as recorded in the document: the model, the person, or both."""
    if not model or model == PERSON:
        return PERSON
    return model if model.endswith(PERSON) else f"{model}, {joined_by} {PERSON}"
