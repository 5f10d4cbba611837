"""Counts what a fleet's worker does, for Prometheus."""

from agentos.core.protocol import events
from agentos.fleet.active_items import ActiveItems
from agentos.http.metrics import Metrics

TURNS = "agentos_worker_turns_total"
STARTS = "agentos_worker_item_starts_total"
CALLS = "agentos_worker_calls_total"
WAITS = "agentos_worker_wait_seconds_total"
COST = "agentos_worker_cost_dollars_total"


class WorkerMetrics:
    """A listener that counts in `numbers`; served from another thread."""

    def __init__(self, active_items: ActiveItems) -> None:
        self.numbers = Metrics()
        self.numbers.counter(STARTS, "Items that this worker has started, each time it started them.")
        self.numbers.counter(TURNS, "Turns of items that have ended here, by how they ended.")
        self.numbers.counter(CALLS, "Model calls that were answered, by provider.")
        self.numbers.counter(WAITS, "Seconds that items waited on this worker before a call could be made.")
        self.numbers.counter(COST, "Cost of the calls whose price is known, in US dollars.")
        self.numbers.gauge(
            "agentos_worker_items", "Items that are on this worker now.", lambda: len(active_items)
        )

    def on_event(self, event: events.Event, at: float) -> None:
        match event:
            case events.ItemStarted():
                self.numbers.add(STARTS)
            case events.ItemEnded():
                self.numbers.add(TURNS, (("ending", event.outcome.ending.value),))
            case events.LeaseGranted():
                self.numbers.add(WAITS, amount=event.waited_seconds)
            case events.CallCompleted():
                # The worker's keys are called gateway-PROVIDER.
                self.numbers.add(CALLS, (("provider", event.key.removeprefix("gateway-")),))
                self.numbers.add(COST, amount=event.cost or 0.0)

    def close(self) -> None:
        pass
