"""Requests that no page sends: numbers that are none, and comparisons that cross."""

import json
import threading
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.page.run_view import LocalRun, RunView
from agentos.page.views import compare_json
from tests.scenarios.harness import RunHarness

from .recorded import recorded_run
from .served import serve


def test_what_only_looks_like_a_number_is_a_bad_request_or_no_position(harness: RunHarness) -> None:
    with recorded_run(harness, ("LLD-1",)) as run:
        run.finish_item("LLD-1")
    page = serve(harness)
    for text in ("--5", "%C2%B2", "5-", "-", "9" * 16):
        answer = page.get(f"/api/runs/{run.id}/log?limit={text}")
        assert (answer.status, "expected a whole number" in answer.json["error"]) == (400, True), text
    whole = page.get(f"/api/runs/{run.id}/events").body
    for text in ("%C2%B2", "9" * 5000, "-1"):
        answer = page.get(f"/api/runs/{run.id}/events?after={text}")
        assert answer.status == 200 and answer.body.count(b"event: journal") == whole.count(b"event: journal")


class CountedLock:
    """A lock that notes in which order it and others are taken."""

    def __init__(self, name: str, taken: list[str]) -> None:
        self._name = name
        self._taken = taken
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._taken.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("names", [("A", "B"), ("B", "A")])
def test_two_comparisons_of_the_same_runs_never_wait_for_each_other(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """Each takes the locks of both runs, in an order that does not depend on the request."""
    taken: list[str] = []
    views = []
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        started = events.RunStarted(name, "lld", "/nowhere", ("LLD-1",), 1, ())
        (folder / "events.jsonl").write_text(EventEncoder(str).line(started, 1.0) + "\n")
        view = RunView(LocalRun(folder))
        view.refresh()
        view.lock = CountedLock(name, taken)  # type: ignore[assignment]
        views.append(view)
    assert json.dumps(compare_json(*views))
    assert taken == ["A", "B"]
