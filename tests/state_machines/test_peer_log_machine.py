"""Random lives of several runs on one host: what one of them meets, the others and the next ones are spared."""

from dataclasses import dataclass, field, replace

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import Note, RunGone
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.storage.peer_log_compaction import NoteCompactor
from tests.core.builders import steady

HOUR, DAY = 3600.0, 86400.0
MOST_RUNS = 3
STORM = 5
MIDNIGHT = 400.0
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
TROUBLE = Refusal(RefusalKind.PROVIDER_ERROR, "503")
steps = st.floats(0.1, 20.0) | st.sampled_from((2.0, 60.0, 0.6 * HOUR, 2 * HOUR, 0.7 * DAY))


@dataclass(slots=True)
class Running:
    """One terminal: a pool of its own, and how far it has read."""

    name: str
    leasing: LeaseManager
    read_to: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    asked: int = 0


@dataclass(slots=True)
class Storm:
    """As one who sees all calls would tell it."""

    failures: int = 0
    began: float | None = None
    open_until: float = 0.0


class HostMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.notes: list[Note] = []
        self.runs: dict[str, Running] = {}
        self.started = 0
        self.keys: list[Credential] = []
        self.dead: set[str] = set()
        self.down = False
        self.storm = Storm()
        self.rejected: dict[str, float] = {}
        self.sent: dict[str, list[float]] = {}

    @initialize(
        concurrency=st.integers(1, 2), a_day=st.integers(3, 9), midnight=st.sampled_from((None, MIDNIGHT))
    )
    def begin(self, concurrency: int, a_day: int, midnight: float | None) -> None:
        """The last key is a good one: without it, those rejected before would be tried again."""
        rates = ((Dimension.REQUESTS, Rate(1e9, 60.0)), (Dimension.DAY, Rate(a_day, DAY)))
        self.keys = [
            Credential(
                f"key-{number}",
                "gemini",
                Secret(f"secret-{number}"),
                concurrency=concurrency,
                rates=rates,
                midnight=midnight,
            )
            for number in range(1, 5)
        ]
        self.dead = {self.keys[0].fingerprint, self.keys[1].fingerprint}
        self.start()
        self.start()

    # What happens on a host.

    @precondition(lambda self: len(self.runs) < MOST_RUNS)
    @rule()
    def start(self) -> None:
        if not self.runs:
            self._shorten()
        self.started += 1
        run = Running(f"run-{self.started}", LeaseManager(Pool(self.keys), steady, Budget(PriceList())))
        self.runs[run.name] = run
        self._turn(run)

    @precondition(lambda self: self.runs)
    @rule(moves=st.lists(st.tuples(st.integers(0, MOST_RUNS), st.integers(0, 9)), min_size=8, max_size=40))
    def work(self, moves: list[tuple[int, int]]) -> None:
        """What mostly happens: wishes and ends of calls, in whichever terminal."""
        for place, move in moves:
            run = list(self.runs.values())[place % len(self.runs)]
            if move < 5:
                self._ask(run)
            elif move < 9 and run.leases:
                self._end(run, run.leases.pop(min(run.leases)))
            else:
                self.advance(2.1)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), all_of_them=st.booleans())
    def kill(self, data: st.DataObject, all_of_them: bool) -> None:
        dying = sorted(self.runs) if all_of_them else [data.draw(st.sampled_from(sorted(self.runs)))]
        for name in dying:
            del self.runs[name]

    @rule()
    def start_over(self) -> None:
        """Everybody is gone, and somebody comes."""
        self.runs.clear()
        self.start()

    @rule(down=st.booleans())
    def weather_changes(self, down: bool) -> None:
        self.down = down

    @rule()
    def the_file_is_changed(self) -> None:
        for run in self.runs.values():
            self._hear(run)
            run.leasing.replace_credentials(self.keys)
        self.rejected.clear()
        for run in self.runs.values():
            self._turn(run)

    @rule(seconds=steps)
    def advance(self, seconds: float) -> None:
        self.now += seconds
        for run in self.runs.values():
            self._turn(run)

    # What is true at all times.

    @invariant()
    def no_key_carries_more_than_it_may(self) -> None:
        for key in self.keys:
            carried = sum(
                lease.credential == key for run in self.runs.values() for lease in run.leases.values()
            )
            assert carried <= key.concurrency

    @invariant()
    def one_call_at_a_time_looks_at_a_storm(self) -> None:
        if self.storm.began is not None:
            calls = [lease.granted_at for run in self.runs.values() for lease in run.leases.values()]
            assert sum(at > self.storm.began for at in calls) <= 1

    # How the model sees it.

    def _ask(self, run: Running) -> None:
        run.asked += 1
        wish = events.LeaseRequested(f"LLD-{run.asked}", "call", ("gemini",), ("pro",))
        run.leasing.request(wish, self.now)
        self._turn(run)

    def _hear(self, run: Running) -> None:
        for note in self.notes[run.read_to :]:
            if note.run != run.name:
                run.leasing.pool.apply_note(note)
        run.read_to = len(self.notes)
        for name in run.leasing.pool.peer_runs() - self.runs.keys():
            run.leasing.pool.apply_note(RunGone(name))

    def _turn(self, run: Running) -> None:
        """Reads, decides and writes, while nobody else does."""
        self._hear(run)
        granted = run.leasing.grants(self.now)
        for lease in granted:
            self._check(lease)
            run.leases[lease.id] = lease
            self.sent.setdefault(lease.credential.fingerprint, []).append(self.now)
        self._tell(run)

    def _tell(self, run: Running) -> None:
        self.notes += [replace(note, run=run.name) for note in run.leasing.drain_notes()]

    def _check(self, lease: Lease) -> None:
        key = lease.credential
        assert key.fingerprint not in self.rejected, "a key that was rejected is left alone"
        if self.storm.began is not None:
            assert self.now >= self.storm.open_until, "nothing is sent into a storm"
        (amount,) = (rate.amount for dimension, rate in key.rates if dimension is Dimension.DAY)
        began = self.now - DAY if key.midnight is None else self.now - (self.now - key.midnight) % DAY
        today = [at for at in self.sent.get(key.fingerprint, ()) if at > began]
        assert len(today) < amount, "more than the day allows"

    def _end(self, run: Running, lease: Lease) -> None:
        key = lease.credential.fingerprint
        refusal = TROUBLE if self.down else REJECTED if key in self.dead else None
        usage = Usage(1, 5, 5) if refusal is None else Usage()
        self._hear(run)
        back = events.LeaseReleased(lease.request.holder, lease.id, 1.0, usage, refusal)
        run.leasing.release(back, self.now)
        if refusal is TROUBLE:
            self._failed(lease)
        elif refusal is REJECTED:
            self.rejected[key] = self.now
            self.sent[key].remove(lease.granted_at)
        else:
            self.storm = Storm()
        self._turn(run)

    def _failed(self, lease: Lease) -> None:
        storm = self.storm
        if storm.began is not None and lease.granted_at <= storm.began:
            return
        storm.failures += 1
        if storm.failures >= STORM:
            storm.began = self.now if storm.began is None else storm.began
            storm.open_until = self.now + min(60.0, 2.0 * 2.0 ** (storm.failures - STORM))

    def _shorten(self) -> None:
        """What a run does that starts alone: some of it is forgotten."""
        digest = NoteCompactor(self.now, 0.0)
        for note in self.notes:
            digest.add(note)
        self.notes = digest.notes()
        self.rejected = {key: at for key, at in self.rejected.items() if at > self.now - HOUR}
        if self.storm.open_until <= self.now:
            self.storm = Storm()


# No shrinking: it takes minutes, and a life of twenty steps can be read.
HostMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestHostMachine = HostMachine.TestCase
