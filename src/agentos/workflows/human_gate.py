"""The human nodes: a gate parks the item until a person has decided."""

import json
from typing import Any

from agentos.core.planning.gates import Gate, GateRequest, ReviewAction, ReviewDecision
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.results import Verdict
from agentos.workflows.node_context import NodeContext
from agentos.workflows.review_loop import State

REJECTED = "rejected by a person"
PERSON = "a person"


class HumanGate:
    """The gate of one item; which of the two it is follows from what there is to judge."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def human(self, state: State) -> State:
        """A gate that nobody asked for passes through; one where the item is parked already does not."""
        from langgraph.types import interrupt

        asked = _asked(state)
        if asked.gate not in self._context.gates and asked.number != self._context.parked:
            return {}
        decision: ReviewDecision = unpack(ReviewDecision, json.loads(interrupt(pack(asked))))
        self._context.say(f"A person has {decision.action.past_tense} the {asked.gate}")
        kept = self._keep(decision, asked, state)
        return {**kept, **_judged(decision, asked, {**state, **kept}), "gates": asked.number}

    def _keep(self, decision: ReviewDecision, asked: GateRequest, state: State) -> State:
        """The person's words in the lineage; written again after a crash, they are the same files."""
        context, files, kept = self._context, state["files"], State()
        if decision.draft is not None:
            files += 1
            kept["draft"] = context.keep(files, "edited", decision.draft)
            kept["drafter"] = _joined(state["drafter"], "edited by")
        if decision.text or decision.action is ReviewAction.REJECT:
            files += 1
            text = (
                f"# A person on draft {asked.round}: {decision.action.past_tense}\n\n{decision.text}".strip()
                + "\n"
            )
            kept["feedback"] = [*state["feedback"], context.keep(files, "feedback", text)]
        return {**kept, "files": files}


def stage_of(state: State) -> Gate:
    return Gate(state.get("stage", Gate.DRAFT.value))


def resumed(decision: str) -> Any:
    """What lets a graph go on that waits at a gate."""
    from langgraph.types import Command

    return Command(resume=decision)


def _asked(state: State) -> GateRequest:
    gate = stage_of(state)
    reviewed = gate is Gate.VERDICT
    return GateRequest(
        number=state.get("gates", 0) + 1,
        gate=gate,
        round=state["round"],
        draft=state["draft"]["path"],
        verdict=state["feedback"][-1]["path"] if reviewed else "",
        approved=reviewed and state["verdict"] == Verdict.APPROVED.value,
    )


def _judged(decision: ReviewDecision, asked: GateRequest, state: State) -> State:
    """What the decision changes: a person's word stands above the reviewer's, and above --max-iterations."""
    unreviewed = state.get("unreviewed", 0) + (asked.gate is Gate.DRAFT)
    reviewer = _joined(state.get("reviewer", ""), "then")
    match decision.action, asked.gate:
        case ReviewAction.APPROVE, Gate.DRAFT:
            return {}
        case ReviewAction.APPROVE, Gate.VERDICT:
            return {"verdict": Verdict.APPROVED.value, "stop_reason": "", "reviewer": reviewer}
        case ReviewAction.SEND_BACK, _:
            revise = Verdict.NEEDS_REVISION.value
            return {"sent_back": True, "unreviewed": unreviewed, "verdict": revise, "stop_reason": ""}
        case _:
            return {
                "verdict": Verdict.NEEDS_REVISION.value,
                "stop_reason": REJECTED,
                "unreviewed": unreviewed,
                "reviewer": reviewer,
            }


def _joined(model: str, words: str) -> str:
    """Who wrote or reviewed, when a person did too."""
    if not model or model == PERSON:
        return PERSON
    return model if model.endswith(PERSON) else f"{model}, {words} {PERSON}"
