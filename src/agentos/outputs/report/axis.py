"""Where moments stand on a picture."""

from dataclasses import dataclass

STEPS = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)
MOST_TICKS = 10


@dataclass(frozen=True, slots=True)
class Axis:
    """`seconds` from the beginning fill the way from `left` to `right`."""

    seconds: float
    left: float
    right: float

    def x(self, seconds: float) -> float:
        share = min(1.0, max(0.0, seconds / self.seconds)) if self.seconds > 0 else 0.0
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """Round times, few enough to be read."""
        step = next((step for step in STEPS if self.seconds / step <= MOST_TICKS), 0.0)
        while not step or self.seconds / step > MOST_TICKS:
            step = (step or STEPS[-1]) * 2
        return [number * step for number in range(int(self.seconds / step) + 1)]


def tick_label(seconds: float) -> str:
    """0, 0.5s, 30s, 1:30, 2:00:00."""
    if seconds < 60:
        return f"{seconds:g}s" if seconds else "0"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
