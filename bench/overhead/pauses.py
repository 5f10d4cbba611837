"""What a run's journal says of the time between calls."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """`pause` from an item's end to the next one's first node, in seconds; the others as shares of the workers' time.

    `coordination` is what workers wait for the coordinator: for a free key, for the next item.
    `apart` is all that is neither a model's call nor waiting for a key, such as saving the state.
    """

    pause: float
    coordination: float
    apart: float


def read(home: Path) -> Told:
    run = home / "logs" / "parallel" / "latest"
    told = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    pauses = _pauses(told)
    return Told(
        statistics.median(pauses) if pauses else 0.0, _coordination(told), summary["overhead_percent"] / 100
    )


def _pauses(told: list[dict[str, Any]]) -> list[float]:
    """By the place of the worker: each place is taken by one item after the other."""
    place: dict[str, int] = {}
    free: dict[int, float] = {}
    found = []
    for event in told:
        match event["type"]:
            case "item_started":
                place[event["item"]] = event["slot"]
            case "item_ended":
                free[place[event["item"]]] = event["at"]
            case "node_started":
                if (since := free.pop(place[event["item"]], None)) is not None:
                    found.append(event["at"] - since)
            case _:
                pass
    return found


def _coordination(told: list[dict[str, Any]]) -> float:
    """From a wish to its key, and from a worker's end to the order for the next one."""
    waited = lived = 0.0
    wished: dict[str, float] = {}
    ended: list[float] = []
    for event in told:
        match event["type"]:
            case "lease_requested":
                wished[event["item"]] = event["at"]
            case "lease_granted":
                waited += event["at"] - wished[event["item"]]
            case "worker_exited":
                ended.append(event["at"])
            case "item_started" if ended:
                waited += event["at"] - ended.pop(0)
            case "item_ended":
                lived += event["seconds"]
            case _:
                pass
    return waited / lived if lived else 0.0
