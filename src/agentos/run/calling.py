"""Who started a run, and hears of it before it has begun; little is loaded here, since nothing else is yet."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentos.outputs.writer import write_at_once
from agentos.run.signals import Signals, StoppedMeanwhile


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Who started a run: where to speak to people, and the words that start it again."""

    descriptor: int
    say: Callable[[str], None]
    command: str


def run_with_signals(caller: RunOrigin, conduct: Callable[[Signals], int]) -> int:
    """The run; a signal that comes before it has begun is answered at once, and ends it."""
    answer = partial(write_at_once, caller.descriptor, "[COORDINATOR] Shutting down...")
    with Signals(answer).caught() as signals:
        try:
            return conduct(signals)
        except StoppedMeanwhile:
            from agentos.core.scheduling.shutdown import EXIT_CODES

            caller.say(f"[COORDINATOR] Nothing was begun. Start it with: {caller.command}")
            return EXIT_CODES[signals.arrived[0]]
