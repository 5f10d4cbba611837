"""Runs the LangGraph graph of one item from its checkpoint as far as it goes, with an event before and after each node."""

import asyncio
import functools
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentos.core.errors import ItemError
from agentos.core.planning.gates import (
    Gate,
    GateRequest,
    ParkedItem,
    Question,
    ReviewAction,
    ReviewDecision,
)
from agentos.core.planning.items import FINISHED
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.events import NodeFinished, NodeStarted
from agentos.core.protocol.results import Ending, Outcome, failed, failed_transient
from agentos.storage.item_store import Checkpoint, ItemStore
from agentos.storage.review_notes import PARKING, REJECTED, decision_note
from agentos.worker.graph_changes import check_continues
from agentos.worker.graph_setup import run_context, runnable_graph, step_limit
from agentos.worker.model_session import ModelSession
from agentos.worker.questions import (
    finished_tasks,
    gate_number,
    gate_request,
    open_questions,
    resume_answers,
    resume_input,
    stopped_inside,
)
from agentos.worker.retried_errors import REPEATED_ERRORS, deciding_error, is_tried_again
from agentos.worker.state_serializer import OwnModules, StateSerializer, schema_types
from agentos.worker.stream_log import TokenLog, custom_line
from agentos.workflows.node_context import NodeContext, Say, Tracker
from agentos.workflows.plugin import Plugin

if TYPE_CHECKING:
    from agentos.codebase.project_code import ProjectCode

CANCEL_GRACE = 2.0  # seconds between the request to stop and the cancellation of the running node
FIRST_STEP = "first step"
"""Checkpoint note: the step from which steps count towards the recursion limit, 0 or that of a person's last answer."""


@dataclass(frozen=True, slots=True)
class GraphRunner:
    """Runs the graph to its end, to a gate without a decision, or until the session is stopped."""

    task: WorkerTask
    workflow: Plugin
    store: ItemStore
    session: ModelSession
    echo: Say

    async def run(self, checkpoint: Checkpoint) -> Outcome:
        context = await self._context(checkpoint)
        found = self.workflow.graph(context)
        async with runnable_graph(found, checkpoint.saver, Path(self.task.store), self.echo) as graph:
            options = self.workflow.options
            own = OwnModules(
                Path(self.task.project), self.workflow.origin.partition(":")[0].partition(".")[0]
            )
            checkpoint.saver.serde = StateSerializer(
                functools.partial(schema_types, graph, options.serde), own
            )
            run = GraphRun(graph, self, checkpoint, context)
            try:
                return await run.to_its_end()
            except Exception as raised:
                error = deciding_error(raised, options.retry_on)
                if isinstance(error, REPEATED_ERRORS):
                    at_once = options.retry_on is not None and is_tried_again(error, options.retry_on)
                    if await self.session.drop_useless(checkpoint, run.ended, at_once=at_once):
                        self.echo(
                            "It failed on stored model answers: they were dropped, and the next attempt calls the model again"
                        )
                raise

    async def _context(self, checkpoint: Checkpoint) -> NodeContext:
        parking = await checkpoint.noted(PARKING)
        return NodeContext(
            item=self.task.item,
            folder=self.store.documents,
            ask=functools.partial(self.session.ask, checkpoint),
            forget=functools.partial(self.session.forget, checkpoint),
            say=self.echo,
            max_iterations=self.task.max_iterations,
            prompts=self.workflow.prompts,
            gates=self.task.gates,
            parked=gate_number(parking),
            text=self.task.text,
            tracker=self._tracker(),
            code=self._code(),
        )

    def _code(self) -> "ProjectCode | None":
        if self.task.code is None:
            return None
        from agentos.codebase.project_code import ProjectCode

        return ProjectCode(self.task.code, Path(self.task.project))

    def _tracker(self) -> Tracker | None:
        task = self.task
        if task.github is None or task.filed is None:
            return None
        from agentos.workflows.github.client import GitHub
        from agentos.workflows.github.tracker import GitHubTracker

        github = GitHub(task.github, self.echo, random.random)
        return GitHubTracker(github, task.item, task.filed.address, task.filed.since, task.filed.index)

    async def conclude(self, snapshot: Any, checkpoint: Checkpoint, context: NodeContext) -> Outcome:
        if snapshot.tasks:
            return failed_transient(f"the graph stopped before {', '.join(snapshot.next) or 'its end'}")
        result = self.workflow.publish(context, snapshot.values)
        await checkpoint.note("node", FINISHED)
        conclusion = self.workflow.conclude(snapshot.values)
        return Outcome(
            Ending.FINISHED,
            conclusion.verdict,
            conclusion.rounds,
            details=(conclusion.reason,) if conclusion.reason else (),
            result=result or conclusion.result,
        )


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run of an item's graph, in one worker."""

    graph: Any
    runner: GraphRunner
    checkpoint: Checkpoint
    context: NodeContext
    started_at: dict[str, float] = field(default_factory=dict)
    """When each running node of the top-level graph was started, by task id."""
    ended: set[str] = field(default_factory=set)
    """The tasks that have ended without an error, including those in subgraphs."""

    @property
    def config(self) -> Any:
        return {"configurable": {"thread_id": self.runner.store.thread_id}}

    async def to_its_end(self) -> Outcome:
        is_resumed = await self.checkpoint.saver.aget_tuple(self.config) is not None
        if is_resumed:
            await check_continues(self.graph, self.checkpoint.saver, self.config, self.runner.task.item.id)
        graph_input = None if is_resumed else self.runner.workflow.input(self.context)
        questions = await self._questions_left() if is_resumed else ()
        while True:
            if questions:
                questions = await self._answered_first(questions)
                parked = await self._parked_item(questions)
                decision = await self._decision(parked)
                if decision is None:
                    await self.checkpoint.note(PARKING, json.dumps(pack(parked)))
                    return Outcome(Ending.PARKED, rounds=parked.request.round)
                if decision.action is ReviewAction.REJECT and parked.request.gate is Gate.QUESTION:
                    await self.checkpoint.note(REJECTED, str(parked.request.number))
                    reason = f": {decision.text}" if decision.text else ""
                    fix = f"start it over with --fresh {self.runner.task.item.id}"
                    return failed(f"rejected by a person{reason}", (fix,))
                graph_input = resume_input(questions, resume_answers(questions, parked, decision))
                await self._count_steps_from_here()
            if interrupted := await self._invoke(graph_input, is_resumed):
                return interrupted
            is_resumed = True
            snapshot = await self.graph.aget_state(self.config)
            questions = await open_questions(self.graph, self.config, snapshot)
            if not questions and snapshot.next:
                questions = await stopped_inside(self.graph, self.config)
            if not questions:
                return await self.runner.conclude(snapshot, self.checkpoint, self.context)

    async def _questions_left(self) -> tuple[Question, ...]:
        """What an earlier worker stopped at."""
        snapshot = await self.graph.aget_state(self.config)
        return await open_questions(self.graph, self.config, snapshot) or await self._still_parked()

    async def _parked_item(self, questions: tuple[Question, ...]) -> ParkedItem:
        """What a person is asked now; the earlier note if the graph still waits for the same thing."""
        request = gate_request(questions[0])
        if request is None:
            noted = await self._noted_request()
            number = 1 if noted is None else noted.number
            if noted and {question.id for question in questions} - {each.id for each in noted.questions}:
                number += 1
            request = GateRequest(number, Gate.QUESTION, 0, "", questions=questions)
        task = self.runner.task
        lineage = str(Path(request.draft).parent) if request.draft else ""
        return ParkedItem(
            task.item.id,
            task.workflow,
            task.item.title,
            questions[0].node,
            lineage,
            task.run,
            time.time(),
            request,
        )

    async def _noted_request(self) -> GateRequest | None:
        parking = await self.checkpoint.noted(PARKING)
        return unpack(ParkedItem, json.loads(parking)).request if parking else None

    async def _still_parked(self) -> tuple[Question, ...]:
        """The breakpoint in a subgraph at which an earlier worker parked the item."""
        noted = await self._noted_request()
        stopped = await stopped_inside(self.graph, self.config) if noted and noted.is_breakpoint else ()
        return stopped if noted and stopped and stopped[0].id == noted.questions[0].id else ()

    async def _decision(self, parked: ParkedItem) -> ReviewDecision | None:
        text = await self.checkpoint.noted(decision_note(parked.request.number))
        return None if text is None else unpack(ReviewDecision, json.loads(text))

    async def _answered_first(self, questions: tuple[Question, ...]) -> tuple[Question, ...]:
        """The questions with a recorded answer; all of them if none has one. After a crash, one parallel branch may
        wait for a recorded answer and another for a new one."""
        parking = await self.checkpoint.noted(PARKING)
        decision = await self._decision(unpack(ParkedItem, json.loads(parking))) if parking else None
        answered = {answer.question for answer in decision.answers} if decision else set()
        return tuple(question for question in questions if question.id in answered) or questions

    async def _invoke(self, graph_input: Any, is_resumed: bool) -> Outcome | None:
        """Run to the next gate or to the end; return an outcome only if stopped before that."""
        from langgraph.errors import GraphDrained, GraphRecursionError, NodeCancelledError
        from langgraph.runtime import RunControl

        session, control = self.runner.session, RunControl()
        running = asyncio.ensure_future(self._stream(graph_input, is_resumed, control))
        stopper = asyncio.create_task(self._stop_when_asked(running, control))
        try:
            await running
        except GraphRecursionError as error:
            raise self._too_many_steps() from error
        except (GraphDrained, NodeCancelledError, asyncio.CancelledError):
            if not session.stopping.is_set():
                raise
            next_nodes = (await self.graph.aget_state(self.config)).next
            if next_nodes and not next_nodes[0].startswith("__"):
                await self.checkpoint.note("node", next_nodes[0])
            return Outcome(Ending.INTERRUPTED)
        finally:
            stopper.cancel()
        return None

    async def _stop_when_asked(self, running: "asyncio.Future[Any]", control: Any) -> None:
        """Stop at the next node boundary; after a grace period, cancel the running node."""
        session = self.runner.session
        await session.stopping.wait()
        control.request_drain()
        session.stop_waiting()
        await asyncio.sleep(CANCEL_GRACE)
        running.cancel()

    async def _stream(self, graph_input: Any, is_resumed: bool, control: Any) -> None:
        finished, steps, is_unfinished = set[str](), 0, False
        if is_resumed:
            snapshot = await self.graph.aget_state(self.config, subgraphs=True)
            finished = await finished_tasks(self.checkpoint.saver, snapshot)
            steps, is_unfinished = (snapshot.metadata or {}).get("step", 0), bool(snapshot.next)
        config = {**self.config, "callbacks": [TokenLog(self.runner.echo)]}
        if limit := step_limit(self.graph, self.runner.workflow.options):
            taken = max(0, steps - int(await self.checkpoint.noted(FIRST_STEP) or 0))
            if taken >= limit and is_unfinished:
                raise self._too_many_steps()
            config["recursion_limit"] = max(1, limit - taken)
        stream = self.graph.astream(
            graph_input,
            config,
            context=run_context(self.graph, self.runner.workflow.options),
            stream_mode=["tasks", "custom"],
            subgraphs=True,
            durability="sync",
            control=control,
        )
        async for namespace, mode, value in stream:
            if mode == "custom":
                self.runner.echo(custom_line(value))
            elif "input" not in value:
                self._node_ended(value)
            elif value["id"] not in finished:
                await self._node_started(namespace, value)

    async def _node_started(self, namespace: tuple[str, ...], task: Mapping[str, Any]) -> None:
        node, outer = task["name"], [part.partition(":")[0] for part in namespace]
        self.runner.echo(f">>> Executing: {'/'.join([*outer, node])}")
        if outer:
            return
        self.started_at[task["id"]] = time.monotonic()
        self.runner.session.send(NodeStarted(self.runner.task.item.id, node, _round(task["input"])))
        await self.checkpoint.note("node", node)

    def _node_ended(self, task: Mapping[str, Any]) -> None:
        if not task["error"]:
            self.ended.add(task["id"])
        started_at = self.started_at.pop(task["id"], None)
        if started_at is not None and not task["error"] and not task["interrupts"]:
            seconds = time.monotonic() - started_at
            self.runner.session.send(NodeFinished(self.runner.task.item.id, task["name"], seconds))

    async def _count_steps_from_here(self) -> None:
        snapshot = await self.graph.aget_state(self.config)
        await self.checkpoint.note(FIRST_STEP, str((snapshot.metadata or {}).get("step", 0)))

    def _too_many_steps(self) -> ItemError:
        limit = step_limit(self.graph, self.runner.workflow.options) or "LangGraph's limit of"
        return ItemError(
            f"the graph took {limit} steps and did not end",
            ("if it needs more, set Workflow.from_graph(..., recursion_limit=...), then run it again",),
        )


def _round(state: object) -> int:
    found = state.get("round", 0) if isinstance(state, Mapping) else getattr(state, "round", 0)
    return found if isinstance(found, int) else 0
