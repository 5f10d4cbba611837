"""State machine of several runs on one host that share keys through the peer log."""

from dataclasses import dataclass, field, replace

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentos.core.constants import DAY
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

HOUR = 3600.0  # seconds
MAX_RUNS = 3
FAILURE_THRESHOLD = 5
MIDNIGHT = 400.0
REJECTED = Refusal(RefusalKind.KEY_REJECTED, "401 unauthorised")
PROVIDER_ERROR = Refusal(RefusalKind.PROVIDER_ERROR, "503")
steps = st.floats(0.1, 20.0) | st.sampled_from((2.0, 60.0, 0.6 * HOUR, 2 * HOUR, 0.7 * DAY))


@dataclass(slots=True)
class RunModel:
    """One run: its own pool, and how far it has read the notes."""

    name: str
    lease_manager: LeaseManager
    read_to: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    requested: int = 0


@dataclass(slots=True)
class BreakerModel:
    """The circuit breaker as an observer of all calls sees it."""

    failures: int = 0
    opened_at: float | None = None
    open_until: float = 0.0


class HostMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.notes: list[Note] = []
        self.runs: dict[str, RunModel] = {}
        self.started = 0
        self.keys: list[Credential] = []
        self.dead: set[str] = set()
        self.down = False
        self.breaker = BreakerModel()
        self.rejected: dict[str, float] = {}
        self.sent: dict[str, list[float]] = {}

    @initialize(
        concurrency=st.integers(1, 2),
        daily_limit=st.integers(3, 9),
        midnight=st.sampled_from((None, MIDNIGHT)),
    )
    def begin(self, concurrency: int, daily_limit: int, midnight: float | None) -> None:
        """The last keys are valid: without them, inherited quarantines would be lifted."""
        rates = ((Dimension.REQUESTS, Rate(1e9, 60.0)), (Dimension.DAY, Rate(daily_limit, DAY)))
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

    # Rules.

    @precondition(lambda self: len(self.runs) < MAX_RUNS)
    @rule()
    def start(self) -> None:
        if not self.runs:
            self._compact_notes()
        self.started += 1
        run = RunModel(f"run-{self.started}", LeaseManager(Pool(self.keys), steady, Budget(PriceList())))
        self.runs[run.name] = run
        self._decide(run)

    @precondition(lambda self: self.runs)
    @rule(moves=st.lists(st.tuples(st.integers(0, MAX_RUNS), st.integers(0, 9)), min_size=8, max_size=40))
    def work(self, moves: list[tuple[int, int]]) -> None:
        """The common case: requests and releases in any of the runs."""
        for index, move in moves:
            run = list(self.runs.values())[index % len(self.runs)]
            if move < 5:
                self._request(run)
            elif move < 9 and run.leases:
                self._release(run, run.leases.pop(min(run.leases)))
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
        """All runs end, and a new one starts."""
        self.runs.clear()
        self.start()

    @rule(down=st.booleans())
    def provider_goes_down_or_recovers(self, down: bool) -> None:
        self.down = down

    @rule()
    def credentials_change(self) -> None:
        for run in self.runs.values():
            self._read_notes(run)
            run.lease_manager.replace_credentials(self.keys)
        self.rejected.clear()
        for run in self.runs.values():
            self._decide(run)

    @rule(seconds=steps)
    def advance(self, seconds: float) -> None:
        self.now += seconds
        for run in self.runs.values():
            self._decide(run)

    # Invariants.

    @invariant()
    def no_key_exceeds_its_concurrency(self) -> None:
        for key in self.keys:
            in_flight = sum(
                lease.credential == key for run in self.runs.values() for lease in run.leases.values()
            )
            assert in_flight <= key.concurrency

    @invariant()
    def an_open_breaker_has_at_most_one_probe(self) -> None:
        if self.breaker.opened_at is not None:
            calls = [lease.granted_at for run in self.runs.values() for lease in run.leases.values()]
            assert sum(at > self.breaker.opened_at for at in calls) <= 1

    # The model.

    def _request(self, run: RunModel) -> None:
        run.requested += 1
        request = events.LeaseRequested(f"LLD-{run.requested}", "call", ("gemini",), ("pro",))
        run.lease_manager.request(request, self.now)
        self._decide(run)

    def _read_notes(self, run: RunModel) -> None:
        for note in self.notes[run.read_to :]:
            if note.run != run.name:
                run.lease_manager.pool.apply_note(note)
        run.read_to = len(self.notes)
        for name in run.lease_manager.pool.peer_runs() - self.runs.keys():
            run.lease_manager.pool.apply_note(RunGone(name))

    def _decide(self, run: RunModel) -> None:
        """Read, decide and write, as under the shared lock."""
        self._read_notes(run)
        granted = run.lease_manager.grants(self.now)
        for lease in granted:
            self._check(lease)
            run.leases[lease.id] = lease
            self.sent.setdefault(lease.credential.fingerprint, []).append(self.now)
        self._append_notes(run)

    def _append_notes(self, run: RunModel) -> None:
        self.notes += [replace(note, run=run.name) for note in run.lease_manager.drain_notes()]

    def _check(self, lease: Lease) -> None:
        key = lease.credential
        assert key.fingerprint not in self.rejected, "a rejected key was used"
        if self.breaker.opened_at is not None:
            assert self.now >= self.breaker.open_until, "sent while the breaker was open"
        (amount,) = (rate.amount for dimension, rate in key.rates if dimension is Dimension.DAY)
        opened_at = self.now - DAY if key.midnight is None else self.now - (self.now - key.midnight) % DAY
        today = [at for at in self.sent.get(key.fingerprint, ()) if at > opened_at]
        assert len(today) < amount, "over the daily limit"

    def _release(self, run: RunModel, lease: Lease) -> None:
        key = lease.credential.fingerprint
        refusal = PROVIDER_ERROR if self.down else REJECTED if key in self.dead else None
        usage = Usage(1, 5, 5) if refusal is None else Usage()
        self._read_notes(run)
        released = events.LeaseReleased(lease.request.holder, lease.id, 1.0, usage, refusal)
        run.lease_manager.release(released, self.now)
        if refusal is PROVIDER_ERROR:
            self._record_failure(lease)
        elif refusal is REJECTED:
            self.rejected[key] = self.now
            self.sent[key].remove(lease.granted_at)
        else:
            self.breaker = BreakerModel()
        self._decide(run)

    def _record_failure(self, lease: Lease) -> None:
        breaker = self.breaker
        if breaker.opened_at is not None and lease.granted_at <= breaker.opened_at:
            return
        breaker.failures += 1
        if breaker.failures >= FAILURE_THRESHOLD:
            breaker.opened_at = self.now if breaker.opened_at is None else breaker.opened_at
            breaker.open_until = self.now + min(60.0, 2.0 * 2.0 ** (breaker.failures - FAILURE_THRESHOLD))

    def _compact_notes(self) -> None:
        """Compact the notes, as a run does that starts alone."""
        compactor = NoteCompactor(self.now, 0.0)
        for note in self.notes:
            compactor.add(note)
        self.notes = compactor.notes()
        self.rejected = {key: at for key, at in self.rejected.items() if at > self.now - HOUR}
        if self.breaker.open_until <= self.now:
            self.breaker = BreakerModel()


# No shrinking: it takes minutes, and twenty steps can be read.
HostMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestHostMachine = HostMachine.TestCase
