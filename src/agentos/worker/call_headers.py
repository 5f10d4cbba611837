"""The headers that a fleet worker sends to the gateway with each model call."""

from agentos.core.planning.worker_task import FleetTask
from agentos.core.protocol.trace_context import TRACEPARENT, SpanContext, call_span
from agentos.models.refusal_base import BUDGET_HEADER

Headers = tuple[tuple[str, str], ...]


def call_headers(fleet: FleetTask | None, lease: str) -> Headers:
    """The submission's budget, which the gateway enforces across all workers, and the span of the call."""
    if fleet is None:
        return ()
    budget = () if fleet.budget is None else ((BUDGET_HEADER, f"{fleet.account}={fleet.budget!r}"),)
    if not fleet.trace:
        return budget
    return (*budget, (TRACEPARENT, call_span(SpanContext(fleet.trace), fleet.claim, lease).header))
