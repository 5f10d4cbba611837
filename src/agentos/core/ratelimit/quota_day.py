"""When a provider's day begins, by which it counts the requests of a day."""

from datetime import UTC, datetime, time, timedelta

DAY = 86400.0
# Clocks differ: our day begins a little later than theirs.
LATER = 1.0


def day_began(provider: str, wall: float) -> float | None:
    """The wall time at which the day of so much wall time began; None if it is not known."""
    return wall + seconds_to_midnight_pacific(wall) - DAY + LATER if provider == "gemini" else None


def seconds_to_midnight_pacific(wall: float) -> float:
    """Until Google's daily quotas are reset."""
    now = datetime.fromtimestamp(wall, UTC)
    try:
        from zoneinfo import ZoneInfo

        pacific = ZoneInfo("America/Los_Angeles")
    except KeyError:
        # No time zone data on this machine: midnight in winter time is never too early.
        return DAY - (wall - 8 * 3600) % DAY
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific).timestamp() - wall
