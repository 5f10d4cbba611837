"""How long a provider asks to wait, in the forms that providers write it."""

import email.utils
import re
from collections.abc import Mapping
from datetime import UTC

_PROTOBUF = re.compile(r"(-?\d+(?:\.\d+)?)s")
_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def retry_after(headers: Mapping[str, str], wall: float) -> float | None:
    """The Retry-After header, as seconds from now: milliseconds, a number or a date."""
    if (exact := _number(headers.get("retry-after-ms", ""))) is not None:
        return exact / 1000
    value = headers.get("retry-after", "").strip()
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp() - wall)


def protobuf_duration(text: object) -> float | None:
    """Seconds in a duration such as "36s" or "0.5s"."""
    found = _PROTOBUF.fullmatch(text) if isinstance(text, str) else None
    return float(found[1]) if found else None


def parse_duration(text: str) -> float | None:
    """Seconds in a span such as "6m0s" or "12ms"."""
    found = _SPAN.fullmatch(text.strip())
    if not text.strip() or found is None:
        return None
    hours, minutes, seconds, thousandths = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + thousandths / 1000


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
