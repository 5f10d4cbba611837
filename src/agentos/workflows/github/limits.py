"""How long GitHub asks to wait, read from the structure of its answer."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

WITHOUT_HINT = 60.0
LEAST = 1.0
MOST_DIGITS = 12
SECONDARY = "secondary-rate-limits"


def limit_seconds(status: int, headers: Mapping[str, str], body: Any) -> float | None:
    """Seconds until the next request may be sent; None when no limit was met."""
    if status not in (403, 429):
        return None
    if (after := _number(headers.get("retry-after"))) is not None:
        return max(LEAST, after)
    if headers.get("x-ratelimit-remaining") == "0":
        return _until_reset(headers)
    told = str(body.get("documentation_url", "")) if isinstance(body, dict) else ""
    return WITHOUT_HINT if status == 429 or SECONDARY in told else None


def _until_reset(headers: Mapping[str, str]) -> float:
    """By the server's own clock: ours may be wrong."""
    reset = _number(headers.get("x-ratelimit-reset"))
    try:
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return WITHOUT_HINT
    return WITHOUT_HINT if reset is None else max(LEAST, reset - now + LEAST)


def _number(text: str | None) -> float | None:
    """A moment or a span in seconds; nothing that a clock could not show."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else None
