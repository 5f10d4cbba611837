"""Finds calls whose answers were paid for and stored, but which a killed run could not count any more."""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from agentos.core.protocol.codec import CodecError, type_marker, unpack
from agentos.core.protocol.events import AnswerRecovered, CallCompleted, LeaseReleased, RunEnded
from agentos.core.protocol.ports import ModelResponse, PaidCall
from agentos.regular_files import UnsafeFile
from agentos.storage.journal import lines_with, read_entry
from agentos.storage.runs import run_folders

Kind = TypeVar("Kind", AnswerRecovered, CallCompleted, LeaseReleased, RunEnded)


def uncounted_calls(item: str, answers: Iterable[str], runs: Path, own_run: str) -> list[AnswerRecovered]:
    """The calls behind an item's stored answers that neither their own, killed run nor a later run has counted."""
    by_run: dict[str, dict[str, AnswerRecovered]] = defaultdict(dict)
    for text in answers:
        with contextlib.suppress(CodecError, ValueError, KeyError, TypeError, RecursionError):
            response: ModelResponse = unpack(ModelResponse, json.loads(text))
            if (paid := response.paid) and paid.run != own_run:
                by_run[paid.run][paid.lease] = _recovered(item, paid, response)
    found: list[AnswerRecovered] = []
    for run, calls in by_run.items():
        if (runs / run).is_dir() and not any(_events(runs / run, RunEnded)):
            counted = _counted_leases(runs / run, item)
            found += [call for lease, call in calls.items() if lease not in counted]
    if not found:
        return []
    recovered = {
        (event.run, event.lease) for folder in run_folders(runs) for event in _events(folder, AnswerRecovered)
    }
    return [call for call in found if (call.run, call.lease) not in recovered]


def _counted_leases(run: Path, item: str) -> set[str]:
    """A release and the completed call are separate lines: the run may have been killed between writing them."""
    completed = Counter(event.usage for event in _events(run, CallCompleted) if event.item == item)
    counted = set()
    for event in _events(run, LeaseReleased):
        if event.item == item and completed[event.usage]:
            completed[event.usage] -= 1
            counted.add(event.lease)
    return counted


def _recovered(item: str, paid: PaidCall, response: ModelResponse) -> AnswerRecovered:
    return AnswerRecovered(item, paid.run, paid.lease, paid.key, paid.model or response.model, response.usage)


def _events(run: Path, kind: type[Kind]) -> Iterator[Kind]:
    with contextlib.suppress(OSError, UnsafeFile):
        for line in lines_with(run, type_marker(kind)):
            entry = read_entry(line)
            if entry and isinstance(entry.event, kind):
                yield entry.event
