"""One campaign: a backlog, terminals that work on it, an injector, a reader, and at the end the server."""

import contextlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.backlog import Backlog, make_backlog, verdict_documents
from tests.chaos.injector import Injector
from tests.chaos.invariants import Evidence, Finding, extra_calls, judge, resumed
from tests.chaos.processes import lock_holders, orphans_of
from tests.chaos.reader import Reader
from tests.chaos.terminals import Terminal
from tests.scenarios.harness import ModelServer, RunHarness

TICK = 0.02
ORPHANS_AFTER = 2.0
SHARE_OF_TROUBLE = 0.6
HEAD_START = 3
RESERVE = 2
"""So many issues are always left to be disturbed: the backlog grows until everything is injected."""
LEAD = 1.1
"""By so much the kills are ahead of the work: all of them have to fall while there is some left."""
ROUNDS = 3
LLD = ("lld-workflow", "--all", "--parallel", "3")
ISSUE = ("issue-workflow", "--all", "--parallel", "2")
LIMITS = ("--latency", "0.05,0.5", "--rpm", "10", "--seconds", "2")
FAULTS = (
    {"kind": "slow", "every": 17, "times": None, "seconds": 1},
    {"kind": "503", "every": 29, "times": None},
    {"kind": "reset", "every": 37, "times": None},
    {"kind": "429-minute", "every": 43, "times": None, "retry_delay": 1},
    {"kind": "cut", "every": 53, "times": None},
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line."""

    seed: int
    items: int
    kills: int
    trouble: float
    """Seconds from the first hit on, longer only if no worker has died by then."""
    seconds: float
    """For everything."""


@dataclass(frozen=True, slots=True)
class Report:
    wish: Wish
    seconds: float
    evidence: Evidence
    findings: list[Finding]
    endings: dict[str, dict[int, int]]

    @property
    def is_whole(self) -> bool:
        """Whether as much was injected as was asked for."""
        return self.evidence.injector.total >= self.wish.kills

    @property
    def violations(self) -> list[str]:
        return [f"{finding.promise}: {one}" for finding in self.findings for one in finding.against]


def conduct(root: Path, wish: Wish) -> Report:
    """The whole campaign, in a folder that does not exist yet."""
    began = time.monotonic()
    with RunHarness.open(root) as harness:
        dice = random.Random(wish.seed)
        backlog = make_backlog(harness, dice, wish.items)
        faults = [word for fault in FAULTS for word in ("--fault", json.dumps(fault))]
        server = harness.server(*LIMITS, "--seed", str(wish.seed), *faults)
        injector, reader = Injector(dice, harness.project), Reader(harness.project)
        with _Campaign(harness, backlog, wish, injector, reader, began).live() as campaign:
            campaign.trouble()
            campaign.finish()
            return campaign.report(server)


@dataclass(slots=True)
class _Campaign:
    """Everything but the reading of documents happens on the thread that made it."""

    harness: RunHarness
    backlog: Backlog
    wish: Wish
    injector: Injector
    reader: Reader
    began: float
    terminals: list[Terminal] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    _first_hit: float = 0.0
    _dead: list[tuple[int, float]] = field(default_factory=list)

    @contextlib.contextmanager
    def live(self) -> Iterator["_Campaign"]:
        self.terminals = [
            Terminal(self.harness, "first", LLD),
            Terminal(self.harness, "second", LLD),
            Terminal(self.harness, "briefs", ISSUE),
        ]
        with contextlib.ExitStack() as stack:
            self.reader.start()
            stack.callback(self.reader.stop)
            for terminal in self.terminals:
                stack.callback(terminal.close)
            yield self

    # While it rages.

    def trouble(self) -> None:
        """Until everything is injected, or the time for it is up."""
        strike_at = time.monotonic()
        while self.injector.total < self.wish.kills and not self._is_late():
            self._keep_up()
            if self._done() > len(self.backlog.issues) - RESERVE:
                self.backlog.add(self.harness)
            if time.monotonic() >= strike_at and self._is_behind() and self._has_begun():
                self.injector.strike([terminal.pid for terminal in self.terminals if terminal.pid])
                self._first_hit = self._first_hit or time.monotonic()
                strike_at = time.monotonic() + self.injector.dice.uniform(0.0, 0.4)
            time.sleep(TICK)

    def _is_late(self) -> bool:
        now = time.monotonic()
        if self.injector.deaths and now >= self._first_hit + self.wish.trouble:
            return True
        return now >= self.began + self.wish.seconds * SHARE_OF_TROUBLE

    def _keep_up(self) -> None:
        for terminal in self.terminals:
            self._notice(terminal)
            terminal.start_if_due()
        self.injector.thaw(time.monotonic())
        self._look_for_orphans(time.monotonic())

    def _notice(self, terminal: Terminal) -> None:
        if pid := terminal.ended():
            self._dead.append((pid, time.monotonic()))

    def _look_for_orphans(self, now: float) -> None:
        due = [(pid, died) for pid, died in self._dead if now >= died + ORPHANS_AFTER]
        for pid, died in due:
            self._dead.remove((pid, died))
            self.orphans.extend(f"{orphan} of coordinator {pid}" for orphan in orphans_of(pid))

    def _is_behind(self) -> bool:
        """Kills and work keep pace: without it, one of the two would be over long before the other."""
        share = self._done() / len(self.backlog.issues)
        return self.injector.total < self.wish.kills * LEAD * share + HEAD_START

    def _has_begun(self) -> bool:
        """Before the first worker is there, a kill would hit nothing but imports."""
        return self.injector.total > 0 or bool(lock_holders(self.harness.project))

    def _done(self) -> int:
        """How many issues of the backlog have a verdict; those that were filed on the way do not count."""
        names = {path.name for path in verdict_documents(self.harness.project)}
        return sum(f"LLD-{number:03}.md" in names for number in self.backlog.issues)

    # Then it is left alone.

    def finish(self) -> None:
        """Whatever runs may end; then each workflow runs until nothing is left for it."""
        self.injector.thaw(float("inf"))
        for terminal in self.terminals:
            self._end(terminal)
        for words in (ISSUE, LLD):
            if 0 not in (self._run_once(f"{words[0]}-{number}", words) for number in range(ROUNDS)):
                self.unfinished.append(f"{words[0]}, left alone, never ended with 0")
        time.sleep(ORPHANS_AFTER)
        self._look_for_orphans(float("inf"))

    def _run_once(self, name: str, words: tuple[str, ...]) -> int | None:
        terminal = Terminal(self.harness, name, words)
        self.terminals.append(terminal)
        terminal.start()
        return self._end(terminal)

    def _end(self, terminal: Terminal) -> int | None:
        code = terminal.wait(self.began + self.wish.seconds - time.monotonic())
        if code is None and terminal.pid:
            self.unfinished.append(f"{terminal.name} was not over when the time was up")
            terminal.close()
        self._notice(terminal)
        return code

    def report(self, server: ModelServer) -> Report:
        self.reader.stop()
        call_log = server.ledger()
        (self.harness.root / "ledger.json").write_text(json.dumps(call_log))
        metadata = Evidence(
            self.harness,
            self.backlog,
            self.injector,
            self.reader,
            call_log,
            tuple(self.orphans),
            "".join(terminal.said() for terminal in self.terminals),
        )
        endings = {terminal.name: dict(terminal.endings) for terminal in self.terminals}
        findings = [*judge(metadata), Finding("runs left unfinished", tuple(self.unfinished))]
        return Report(self.wish, time.monotonic() - self.began, metadata, findings, endings)


def figures(report: Report) -> Iterator[str]:
    """The report, line by line, as people read it."""
    metadata, wish = report.evidence, report.wish
    hits = sorted(metadata.injector.hits.items())
    whole, killed = resumed(metadata)
    yield f"seed {wish.seed}: {len(metadata.backlog.issues)} issues and {len(metadata.backlog.briefs)} briefs"
    yield f"injected {metadata.injector.total} of {wish.kills}, {metadata.injector.misses} misses:"
    yield from (f"  {action} {role}: {count}" for (action, role), count in hits)
    yield f"  workers that died with an item in their hands: {metadata.injector.deaths.total()}"
    yield f"calls {metadata.ledger['seen']}, of them refused or spoilt on purpose {_faults(metadata)}"
    yield f"  answered {len(metadata.answered())}, repeated after a death {extra_calls(metadata).total()}"
    yield f"documents read {metadata.reader.reads} times"
    yield f"exit codes: {report.endings}"
    yield f"resumed {whole} of {killed} items that were killed"
    for finding in report.findings:
        yield f"{finding.promise}: {len(finding.against)}"
        yield from (f"  - {one}" for one in finding.against[:20])
    yield f"{'FAILED' if report.violations else 'passed'} after {report.seconds:.0f} s"


def _faults(metadata: Evidence) -> int:
    return sum(call["fault"] is not None or call["status"] == 429 for call in metadata.ledger["calls"])
