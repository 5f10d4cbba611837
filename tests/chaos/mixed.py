"""A campaign of everything at once: gates, controls, programs, edits of the keys, containers, kills and freezes.

python -m tests.chaos.mixed FOLDER [--seed N] [--items N] [--kills N] [--minutes N]
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.backlog import APART, Backlog, verdict_documents
from tests.chaos.decisions import Act, check_decisions, decide, is_waiting
from tests.chaos.injector import MIXED_WEIGHTS, Injector
from tests.chaos.invariants import Evidence, crowded_keys, overlaps
from tests.chaos.killing import TRACEBACK
from tests.chaos.leftovers import leftovers
from tests.chaos.processes import Role, process_tree, working_in
from tests.chaos.reader import Reader
from tests.chaos.sweep_programs import AGENT, Programs
from tests.chaos.terminals import Terminal
from tests.scenarios.harness import KEYS, RunHarness, RunningCommand, command_line, descendants

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
GATED = ("lld-workflow", "--all", "--parallel", "2", "--review", "draft")
FIRST_PROGRAM = 9001
LIMITS = ("--latency", "0.05,0.4", "--rpm", "60", "--seconds", "2")
CONTROLS = (("pause",), ("pause", "--now"), ("resume",), ("set", "parallel", "1"), ("set", "parallel", "3"))
MOST_AT_ONCE = 2  # reviews and controls of the people in the campaign
TICK = 0.02  # seconds
RESERVE = 3  # issues kept unfinished while faults are injected
ORPHANS_AFTER = 2.0  # seconds
SHARE_OF_TROUBLE = 0.6


@dataclass(frozen=True, slots=True)
class MixedOptions:
    seed: int
    items: int
    programs: int
    kills: int
    seconds: float
    containers: bool = True


@dataclass(slots=True)
class MixedCampaign:
    """State of one campaign; `counts` says how much of each kind really happened."""

    harness: RunHarness
    options: MixedOptions
    injector: Injector
    reader: Reader
    backlog: Backlog
    decided: dict[int, Act]
    terminals: list[Terminal]
    began: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: set[int] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _people: list[tuple[str, int, RunningCommand]] = field(default_factory=list)

    @property
    def rng(self) -> random.Random:
        return self.injector.rng

    def trouble(self) -> None:
        """Everything at once, until all faults are injected or the time for them is up."""
        acts = {"inject": 0.0, "review": 0.0, "control": 0.0, "edit": 0.0, "gateway": 0.0}
        pauses = {"inject": 0.5, "review": 0.6, "control": 1.5, "edit": 1.0, "gateway": 4.0}
        end = self.began + self.options.seconds * SHARE_OF_TROUBLE
        while self.injector.total < self.options.kills and time.monotonic() < end:
            now = time.monotonic()
            self._keep_up()
            self._add_work()
            for act in [name for name, due in acts.items() if due <= now]:
                getattr(self, f"_{act}")()
                acts[act] = now + self.rng.uniform(0.0, 2 * pauses[act])
            if not self.counts["gateways killed"]:
                acts["gateway"] = min(acts["gateway"], now + 0.2)
            time.sleep(TICK)

    def finish(self) -> None:
        """Undisturbed, except for the decisions that are still missing: everything must end."""
        self.injector.thaw(float("inf"))
        _write_keys(self.harness, (True, True))
        end = self.began + self.options.seconds
        while not self._is_done() and time.monotonic() < end:
            self._keep_up()
            self._control(("resume",))
            self._review()
            time.sleep(0.2)
        for terminal in self.terminals:
            if terminal.pid and terminal.wait(end - time.monotonic()) is None:
                self.violations.append(f"{terminal.name} was still running at the time limit")
                terminal.close()
        for _, _, running in self._people:
            running.wait(30)
        self._collect()

    def _is_done(self) -> bool:
        names = {path.stem for path in verdict_documents(self.harness.project)}
        programs = Programs(self.harness)
        return all(f"LLD-{number:03}" in names for number in self.decided) and all(
            programs.is_marked(number) for number in _programs(self.options)
        )

    def _keep_up(self) -> None:
        for terminal in self.terminals:
            if terminal.poll_exited():
                self.counts[f"runs of {terminal.name}"] += 1
            terminal.start_if_due()
        self.injector.thaw(time.monotonic())
        self._collect()

    def _add_work(self) -> None:
        """One more issue when few are left, so that every fault hits work."""
        names = {path.stem for path in verdict_documents(self.harness.project)}
        if sum(f"LLD-{number:03}" not in names for number in self.decided) <= RESERVE:
            self.backlog.add(self.harness)
            self.decided[max(self.backlog.issues)] = self.rng.choice(tuple(Act))

    def _inject(self) -> None:
        """Hits only runs whose workers have started: before that, a kill would only interrupt imports."""
        found = [pid for terminal in self.terminals if (pid := terminal.coordinator)]
        self.injector.inject([pid for pid in found if process_tree(pid).of(Role.WORKER)])

    def _gateway(self) -> None:
        """Kills a gateway, sometimes while it starts."""
        for terminal in self.terminals:
            for process in descendants(terminal.pid) if terminal.pid else ():
                if "agentos gateway" in command_line(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                        self.counts["gateways killed"] += 1
                    return

    def _review(self) -> None:
        busy = {number for what, number, _ in self._people if what == "review"}
        waiting = [n for n in self.decided if n not in busy and is_waiting(self.harness, n)]
        if not waiting or len(busy) >= MOST_AT_ONCE:
            return
        number = self.rng.choice(waiting)
        act = Act.APPROVE if number in self.acknowledged else self.decided[number]
        running = decide(self.harness, number, act)
        self._people.append(("review", number, running))

    def _control(self, words: tuple[str, ...] | None = None) -> None:
        if sum(what == "control" for what, _, _ in self._people) >= MOST_AT_ONCE:
            return
        runs = [run.name for run in self.harness.runs() if any(path.is_socket() for path in run.iterdir())]
        for run in runs if words else self.rng.sample(runs, min(1, len(runs))):
            chosen = words or self.rng.choice(CONTROLS)
            running = self.harness.start(*chosen, "--run", run, program="agentos")
            self._people.append(("control", 0, running))

    def _edit(self) -> None:
        _write_keys(self.harness, (self.rng.random() < 0.6, self.rng.random() < 0.6))
        self.counts["edits of the keys"] += 1

    def _collect(self) -> None:
        """Notes what the reviews and controls that have ended said."""
        for entry in [entry for entry in self._people if entry[2].process.poll() is not None]:
            self._people.remove(entry)
            what, number, running = entry
            done = running.wait(1)
            self.said.append(done.out + done.err)
            if what == "review" and done.code == 0:
                self.counts["decisions"] += number not in self.acknowledged
                self.acknowledged.add(number)
            elif what == "control" and done.code == 0:
                self.counts["controls"] += 1

    def check(self, ledger: dict[str, Any]) -> None:
        time.sleep(ORPHANS_AFTER)
        self.reader.stop()
        output = "".join(terminal.output() for terminal in self.terminals) + "".join(self.said)
        calls = [call for call in ledger["calls"] if not _is_program(call["item"])]
        evidence = Evidence(
            self.harness, self.backlog, self.injector, self.reader, {**ledger, "calls": calls}, (), output
        )
        self.violations += [
            *(f"decision: {found}" for found in check_decisions(self.harness, self.decided)),
            *(f"program: {found}" for found in _check_programs(self.harness, self.options)),
            *(f"two on one item: {found}" for found in overlaps(evidence)),
            *(f"key over its concurrency: {found}" for found in crowded_keys(evidence)),
            *(f"half-written: {found}" for found in self.reader.broken),
            *(f"left behind: {found}" for found in leftovers(self.harness)),
            *(f"orphan: {pid}" for pid in working_in(self.harness.project)),
            *(f"traceback: {line}" for line in output.splitlines() if TRACEBACK in line),
            *self._empty_passes(),
        ]

    def _empty_passes(self) -> Iterator[str]:
        """A campaign that injected less than asked for, or nothing of a kind, proves less than it says."""
        if self.injector.total < self.options.kills:
            yield f"empty pass: {self.injector.total} of {self.options.kills} faults injected"
        for kind in ("decisions", "controls", "edits of the keys", "gateways killed"):
            if not self.counts[kind]:
                yield f"empty pass: no {kind}"


def run_mixed(root: Path, options: MixedOptions) -> MixedCampaign:
    with RunHarness.open(root) as harness:
        rng = random.Random(options.seed)
        decided = {number: rng.choice(tuple(Act)) for number in range(1, options.items + 1)}
        harness.issues(*decided)
        server = harness.server(*LIMITS, "--seed", str(options.seed))
        harness.keys = KEYS[:2]
        harness.home.mkdir(mode=0o700, exist_ok=True)
        _write_keys(harness, (True, True))
        (harness.project / "agent.py").write_text(AGENT)
        campaign = MixedCampaign(
            harness,
            options,
            Injector(rng, harness.project, MIXED_WEIGHTS),
            Reader(harness.project),
            Backlog(dict.fromkeys(decided, "good"), {}),
            decided,
            _terminals(harness, options),
        )
        with contextlib.ExitStack() as stack:
            campaign.reader.start()
            stack.callback(campaign.reader.stop)
            for terminal in campaign.terminals:
                stack.callback(terminal.close)
            campaign.trouble()
            campaign.finish()
            campaign.check(server.ledger())
        return campaign


def figures(campaign: MixedCampaign) -> Iterator[str]:
    options = campaign.options
    yield f"mixed campaign with seed {options.seed}: {options.items} gated items, {options.programs} programs"
    yield f"injected {campaign.injector.total} of {options.kills}:"
    yield from (
        f"  {action} {role}: {count}" for (action, role), count in sorted(campaign.injector.hits.items())
    )
    yield f"  workers killed while holding an item: {campaign.injector.deaths.total()}"
    yield from (f"  {what}: {count}" for what, count in sorted(campaign.counts.items()))
    yield f"documents read {campaign.reader.reads} times"
    yield f"violations: {len(campaign.violations)}"
    yield from (f"  - {found}" for found in campaign.violations[:30])
    yield f"{'FAILED' if campaign.violations else 'passed'} after {time.monotonic() - campaign.began:.0f} s"


def _terminals(harness: RunHarness, options: MixedOptions) -> list[Terminal]:
    agent = ("python3", "agent.py", str(Programs(harness).path), "{item}")
    programs = (*map(str, _programs(options)), "--parallel", "2", "--retries", "5", "--retry-on", "any")
    return [
        Terminal(harness, "gated", GATED),
        Terminal(harness, "container", GATED, CONTAINER if options.containers else ()),
        Terminal(harness, "programs", ("agentos", "exec", *programs, "--", *agent)),
    ]


def _programs(options: MixedOptions) -> range:
    return range(FIRST_PROGRAM, FIRST_PROGRAM + options.programs)


def _is_program(title: str) -> bool:
    """Programs and issues that were added share no number."""
    numbers = [int(word) for word in title.split() if word.isdigit()]
    return any(FIRST_PROGRAM <= number < FIRST_PROGRAM + APART - 1 for number in numbers)


def _write_keys(harness: RunHarness, enabled: tuple[bool, bool]) -> None:
    """Replaces credentials.toml at once, as an editor does."""
    tables = [
        f'[[credential]]\nname = "file-{number}"\nprovider = "gemini"\nkey = "{key}"\n'
        f'base_url = "{harness.urls[-1]}"\nenabled = {str(is_enabled).lower()}\n'
        for number, (key, is_enabled) in enumerate(zip(KEYS[2:], enabled, strict=True), 1)
    ]
    draft = harness.root / "credentials.new"
    draft.touch(mode=0o600)
    draft.write_text("\n".join(tables))
    draft.rename(harness.home / "credentials.toml")


def _check_programs(harness: RunHarness, options: MixedOptions) -> Iterator[str]:
    programs = Programs(harness)
    finished, crowded = programs.count("finished"), programs.count("crowded")
    for number in _programs(options):
        if not finished[number] or not programs.is_marked(number):
            yield f"{number} is lost: it finished {finished[number]} times"
        if crowded[number]:
            yield f"{number} ran twice at once"


def has_namespaces() -> bool:
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0


def _is_on_overlay(folder: Path) -> bool:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(mount[2] == "overlay" and mount[1] in map(str, folder.parents) for mount in mounts)


def has_overlay(folder: Path) -> bool:
    return _overlaid(folder, "true").returncode == 0


def run_on_overlay(
    folder: Path, seed: int, *, items: int, kills: int, minutes: float
) -> "subprocess.CompletedProcess[str]":
    """A campaign whose project and home are on an overlay, where inode numbers differ from those of the locks."""
    words = ("-m", "tests.chaos.mixed", f"{folder}/merged/work", "--overlay", "--seed", str(seed))
    sizes = (
        "--items",
        str(items),
        "--programs",
        str(items),
        "--kills",
        str(kills),
        "--minutes",
        str(minutes),
    )
    return _overlaid(folder, sys.executable, *words, *sizes)


def _overlaid(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(parents=True)
    options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    script = f'mount -t overlay overlay -o {options} {folder}/merged && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mixed", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--no-containers", action="store_true")
    parser.add_argument("--overlay", action="store_true", help="fail unless the folder is on an overlay")
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    if args.overlay and not _is_on_overlay(args.folder):
        print(f"{args.folder} is not on an overlay")
        return 1
    options = MixedOptions(
        args.seed, args.items, args.programs, args.kills, args.minutes * 60, not args.no_containers
    )
    campaign = run_mixed(args.folder / "campaign", options)
    print(*figures(campaign), sep="\n", flush=True)
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
