"""What the call log keeps of many calls."""

import json

import pytest

from agentos.offline.call_log import Arrival, CallLog

CALL = Arrival("key-1", "draft", "any", "Show rows", "a prompt")


def test_the_last_calls_are_kept_and_all_are_counted() -> None:
    book = CallLog(lambda: 0.0, max_entries=10)
    for _ in range(25):
        with book.record(CALL) as entry:
            entry.status = 200
    report = json.loads(book.as_json())
    assert [call["seq"] for call in report["calls"]] == list(range(16, 26))
    assert report["seen"] == 25
    assert report["statuses"] == {"key-1": {"200": 25}}


@pytest.mark.parametrize(("last", "shown"), [(0, []), (1, [2]), (9, [1, 2]), (None, [1, 2])])
def test_the_report_is_limited_to_the_requested_number_of_calls(last: int | None, shown: list[int]) -> None:
    book = CallLog(lambda: 0.0)
    for _ in range(2):
        with book.record(CALL):
            pass
    report = json.loads(book.as_json(last))
    assert [call["seq"] for call in report["calls"]] == shown
    assert report["statuses"] == {"key-1": {"dropped": 2}}
