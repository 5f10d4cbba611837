"""The timeline of a run: spans of items, keys and pauses."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import SpanKind, Timeline

STARTED = events.RunStarted(
    "r", "lld", "/p", ("LLD-1", "LLD-2"), 2, ("key-1", "key-2"), titles=("One", "Two")
)
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)
REFUSAL = Refusal(RefusalKind.RATE_LIMITED, "429", 5.0)


def timeline_of(*timed_events: tuple[float, events.Event]) -> Timeline:
    timeline = Timeline()
    for at, event in ((100.0, STARTED), *timed_events):
        timeline.handle(event, at)
    return timeline


def spans(timeline: Timeline, item: str, *kinds: SpanKind) -> list[tuple[float, float, str]]:
    lane = timeline.items.get(item) or timeline.keys[item]
    return [(span.began, span.until(timeline.last), span.label) for span in lane.of(*kinds)]


def test_nodes_of_an_item_follow_each_other() -> None:
    timeline = timeline_of(
        (101, events.ItemStarted("LLD-1", 1, 1)),
        (102, events.NodeStarted("LLD-1", "N0_load_issue", 0)),
        (103, events.NodeFinished("LLD-1", "N0_load_issue", 1.0)),
        (103, events.NodeStarted("LLD-1", "N1_design", 1)),
        (109, events.ItemEnded("LLD-1", APPROVED, 8.0, Usage(), 1)),
    )
    assert spans(timeline, "LLD-1", SpanKind.ATTEMPT) == [(101, 109, "attempt 1")]
    assert spans(timeline, "LLD-1", SpanKind.NODE) == [(102, 103, "N0_load_issue"), (103, 109, "N1_design")]


def test_a_wait_lasts_from_request_to_grant_and_an_immediate_grant_shows_none() -> None:
    timeline = timeline_of(
        (101, events.LeaseRequested("LLD-1", "draft-1", ("gemini",))),
        (101.001, events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)),
        (102, events.LeaseRequested("LLD-2", "draft-1", ("gemini",))),
        (105, events.LeaseGranted("LLD-2", "key-1", "lease-2", 3.0)),
    )
    assert spans(timeline, "LLD-1", SpanKind.WAIT) == []
    assert spans(timeline, "LLD-2", SpanKind.WAIT) == [(102, 105, "draft-1")]


def test_the_lane_of_a_key_shows_calls_refusals_and_cooldowns() -> None:
    timeline = timeline_of(
        (101, events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)),
        (103, events.LeaseReleased("LLD-1", "lease-1", 2.0, Usage(1, 1, 1))),
        (104, events.LeaseGranted("LLD-2", "key-1", "lease-2", 0.0)),
        (105, events.LeaseReleased("LLD-2", "lease-2", 1.0, refusal=REFUSAL)),
        (105, events.KeyLimited("key-1", 5.0, "429")),
        (107, events.Heartbeat(7.0)),
    )
    assert spans(timeline, "key-1", SpanKind.CALL) == [(101, 103, "LLD-1")]
    assert spans(timeline, "key-1", SpanKind.REFUSED) == [(104, 105, "LLD-2")]
    assert spans(timeline, "key-1", SpanKind.COOLDOWN) == [(105, 107, "429")]


@pytest.mark.parametrize("kind", [RefusalKind.PROVIDER_ERROR, RefusalKind.CUT])
def test_a_call_without_an_answer_has_failed_and_was_not_refused(kind: RefusalKind) -> None:
    no_answer = Refusal(kind, "127.0.0.1 refused the connection")
    timeline = timeline_of(
        (101, events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)),
        (103, events.LeaseReleased("LLD-1", "lease-1", 2.0, refusal=no_answer)),
    )
    assert spans(timeline, "key-1", SpanKind.FAILED) == [(101, 103, "LLD-1")]
    assert spans(timeline, "key-1", SpanKind.REFUSED) == []


def test_a_crashed_worker_ends_its_node_its_wait_and_its_call() -> None:
    timeline = timeline_of(
        (101, events.ItemStarted("LLD-1", 1, 1)),
        (102, events.NodeStarted("LLD-1", "N1_design", 1)),
        (103, events.LeaseGranted("LLD-1", "key-1", "lease-1", 0.0)),
        (104, events.WorkerExited("LLD-1", "killed by SIGKILL", clean=False)),
        (104, events.ItemRetried("LLD-1", "killed", 2, 3, 1.0)),
        (106, events.ItemStarted("LLD-1", 1, 2)),
        (107, events.Heartbeat(7.0)),
    )
    assert spans(timeline, "LLD-1", SpanKind.NODE) == [(102, 104, "N1_design")]
    assert spans(timeline, "key-1", SpanKind.CALL) == [(103, 104, "LLD-1")]
    assert spans(timeline, "LLD-1", SpanKind.RETRY) == [(104, 106, "killed")]
    assert spans(timeline, "LLD-1", SpanKind.ATTEMPT) == [(101, 104, "attempt 1"), (106, 107, "attempt 2")]


def test_pauses_of_the_run_have_their_own_lane() -> None:
    timeline = timeline_of(
        (101, events.AllKeysLimited("key-2", 4.0)),
        (105, events.KeysAvailable(4.0)),
        (106, events.PoolExhausted(2, 2)),
        (107, events.PoolRestored(1.0)),
    )
    kinds = [(span.kind, span.began, span.ended) for span in timeline.run.spans]
    assert kinds == [(SpanKind.LIMITED, 101, 105), (SpanKind.EXHAUSTED, 106, 107)]


def test_a_clock_that_is_set_back_does_not_move_the_timeline_back() -> None:
    record = RunRecord("r")
    for at, event in (
        (1000.0, STARTED),
        (1001.0, events.ItemStarted("LLD-1", 1, 1)),
        (-6200.0, events.NodeStarted("LLD-1", "N1_design", 1)),
        (-6198.0, events.NodeFinished("LLD-1", "N1_design", 2.0)),
    ):
        record.handle(event, at)
    (node,) = record.timeline.items["LLD-1"].of(SpanKind.NODE)
    assert (node.began, node.ended) == (1001.0, 1003.0)


def test_an_item_whose_start_could_not_be_read_is_in_the_record() -> None:
    record = RunRecord("r")
    record.handle(events.NodeStarted("LLD-9", "N1_design", 1), 5.0)
    assert list(record.timeline.items) == ["LLD-9"]


def test_what_was_running_in_a_killed_run_ends_at_its_last_event() -> None:
    record = RunRecord("r", alive=False)
    record.handle(STARTED, 1.0)
    record.handle(events.ItemStarted("LLD-1", 1, 1), 2.0)
    assert [record.status_of(row) for row in record.stats.rows.values()] == ["killed", "not started"]
    record.alive = True
    assert [record.status_of(row) for row in record.stats.rows.values()] == ["running", "waiting"]
