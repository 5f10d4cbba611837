"""Records of runs written for a test, through the real journal: hostile ones, large ones, and one that keeps growing."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.storage.home import Home
from agentos.storage.journal import Journal
from agentos.storage.runs import new_run
from tests.scenarios.harness import RunHarness

NODES = ("N0_load_issue", "N1_design", "N2_human_edit", "N3_review", "N4_finalize")


@dataclass(slots=True)
class RecordedRun:
    """A run folder with a journal that the test writes; alive until the block ends."""

    id: str
    journal: Journal
    at: float

    def write(self, *written: events.Event, seconds: float = 0.01) -> None:
        for event in written:
            self.at += seconds
            self.journal.on_event(event, self.at)

    def finish_item(self, item: str, key: str = "key-1") -> None:
        """Everything that an item with one round leaves in the journal."""
        lease, usage = f"lease-{item}", Usage(1, 1000, 500)
        self.write(events.ItemStarted(item, 1, 1), events.WorkerStarted(item, 1))
        for node in NODES:
            self.write(events.NodeStarted(item, node, 1))
            if node in ("N1_design", "N3_review"):
                self.write(
                    events.LeaseRequested(item, "draft-1", ("gemini",)),
                    events.LeaseGranted(item, key, lease, 0.0),
                    events.LeaseReleased(item, lease, 1.0, usage, model="a-model"),
                    events.CallCompleted(item, key, "a-model", usage, 0.01),
                )
            self.write(events.NodeFinished(item, node, 0.5))
        outcome = Outcome(Ending.FINISHED, Verdict.APPROVED, 1, result=f"docs/lld/active/{item}.md")
        self.write(
            events.WorkerReported(item, outcome),
            events.WorkerExited(item, "exit status 0", clean=True),
            events.ItemEnded(item, outcome, 3.0, usage + usage, 1, "N4_finalize"),
        )


@contextlib.contextmanager
def recorded_run(
    harness: RunHarness,
    items: tuple[str, ...],
    titles: tuple[str, ...] = (),
    keys: tuple[str, ...] = ("key-1",),
) -> Iterator[RecordedRun]:
    home = Home(harness.home)
    folder = new_run(home.runs, time.time() - 600)
    journal = Journal(folder.path, EventEncoder(str), lambda error: None)
    run = RecordedRun(folder.id, journal, time.time() - 600)
    try:
        started = events.RunStarted(
            folder.id, "lld", str(harness.project), items, 3, keys, "lld-workflow --all", titles=titles
        )
        run.write(started)
        yield run
    finally:
        journal.close()
        folder.close()
