"""Draws the pictures of learned limits in docs/explanation/key-pool.md from simulated runs: `make pictures`."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path

from bench.keypool.limiters import Change, Kind, Limit, Limiter
from bench.keypool.shape_run import MODEL, START, Happening, Load, Simulation, best_seconds
from bench.keypool.shapes import Hint, Shape

from agentos.core.quota.key_status import describe_learned
from agentos.core.quota.lease import Lease
from agentos.core.ratelimit.limit_candidates import limit_candidates
from agentos.core.ratelimit.limit_evidence import Evidence, ObservedRefusal
from agentos.core.ratelimit.limit_scoring import predict, rate
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits
from agentos.core.ratelimit.windows import Reservation

HERE = Path(__file__).parent
WIDTH, LEFT, RIGHT = 760, 60, 20
GREEN, RED, BLUE, GREY, INK, RULE = "#1a7f37", "#cf222e", "#0969da", "#59636e", "#1f2328", "#d0d7de"
SETTLED = 0.1  # seconds; what was learned for a shorter time is not named
TOOK = 0.003  # seconds until a refusal is known
TEN = Limit(Kind.SLIDING, 10, 10.0)
ONE_KEY = Shape("picture", ((TEN,),), keys=(0,), callers=16, latency=(0.3, 1.0), per_window=10)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A call of the only key as the provider saw it, in seconds since the start."""

    at: float
    is_admitted: bool


class RecordedSimulation(Simulation):
    """A simulation with one key that keeps what arrives at the provider and what the pool has learned by then."""

    arrivals: list[Arrival]
    learned: list[tuple[float, LearnedLimits | None]]

    @classmethod
    def of(cls, shape: Shape, calls: int) -> "RecordedSimulation":
        load = Load.of(shape, calls, 1)
        simulation = cls(shape, load, 1, told=False, long=True)
        simulation.arrivals, simulation.learned = [], [(0.0, None)]
        simulation.run(best_seconds(shape, load))
        return simulation

    def _arrive(self, lease: Lease, now: float) -> None:
        refused = self.refused
        super()._arrive(lease, now)
        self.arrivals.append(Arrival(now - START, self.refused == refused))

    def _decide(self, event: Happening, now: float) -> None:
        super()._decide(event, now)
        learned = self.pool.bucket("key-1", MODEL).limiter.learned
        if learned is not self.learned[-1][1]:
            self.learned.append((now - START, learned))

    def usage(self, seconds: float) -> list[tuple[float, float]]:
        """How many calls of the last `seconds` the provider counts, whenever that changes."""
        times = [one.at for one in self.arrivals if one.is_admitted]
        changes = sorted([(at, 1) for at in times] + [(at + seconds, -1) for at in times])
        level, points = 0.0, [(0.0, 0.0)]
        for at, change in changes:
            level += change
            points.append((at, level))
        return points


@dataclass(frozen=True, slots=True)
class Plot:
    """An area with a time axis from 0 to `seconds` and values from 0 to `highest`."""

    seconds: float
    highest: float
    top: float = 40.0
    height: float = 200.0

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / self.seconds

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / self.highest)

    def axes(self, step_s: float, step: float, label: str) -> Iterator[str]:
        for number in range(int(self.highest // step) + 1):
            y = self.y(number * step)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{RULE}"/>'
            yield text(LEFT - 8, y + 4, f"{number * step:g}", GREY, "end")
        for number in range(int(self.seconds // step_s) + 1):
            yield text(self.x(number * step_s), self.top + self.height + 18, f"{number * step_s:g} s", GREY)
        yield text(LEFT, self.top - 14, label, INK, "start")

    def line(self, points: list[tuple[float, float]], colour: str, *, steps: bool, dash: str = "") -> str:
        kept = [point for point in points if point[0] <= self.seconds]
        moves = []
        for (at, value), (then, _) in pairwise([*kept, (self.seconds, 0.0)]):
            moves.append(f"{self.x(at):.1f} {self.y(value):.1f}")
            if steps:
                moves.append(f"{self.x(then):.1f} {self.y(value):.1f}")
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<path d="M{"L".join(moves)}" fill="none" stroke="{colour}" stroke-width="1.5"{dashed}/>'

    def refusals(self, simulation: RecordedSimulation, value: Callable[[float], float]) -> Iterator[str]:
        for one in simulation.arrivals:
            if not one.is_admitted and one.at <= self.seconds:
                yield cross(self.x(one.at), self.y(value(one.at)))


def text(x: float, y: float, words: str, colour: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def cross(x: float, y: float) -> str:
    return f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{RED}" stroke-width="1.8" fill="none"/>'


def write(name: str, label: str, height: float, parts: list[str]) -> None:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" font-family="system-ui, sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(label)}">\n<rect width="{WIDTH}" height="{height:g}" fill="#ffffff"/>'
    )
    (HERE / name).write_text("\n".join([head, *parts, "</svg>"]) + "\n", "utf-8")


def legend(y: float, line: str, others: tuple[tuple[str, str], ...] = ()) -> list[str]:
    parts = [
        cross(LEFT + 6, y - 4),
        text(LEFT + 18, y, "refused", RED, "start"),
        text(150, y, line, GREEN, "start"),
    ]
    x = 400.0
    for words, colour in others:
        parts.append(text(x, y, words, colour, "start"))
        x += 180
    return parts


def draw_usage(
    name: str, label: str, shape: Shape, seconds: float, limits: list[tuple[float, float]]
) -> None:
    """Calls that count at the provider over time, the limit in force, and what was learned when."""
    simulation = RecordedSimulation.of(shape, round(seconds * 4))
    plot = Plot(seconds, 1.25 * max(limit for _, limit in limits))
    usage = simulation.usage(shape.quotas[0][0].seconds)

    def level(at: float) -> float:
        return next(value for when, value in reversed(usage) if when <= at)

    parts = list(plot.axes(seconds / 8, 5, "calls in the last 10 s"))
    parts.append(plot.line(limits, BLUE, steps=True, dash="5 4"))
    parts.append(plot.line(usage, GREEN, steps=True))
    parts += plot.refusals(simulation, level)
    y = plot.top + plot.height + 42
    parts += legend(y, "calls that count at the provider", (("the provider's limit", BLUE),))
    known = ""
    for (at, learned), (then, _) in pairwise([*simulation.learned[1:], (seconds, None)]):
        words = "probing" if learned is None else describe_learned(learned)
        if at <= seconds and words != known and then > at + SETTLED:
            y += 20
            parts.append(text(LEFT, y, f"{at:.1f} s: {words}", INK, "start"))
            known = words
    write(name, label, y + 16, parts)


def draw_pace() -> None:
    """The pace over time where no limit explains the refusals: a token bucket without hints whose rate halves."""
    bucket = Limit(Kind.BUCKET, 20, 1.0, burst=1.0)
    changes = (Change(5.0, 0.5),)
    shape = replace(ONE_KEY, quotas=((bucket,),), changes=changes, hint=Hint.NONE, latency=(0.05, 0.05))
    simulation = RecordedSimulation.of(shape, 500)
    plot = Plot(simulation.arrivals[-1].at // 5 * 5, 30.0)
    paces = [
        (at, learned.limits[0].rate.per_second)
        for at, learned in simulation.learned
        if learned and learned.limits
    ]

    def pace(at: float) -> float:
        return next((value for when, value in reversed(paces) if when <= at), 0.0)

    parts = list(plot.axes(5, 5, "calls per second"))
    parts.append(plot.line([(0.0, 20.0), (5.0, 10.0)], BLUE, steps=True, dash="5 4"))
    parts.append(plot.line(paces, GREEN, steps=True))
    parts += plot.refusals(simulation, pace)
    y = plot.top + plot.height + 42
    parts += legend(y, "the pace", (("the rate at which the bucket refills", BLUE),))
    write(
        "limit-pace.svg", "An even pace rises until a call is refused, then stays just below", y + 16, parts
    )


def observed() -> Evidence:
    """Two refusals of a sliding window, 10 in 10 s, by a sender that sends as soon as it may."""
    limiter, now = Limiter(TEN, (), START), START
    history: list[Reservation] = []
    refusals: list[ObservedRefusal] = []
    while len(refusals) < 2:
        call = Reservation(now)
        if wait := limiter.wait(now, 100):
            refusals.append(ObservedRefusal.of(call, now + TOOK, 0, wait - TOOK))
            now += wait + TOOK
        else:
            limiter.admit(now, 100)
            history.append(call)
            now += 0.3 if len(history) % 3 else 0.5
    return Evidence.of(history, refusals, counts_refused=False, certain_since=START)


def rivals(evidence: Evidence) -> list[tuple[str, LearnedLimit, list[float], float]]:
    """The cheapest hypothesis of each kind, what it predicts for the refusals (newest first), and its cost."""
    found = []
    for limit, fitted in limit_candidates(evidence, Dimension.REQUESTS, ()):
        hypothesis = predict(evidence, limit, fitted)
        rate(evidence, hypothesis, ())
        found.append((limit, hypothesis.opens, hypothesis.cost))
    found.sort(key=lambda one: one[2])
    right = found[0][0]
    tests: tuple[tuple[str, Callable[[LearnedLimit], bool]], ...] = (
        ("Sliding window", lambda one: one is right),
        ("Another length", lambda one: one.counting is Counting.SLIDING and one.seconds != right.seconds),
        ("Fixed window", lambda one: one.counting is Counting.FIXED),
        ("Token bucket", lambda one: one.counting is Counting.TOKEN_BUCKET),
    )
    best = ((title, next((one for one in found if is_one(one[0])), None)) for title, is_one in tests)
    return [(title, *one) for title, one in best if one is not None]


def draw_hypotheses() -> None:
    evidence = observed()
    newest, first = evidence.refusals[0], evidence.refusals[-1]
    seconds = newest.opens_at - START + 1.0

    def x(at: float) -> float:
        return 250 + (WIDTH - 250 - 80) * (at - START) / seconds

    parts = [text(WIDTH - 10, 30, "cost", INK, "end")]
    for refusal in (first, newest):
        parts.append(
            f'<line x1="{x(refusal.opens_at):.1f}" y1="36" x2="{x(refusal.opens_at):.1f}" y2="320" stroke="{BLUE}" stroke-dasharray="4 4"/>'
        )
        parts.append(text(x(refusal.opens_at), 30, "hint: open again", BLUE))
    for row, (title, limit, opens, cost) in enumerate(rivals(evidence)):
        y = 75 + 70 * row
        parts.append(text(10, y - 4, title, INK, "start"))
        parts.append(text(10, y + 13, describe_learned(LearnedLimits((limit,))), GREY, "start"))
        parts.append(f'<line x1="240" y1="{y}" x2="{WIDTH - 70}" y2="{y}" stroke="{RULE}"/>')
        parts += [f'<circle cx="{x(at):.1f}" cy="{y}" r="3" fill="{GREEN}"/>' for at in evidence.at]
        for refusal, predicted in zip(evidence.refusals, opens, strict=True):
            parts.append(cross(x(refusal.call.at), y))
            if START < predicted < START + seconds:
                parts.append(f'<path d="M{x(predicted):.1f} {y + 6}l-5 10h10z" fill="{INK}"/>')
        parts.append(text(WIDTH - 10, y + 4, f"{cost:.1f}", INK, "end"))
    y = 345
    parts += [
        f'<circle cx="24" cy="{y - 4}" r="3" fill="{GREEN}"/>',
        text(34, y, "admitted", GREEN, "start"),
        cross(130, y - 4),
        text(142, y, "refused", RED, "start"),
        f'<path d="M240 {y - 10}l-5 10h10z" fill="{INK}"/>',
        text(252, y, "opens, by this hypothesis: the cheapest one is adopted", INK, "start"),
    ]
    write("limit-hypotheses.svg", "Two refusals, explained by four limits", y + 16, parts)


def main() -> int:
    draw_hypotheses()
    draw_usage("limit-sliding.svg", "A sliding window is found with one refusal", ONE_KEY, 40, [(0.0, 10.0)])
    draw_usage(
        "limit-probes.svg",
        "Without a hint, probes find the length of the window",
        replace(ONE_KEY, hint=Hint.NONE),
        40,
        [(0.0, 10.0)],
    )
    changing = replace(ONE_KEY, changes=(Change(60.0, 2.0), Change(160.0, 1.0)))
    draw_usage(
        "limit-change.svg",
        "A limit that doubles is noticed by a trial, one that halves by a refusal",
        changing,
        240,
        [(0.0, 10.0), (60.0, 20.0), (160.0, 10.0)],
    )
    draw_pace()
    return 0


if __name__ == "__main__":
    sys.exit(main())
