"""One trace per item: spans for the item, its turns, their nodes and calls, made from a worker's events."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.protocol.trace_context import SpanContext, call_span, item_trace
from agentos.fleet.active_items import ActiveItem
from agentos.fleet.turns import FINISHED, Turn, TurnEnd
from agentos.outputs.span_export import Attributes, FinishedSpan, SpanRole
from agentos.storage.postgres.event_writer import ItemClaim


@dataclass(slots=True)
class _OpenTurn:
    """A turn that is running here. `nodes` and `calls` are the open spans, by name and by lease."""

    active_item: ActiveItem
    context: SpanContext
    started_at: float
    nodes: dict[str, float] = field(default_factory=dict)
    calls: dict[str, tuple[float, events.LeaseGranted, SpanContext]] = field(default_factory=dict)


class ItemSpans:
    """Several machines may run turns of one item. Span ids are derived from the item, so that they form one trace."""

    def __init__(self, write: Callable[[FinishedSpan], None], machine: str) -> None:
        self._write = write
        self._machine = machine
        self._turns: dict[str, _OpenTurn] = {}
        self._submitted: dict[ItemClaim, tuple[str, float]] = {}

    def on_event(self, active_item: ActiveItem, event: events.Event, at: float) -> None:
        """Called in the coordinator's thread for every event of an active item."""
        if isinstance(event, events.ItemStarted):
            context = item_span(active_item.loaded.shared.account, active_item.claim).child(
                f"turn {active_item.claim.claim}"
            )
            self._turns[active_item.key] = _OpenTurn(active_item, context, at)
            self._submitted[active_item.claim] = (
                active_item.loaded.shared.account,
                active_item.loaded.submitted_at,
            )
        if turn := self._turns.get(active_item.key):
            self._handle(turn, event, at)

    def on_turn_end(self, turn: Turn, claim: ItemClaim, end: TurnEnd | None, at: float) -> None:
        """Called in Temporal's thread, after the turn's last event; the item's last turn ends the item."""
        found = self._submitted.pop(claim, None)
        if found is None or end is None or end.result.kind != FINISHED:
            return
        account, submitted_at = found
        attributes: Attributes = {
            "agentos.project": turn.project,
            "agentos.item": turn.item,
            "agentos.submission": turn.submission,
        }
        outcome = end.outcome
        self._write(
            FinishedSpan(
                f"item {turn.item}",
                item_span(account, claim),
                None,
                submitted_at,
                at,
                attributes={**attributes, "agentos.ending": outcome.ending.value if outcome else ""},
                error=_error(outcome),
            )
        )

    def _handle(self, turn: _OpenTurn, event: events.Event, at: float) -> None:
        match event:
            case events.NodeStarted():
                turn.nodes[event.node] = at
            case events.NodeFinished():
                self._end_node(turn, event.node, at)
            case events.LeaseGranted():
                parent = self._node_span(turn, next(reversed(turn.nodes))) if turn.nodes else turn.context
                turn.calls[event.lease] = (at, event, parent)
            case events.LeaseReleased():
                self._end_call(turn, event, at)
            case events.ItemEnded():
                self._end_turn(turn, event, at)
            case _:
                pass

    def _end_node(self, turn: _OpenTurn, node: str, at: float, error: str = "") -> None:
        if (started_at := turn.nodes.get(node)) is not None:
            span = self._node_span(turn, node)
            del turn.nodes[node]
            self._write(FinishedSpan(f"node {node}", span, turn.context, started_at, at, error=error))

    def _node_span(self, turn: _OpenTurn, node: str) -> SpanContext:
        return turn.context.child(f"node {turn.context.span} {node} {turn.nodes[node]}")

    def _end_call(self, turn: _OpenTurn, event: events.LeaseReleased, at: float) -> None:
        found = turn.calls.pop(event.lease, None)
        if found is None:
            return
        granted_at, granted, parent = found
        active_item = turn.active_item
        self._write(
            FinishedSpan(
                f"call {event.model}".rstrip(),
                call_span(
                    item_span(active_item.loaded.shared.account, active_item.claim),
                    active_item.claim.claim,
                    event.lease,
                ),
                parent,
                granted_at,
                at,
                SpanRole.CLIENT,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.response.model": event.model,
                    "gen_ai.usage.input_tokens": event.usage.input_tokens,
                    "gen_ai.usage.output_tokens": event.usage.output_tokens,
                    "agentos.waited_seconds": granted.waited_seconds,
                },
                event.refusal.reason if event.refusal else "",
            )
        )

    def _end_turn(self, turn: _OpenTurn, event: events.ItemEnded, at: float) -> None:
        del self._turns[turn.active_item.key]
        error = _error(event.outcome)
        for node in list(turn.nodes):
            self._end_node(turn, node, at, error or event.outcome.ending.value)
        claim = turn.active_item.claim
        submission, number, attempt = claim.claim
        attributes: Attributes = {
            "agentos.machine": self._machine,
            "agentos.submission": submission,
            "agentos.turn": number,
            "agentos.attempt": attempt,
            "agentos.ending": event.outcome.ending.value,
        }
        parent = item_span(turn.active_item.loaded.shared.account, claim)
        self._write(
            FinishedSpan(
                f"turn {number}",
                turn.context,
                parent,
                turn.started_at,
                at,
                attributes=attributes,
                error=error,
            )
        )


def item_span(account: str, claim: ItemClaim) -> SpanContext:
    """The root of the item's trace."""
    return item_trace(account, claim.claim[0], claim.thread_id).child("item")


def _error(outcome: Outcome | None) -> str:
    return (outcome.error or "") if outcome and outcome.ending is Ending.FAILED else ""
