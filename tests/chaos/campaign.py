"""One campaign: runs work on a backlog while processes are killed and frozen; then the invariants are checked."""

import contextlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.backlog import Backlog, make_backlog, verdict_documents
from tests.chaos.injector import Injector
from tests.chaos.invariants import Evidence, Finding, check_invariants, extra_calls, resumed
from tests.chaos.processes import lock_holders, orphans_of
from tests.chaos.reader import Reader
from tests.chaos.terminals import Terminal
from tests.scenarios.harness import ModelServer, RunHarness

TICK = 0.02
ORPHANS_AFTER = 2.0
SHARE_OF_TROUBLE = 0.6
HEAD_START = 3
RESERVE = 2
"""Issues kept unfinished: the backlog grows until every fault has been injected."""
LEAD = 1.1
"""How far kills run ahead of finished work, so that all of them happen while work is left."""
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
class CampaignOptions:
    """The size and the time limits of a campaign."""

    seed: int
    items: int
    kills: int
    trouble: float
    """Seconds of fault injection from the first hit, extended only until a worker has died."""
    seconds: float
    """Time limit for the whole campaign."""


@dataclass(frozen=True, slots=True)
class Report:
    options: CampaignOptions
    seconds: float
    evidence: Evidence
    findings: list[Finding]
    exit_codes: dict[str, dict[int, int]]

    @property
    def is_whole(self) -> bool:
        """Whether every requested fault was injected."""
        return self.evidence.injector.total >= self.options.kills

    @property
    def violations(self) -> list[str]:
        return [f"{finding.promise}: {one}" for finding in self.findings for one in finding.against]


def run_campaign(root: Path, options: CampaignOptions) -> Report:
    """Run a whole campaign in a new folder."""
    began = time.monotonic()
    with RunHarness.open(root) as harness:
        rng = random.Random(options.seed)
        backlog = make_backlog(harness, rng, options.items)
        faults = [word for fault in FAULTS for word in ("--fault", json.dumps(fault))]
        server = harness.server(*LIMITS, "--seed", str(options.seed), *faults)
        injector, reader = Injector(rng, harness.project), Reader(harness.project)
        with _Campaign(harness, backlog, options, injector, reader, began).live() as campaign:
            campaign.trouble()
            campaign.finish()
            return campaign.report(server)


@dataclass(slots=True)
class _Campaign:
    """State of a campaign; only the document reader runs in another thread."""

    harness: RunHarness
    backlog: Backlog
    options: CampaignOptions
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

    def trouble(self) -> None:
        """Inject faults until all are injected or the time is up."""
        inject_at = time.monotonic()
        while self.injector.total < self.options.kills and not self._is_late():
            self._keep_up()
            if self._done() > len(self.backlog.issues) - RESERVE:
                self.backlog.add(self.harness)
            if time.monotonic() >= inject_at and self._is_behind() and self._has_begun():
                self.injector.inject([terminal.pid for terminal in self.terminals if terminal.pid])
                self._first_hit = self._first_hit or time.monotonic()
                inject_at = time.monotonic() + self.injector.rng.uniform(0.0, 0.4)
            time.sleep(TICK)

    def _is_late(self) -> bool:
        now = time.monotonic()
        if self.injector.deaths and now >= self._first_hit + self.options.trouble:
            return True
        return now >= self.began + self.options.seconds * SHARE_OF_TROUBLE

    def _keep_up(self) -> None:
        for terminal in self.terminals:
            self._notice(terminal)
            terminal.start_if_due()
        self.injector.thaw(time.monotonic())
        self._look_for_orphans(time.monotonic())

    def _notice(self, terminal: Terminal) -> None:
        if pid := terminal.poll_exited():
            self._dead.append((pid, time.monotonic()))

    def _look_for_orphans(self, now: float) -> None:
        due = [(pid, died) for pid, died in self._dead if now >= died + ORPHANS_AFTER]
        for pid, died in due:
            self._dead.remove((pid, died))
            self.orphans.extend(f"{orphan} of coordinator {pid}" for orphan in orphans_of(pid))

    def _is_behind(self) -> bool:
        """Whether injection lags behind the work; keeps the two in step."""
        share = self._done() / len(self.backlog.issues)
        return self.injector.total < self.options.kills * LEAD * share + HEAD_START

    def _has_begun(self) -> bool:
        """Whether a worker has started: before that, a kill would only interrupt imports."""
        return self.injector.total > 0 or bool(lock_holders(self.harness.project))

    def _done(self) -> int:
        """Issues of the backlog with a verdict, without those filed during the campaign."""
        names = {path.name for path in verdict_documents(self.harness.project)}
        return sum(f"LLD-{number:03}.md" in names for number in self.backlog.issues)

    def finish(self) -> None:
        """Let the current runs end, then run each workflow undisturbed until it has nothing left to do."""
        self.injector.thaw(float("inf"))
        for terminal in self.terminals:
            self._end(terminal)
        for words in (ISSUE, LLD):
            if 0 not in (self._run_once(f"{words[0]}-{number}", words) for number in range(ROUNDS)):
                self.unfinished.append(f"{words[0]}, undisturbed, never exited with 0")
        time.sleep(ORPHANS_AFTER)
        self._look_for_orphans(float("inf"))

    def _run_once(self, name: str, words: tuple[str, ...]) -> int | None:
        terminal = Terminal(self.harness, name, words)
        self.terminals.append(terminal)
        terminal.start()
        return self._end(terminal)

    def _end(self, terminal: Terminal) -> int | None:
        code = terminal.wait(self.began + self.options.seconds - time.monotonic())
        if code is None and terminal.pid:
            self.unfinished.append(f"{terminal.name} was still running at the time limit")
            terminal.close()
        self._notice(terminal)
        return code

    def report(self, server: ModelServer) -> Report:
        self.reader.stop()
        call_log = server.ledger()
        (self.harness.root / "ledger.json").write_text(json.dumps(call_log))
        evidence = Evidence(
            self.harness,
            self.backlog,
            self.injector,
            self.reader,
            call_log,
            tuple(self.orphans),
            "".join(terminal.output() for terminal in self.terminals),
        )
        exit_codes = {terminal.name: dict(terminal.exit_codes) for terminal in self.terminals}
        findings = [*check_invariants(evidence), Finding("runs left unfinished", tuple(self.unfinished))]
        return Report(self.options, time.monotonic() - self.began, evidence, findings, exit_codes)


def figures(report: Report) -> Iterator[str]:
    """The lines of the printed report."""
    evidence, options = report.evidence, report.options
    hits = sorted(evidence.injector.hits.items())
    whole, killed = resumed(evidence)
    yield f"seed {options.seed}: {len(evidence.backlog.issues)} issues and {len(evidence.backlog.briefs)} briefs"
    yield f"injected {evidence.injector.total} of {options.kills}, {evidence.injector.misses} misses:"
    yield from (f"  {action} {role}: {count}" for (action, role), count in hits)
    yield f"  workers killed while holding an item: {evidence.injector.deaths.total()}"
    yield f"calls {evidence.ledger['seen']}, of which refused or corrupted on purpose {_faults(evidence)}"
    yield f"  answered {len(evidence.answered())}, repeated after a death {extra_calls(evidence).total()}"
    yield f"documents read {evidence.reader.reads} times"
    yield f"exit codes: {report.exit_codes}"
    yield f"resumed {whole} of {killed} items that were killed"
    for finding in report.findings:
        yield f"{finding.promise}: {len(finding.against)}"
        yield from (f"  - {one}" for one in finding.against[:20])
    yield f"{'FAILED' if report.violations else 'passed'} after {report.seconds:.0f} s"


def _faults(evidence: Evidence) -> int:
    return sum(call["fault"] is not None or call["status"] == 429 for call in evidence.ledger["calls"])
