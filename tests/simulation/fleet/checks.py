"""What must be true when a life of a fleet is over."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending

if TYPE_CHECKING:
    from .life import Life


@dataclass(frozen=True, slots=True)
class Checks:
    """What must be true when a life is over."""

    life: "Life"

    def check(self, code: int) -> None:
        self._every_item_is_done_once(code)
        self._nobody_outranked_has_written()
        self._attempts_were_lost_by_faults_only()
        self._calls_are_repeated_after_losses_only()
        self._no_key_was_over_its_limit()
        self._the_follower_has_seen_everything(code)

    def _every_item_is_done_once(self, code: int) -> None:
        rows, violations = self.life.postgres.rows.values(), self.life.postgres.violations
        for row in rows:
            assert row.verdict is not None, f"{row.item} is not done: {row.state} {row.outcome}"
            assert row.state == "ended" and row.outcome, f"{row.item} is done, but {row.state}"
            ending = row.outcome.ending
            assert ending is Ending.FINISHED, f"{row.item} is done, but its outcome is {row.outcome}"
            count = violations.finished[row.item]
            assert count == 1, f"{row.item} was finished {count} times"
            assert len(row.documents) == self.life.work.nodes, f"{row.item} lacks documents"
        twice = [name for name, count in violations.documents.items() if count != 1]
        assert not twice, f"written twice: {twice}"
        assert code == 0, f"the follower ended with {code}"

    def _nobody_outranked_has_written(self) -> None:
        assert not self.life.postgres.violations.found, self.life.postgres.violations.found

    def _attempts_were_lost_by_faults_only(self) -> None:
        lost = [lost for lost in self.life.temporal.lost if not lost.is_excused]
        assert not lost, f"attempts used up without a fault of a machine: {lost}"
        for thread, run in self.life.temporal.runs.items():
            tries, faults = run.turns.tries, self.life.work.faults[run.start.item]
            assert tries <= faults, f"{thread}: {tries} tries counted, but {faults} faults of its own"

    def _calls_are_repeated_after_losses_only(self) -> None:
        for item in self.life.items:
            answered = {
                name: count
                for name, count in self.life.providers.answered.items()
                if name.startswith(f"{item}/")
            }
            assert len(answered) == self.life.work.nodes, f"{item}: {answered}"
            repeated, losses = sum(answered.values()) - len(answered), self.life.work.losses[item]
            assert repeated <= losses, f"{item}: {repeated} calls repeated after {losses} losses"

    def _no_key_was_over_its_limit(self) -> None:
        providers, lives = self.life.providers, self.life.gateway.lives
        # In each of its lives the gateway may guess once how the provider counts; a wrong guess is refused on every slot.
        most = lives * (1 + len(providers.windows) * providers.concurrency)
        assert providers.over_limit <= most, (
            f"{providers.over_limit} calls over a limit in {lives} lives of the gateway"
        )
        assert not providers.over_concurrency, f"{providers.over_concurrency} calls too many at once"

    def _the_follower_has_seen_everything(self, code: int) -> None:
        seen = self.life.recorder.seen
        ends = [
            event
            for event in seen
            if isinstance(event, events.ItemEnded) and event.outcome.ending is not Ending.PARKED
        ]
        # The next attempt says it again if Temporal has not heard of an end.
        first = Counter(event.item for event in ends if not event.outcome.earlier_attempt)
        assert all(count == 1 for count in first.values()), f"ended in the follower: {first}"
        is_whole = self.life.work.gate < 0  # otherwise it leaves when all items wait for a person
        missing = set(self.life.items) - {event.item for event in ends}
        assert not missing or not is_whole, f"not ended in the follower: {missing}"
        shown = Counter((event.item, event.node) for event in seen if isinstance(event, events.NodeStarted))
        stored = Counter(
            (found.item, found.event.node)
            for found in self.life.postgres.events
            if isinstance(found.event, events.NodeStarted)
        )
        assert shown == stored or not is_whole, f"events missed: {stored - shown}"
