"""GitHub responses: rate limits, markers, issues."""

import pytest

from agentos.core.planning.items import Item
from agentos.workflows.github.client import rate_limit_wait
from agentos.workflows.github.tracker import as_page, marker_in, marker_of, since_of

DATE = "Mon, 16 Nov 2026 01:00:00 GMT"
AT = 1794790800
BRIEF = Item("ISSUE-17", "issue", 17, "Dark mode", "ideas/active/17-dark-mode.md")


@pytest.mark.parametrize(
    ("status", "headers", "body", "seconds"),
    [
        (200, {"x-ratelimit-remaining": "0"}, {}, None),
        (403, {}, {"message": "Resource not accessible"}, None),
        (404, {"retry-after": "9"}, {}, None),
        (403, {"retry-after": "30"}, {}, 30.0),
        (429, {"retry-after": "0"}, {}, 1.0),
        (429, {}, None, 60.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(AT + 90), "date": DATE}, {}, 91.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(AT - 90), "date": DATE}, {}, 1.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon", "date": DATE}, {}, 60.0),
        (403, {"x-ratelimit-remaining": "0"}, {}, 60.0),
        (403, {}, {"documentation_url": "https://docs.github.com/rest#about-secondary-rate-limits"}, 60.0),
    ],
)
def test_a_rate_limit_is_read_from_status_headers_and_body(
    status: int, headers: dict[str, str], body: object, seconds: float | None
) -> None:
    assert rate_limit_wait(status, headers, body) == seconds


def test_only_a_marker_on_the_last_line_counts() -> None:
    mark = marker_of(BRIEF)
    assert marker_in({"body": f"# Dark mode\n\nText.\n\n{mark}\n"}) == mark
    assert marker_in({"body": f"{mark}\n\nText."}) == ""
    assert marker_in({"body": f"Text, {mark}"}) == ""
    assert marker_in({"body": None}) == ""


def test_two_briefs_with_the_same_number_have_different_markers() -> None:
    other = Item("ISSUE-17", "issue", 17, "Dark mode", "ideas/active/17-other.md")
    assert marker_of(other) != marker_of(BRIEF)


def test_the_search_starts_a_few_minutes_before_the_server_time() -> None:
    assert since_of(DATE) == "2026-11-16T00:55:00Z"
    assert since_of("") < "1970-01-02"


def test_a_pull_request_is_not_an_issue() -> None:
    assert as_page({"number": 7, "title": "x", "body": "y", "pull_request": {}}, "acme/shop") is None
    page = as_page({"number": 8, "title": "Wish", "body": "A\r\ntext.", "labels": ["ui"]}, "acme/shop")
    assert page and page.number == 8 and page.labels == ("ui",) and page.body == "# Wish\n\nA\ntext.\n"
