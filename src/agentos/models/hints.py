"""How long a provider asks to wait, in the forms that providers write it."""

import email.utils
import re
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta

_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)s")


def retry_after(headers: Mapping[str, str], wall: float) -> float | None:
    """The Retry-After header, as seconds from now: a number or a date."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp() - wall)


def protobuf_duration(text: object) -> float | None:
    """Seconds in a duration such as "36s" or "0.5s"."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return float(found[1]) if found else None


def seconds_to_midnight_pacific(wall: float) -> float:
    """Until Google's daily quotas are reset."""
    now = datetime.fromtimestamp(wall, UTC)
    try:
        from zoneinfo import ZoneInfo

        pacific = ZoneInfo("America/Los_Angeles")
    except KeyError:
        # No time zone data on this machine: midnight in winter time is never too early.
        return 86400 - (wall - 8 * 3600) % 86400
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific).timestamp() - wall
