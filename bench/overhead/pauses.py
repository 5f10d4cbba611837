"""Times between calls, read from the journal of a run."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class JournalTimes:
    """`pause` is in seconds, from an item's end to the next item's first node; the others are shares of worker time.

    `coordination` is the time that workers wait for the coordinator: for a free key or for the next item.
    `other` is the time spent neither in model calls nor waiting for a key, such as saving state.
    """

    pause: float
    coordination: float
    other: float


def read(home: Path) -> JournalTimes:
    run = home / "logs" / "parallel" / "latest"
    journal = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    pauses = _pauses(journal)
    return JournalTimes(
        statistics.median(pauses) if pauses else 0.0,
        _coordination(journal),
        (summary["overhead_percent"] or 0.0) / 100,
    )


def _pauses(journal: list[dict[str, Any]]) -> list[float]:
    """Measured per worker slot, since the items of a slot run one after the other."""
    slot: dict[str, int] = {}
    free: dict[int, float] = {}
    pauses = []
    for event in journal:
        match event["type"]:
            case "item_started":
                slot[event["item"]] = event["slot"]
            case "item_ended":
                free[slot[event["item"]]] = event["at"]
            case "node_started":
                if (since := free.pop(slot[event["item"]], None)) is not None:
                    pauses.append(event["at"] - since)
            case _:
                pass
    return pauses


def _coordination(journal: list[dict[str, Any]]) -> float:
    """The time from lease requests to grants and from worker exits to the next start, as a share of worker time."""
    waited = worked = 0.0
    requested: dict[str, float] = {}
    ended: list[float] = []
    for event in journal:
        match event["type"]:
            case "lease_requested":
                requested[event["item"]] = event["at"]
            case "lease_granted":
                waited += event["at"] - requested[event["item"]]
            case "worker_exited":
                ended.append(event["at"])
            case "item_started" if ended:
                waited += event["at"] - ended.pop(0)
            case "item_ended":
                worked += event["seconds"]
            case _:
                pass
    return waited / worked if worked else 0.0
