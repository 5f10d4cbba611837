"""The history of one item: its calls, with what refused them, and its retries."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.run_state.item_history import ItemHistory

USAGE = Usage(1, 100, 50)


def test_a_refused_call_and_the_one_that_follows_are_two_rows_of_one_request() -> None:
    history = ItemHistory("LLD-1")
    refusal = Refusal(RefusalKind.RATE_LIMITED, "over the limit")
    written: tuple[events.Event, ...] = (
        events.LeaseRequested("LLD-1", "draft-1", ("gemini",)),
        events.LeaseGranted("LLD-1", "key-1", "a", 0.5),
        events.LeaseReleased("LLD-1", "a", 1.0, refusal=refusal),
        events.LeaseRequested("LLD-1", "draft-1", ("gemini",)),
        events.LeaseGranted("LLD-1", "key-2", "b", 2.0),
        events.LeaseReleased("LLD-1", "b", 3.0, USAGE, model="m"),
        events.CallCompleted("LLD-1", "key-2", "m", USAGE, None),
        events.LeaseRequested("LLD-1", "review-1", ("gemini",)),
    )
    for at, event in enumerate(written):
        history.handle(event, float(at))
    refused, answered, waiting = history.calls
    assert (refused.key, refused.refusal, refused.cost) == ("key-1", "over the limit", None)
    assert (answered.call, answered.key, answered.waited_seconds, answered.usage) == (
        "draft-1",
        "key-2",
        2.0,
        USAGE,
    )
    assert answered.is_completed and answered.cost is None and answered.model == "m"
    assert waiting.granted is None and waiting.ended is None


def test_events_of_other_items_and_without_an_item_are_left_out() -> None:
    history = ItemHistory("LLD-1")
    history.handle(events.LeaseRequested("LLD-2", "draft-1", ("gemini",)), 1.0)
    history.handle(events.Heartbeat(60.0), 2.0)
    history.handle(events.ItemRetried("LLD-1", "it crashed", 2, 3, 1.5), 3.0)
    assert history.calls == []
    (retry,) = history.retries
    assert (retry.reason, retry.attempt, retry.at) == ("it crashed", 2, 3.0)


def test_a_call_through_the_gateway_is_a_row_of_its_own() -> None:
    history = ItemHistory("a")
    usage = Usage(1, 1000, 50, cache_read_tokens=900)
    for at in (10.0, 20.0):
        history.handle(events.CallCompleted("a", "key-1", "m", usage, 0.02, 3.0, 1.0), at)
    first, second = history.calls
    assert (first.call, first.requested, first.granted, first.ended) == ("call-1", 7.0, 8.0, 10.0)
    assert (first.seconds, first.waited_seconds, first.usage, first.cost) == (2.0, 1.0, usage, 0.02)
    assert (second.call, second.key, second.is_completed) == ("call-2", "key-1", True)
