"""What a stopped graph asks a person: its interrupts and breakpoints, and the input that resumes it."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from agentos.core.planning.gates import (
    Gate,
    GateRequest,
    ParkedItem,
    Question,
    QuestionAnswer,
    ReviewDecision,
)
from agentos.core.protocol.codec import CodecError, pack, unpack


async def open_questions(graph: Any, config: Any, snapshot: Any) -> tuple[Question, ...]:
    """Every unanswered interrupt; if there is none, the breakpoints before or after which the graph has stopped.

    `snapshot` is the graph's current state.
    """
    if not snapshot.next:
        return ()
    asked = {
        interrupt.id: Question(interrupt.id, task.name, json_text(interrupt.value), _schema(interrupt))
        for task in snapshot.tasks
        for interrupt in task.interrupts
    }
    return tuple(asked.values()) or await _breakpoints(graph, config, snapshot)


async def stopped_inside(graph: Any, config: Any) -> tuple[Question, ...]:
    """The breakpoint in a subgraph at which the graph has stopped, if there is one."""
    snapshot = await graph.aget_state(config, subgraphs=True)
    while snapshot.next:
        inner = next(
            (task for task in snapshot.tasks if hasattr(task.state, "next") and task.state.next), None
        )
        if inner is None:
            break
        snapshot = inner.state
    if not snapshot.next or not snapshot.config["configurable"].get("checkpoint_ns"):
        return ()
    return (_breakpoint(snapshot, "before", snapshot.next[0]),)


async def finished_tasks(saver: Any, snapshot: Any) -> set[str]:
    """The tasks of the current step, including those in subgraphs, that have ended: LangGraph reports them but does not
    run them again."""
    from langgraph.checkpoint.base import WRITES_IDX_MAP

    found = await saver.aget_tuple(snapshot.config)
    finished = {
        task
        for task, channel, _ in (found.pending_writes or () if found else ())
        if channel not in WRITES_IDX_MAP
    }
    for task in snapshot.tasks:
        if hasattr(task.state, "tasks"):
            finished |= await finished_tasks(saver, task.state)
    return finished


def resume_input(questions: Sequence[Question], answers: Iterable[QuestionAnswer]) -> Any:
    """The input that continues the graph with these answers; None, which passes a breakpoint, if none is needed."""
    from langgraph.types import Command

    asked = {question.id for question in questions if not question.breakpoint}
    given = {answer.question: json.loads(answer.value) for answer in answers if answer.question in asked}
    return Command(resume=given) if given else None


async def _breakpoints(graph: Any, config: Any, snapshot: Any) -> tuple[Question, ...]:
    """Found from the checkpoint alone, so that a crash right before a breakpoint does not skip it."""
    found = [
        _breakpoint(snapshot, "before", name)
        for name in dict.fromkeys(snapshot.next)
        if _is_named(name, graph.interrupt_before_nodes)
    ]
    if not found and graph.interrupt_after_nodes:
        history = [each async for each in graph.aget_state_history(config, limit=2)]
        ran = dict.fromkeys(history[1].next) if len(history) > 1 else ()
        found = [
            _breakpoint(snapshot, "after", name)
            for name in ran
            if _is_named(name, graph.interrupt_after_nodes)
        ]
    return tuple(found)


def _breakpoint(snapshot: Any, where: str, node: str) -> Question:
    checkpoint = snapshot.config["configurable"]["checkpoint_id"]
    return Question(f"{checkpoint} {where} {node}", node, breakpoint=f"{where} {node}")


def _is_named(node: str, nodes: Any) -> bool:
    return not node.startswith("__") and (nodes == "*" or node in nodes)


def _schema(interrupt: Any) -> str:
    schema = getattr(interrupt, "response_schema", None)
    return json_text(schema) if schema else ""


def resume_answers(
    questions: tuple[Question, ...], parked: ParkedItem, decision: ReviewDecision
) -> tuple[QuestionAnswer, ...]:
    """What to resume each interrupt with; a built-in gate gets the decision itself."""
    if parked.request.gate is Gate.QUESTION:
        return decision.answers
    return tuple(
        QuestionAnswer(question.id, json.dumps(json.dumps(pack(decision)))) for question in questions
    )


def gate_number(parking: str | None) -> int:
    request = unpack(ParkedItem, json.loads(parking)).request if parking else None
    return request.number if request and request.gate is not Gate.QUESTION else 0


def gate_request(question: Question) -> GateRequest | None:
    """The request of a built-in gate; None if the interrupt is a graph's own."""
    try:
        request: GateRequest = unpack(GateRequest, json.loads(question.value))
    except CodecError:
        return None
    return request


def json_text(value: object) -> str:
    """The value as JSON; objects without a JSON type are represented by their fields, or else as text."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> object:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)
