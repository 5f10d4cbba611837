"""Plans, runs, stops halfway and resumes ten thousand items on one machine.

python -m bench.scale [--items 10000]
"""

import argparse
import contextlib
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentos.core.planning.items import Item
from agentos.core.planning.plan import Plan, Selection, make_plan
from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.commands import GrantLease, StartWorker, StopWorker
from agentos.core.protocol.ports import Clock, Listener
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret
from agentos.engines.inline import InlineChannel, InlineEngine
from agentos.outputs.audit import Audit
from agentos.outputs.console import Console
from agentos.outputs.logfiles import LogFiles, SummaryFile
from agentos.platform_support import host_clock
from agentos.run.discovery import discover
from agentos.run.event_loop import EventLoop, ExternalInputs
from agentos.storage.file_items import FileItems
from agentos.storage.files import ProjectFolder, private_file
from agentos.storage.home import Home
from agentos.storage.journal import Journal
from agentos.storage.peer_log import NoPeers
from agentos.storage.runs import RetentionPolicy, new_run, prune, run_folders
from agentos.workflows.lld import APPROVED, document_name
from agentos.workflows.registry import find_workflow
from agentos.workflows.review_loop import ReviewMetadata, with_metadata
from bench.project import ISSUE

WORKERS = 10
PORTION = 1000


@dataclass(frozen=True, slots=True)
class Lap:
    """Wall time and CPU time in seconds."""

    seconds: float
    cpu: float


def _lap() -> Lap:
    return Lap(time.monotonic(), time.process_time())


@dataclass
class Stopwatch:
    """A listener that takes a lap time every `portion` items and stops the run after `stop_after` items."""

    portion: int
    stop_after: int | None
    signals: list[str]
    ended: int = 0
    laps: list[Lap] = field(default_factory=lambda: [_lap()])

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.ItemEnded) and event.outcome.ending is Ending.FINISHED:
            self.ended += 1
            if self.ended % self.portion == 0:
                self.laps.append(_lap())
            if self.ended == self.stop_after:
                self.signals.append("SIGTERM")

    def close(self) -> None:
        pass

    def portions(self) -> list[Lap]:
        return [
            Lap(after.seconds - before.seconds, after.cpu - before.cpu)
            for before, after in itertools.pairwise(self.laps)
        ]


@dataclass(frozen=True)
class Measured:
    code: int
    portions: list[Lap]
    megabytes: float


def make_project(folder: Path, items: int) -> Path:
    issues = folder / "project" / "issues"
    issues.mkdir(parents=True)
    for number in range(1, items + 1):
        (issues / f"{number:05}.md").write_text(ISSUE.format(number=number))
    return folder / "project"


def run_all(
    project: Path,
    home: Home,
    portion: int = PORTION,
    stop_after: int | None = None,
    others: Sequence[Listener] = (),
) -> Measured:
    """Run with the real event loop, scheduler, pool and listeners, and a model that answers at once."""
    found = discover(find_workflow("lld", project), project, home, FileItems(project, home))
    plan = make_plan(found, Selection(everything=True))
    items = {entry.item.id: entry.item for entry in plan.entries}
    documents = ProjectFolder(project)
    signals: list[str] = []
    watch = Stopwatch(portion, stop_after, signals)
    keys = [
        Credential(f"key-{n}", "gemini", Secret(f"a key, number {n}"), concurrency=4) for n in range(1, 5)
    ]
    with contextlib.ExitStack() as stack:
        prune(home.runs, RetentionPolicy(), time.time())
        folder = stack.enter_context(contextlib.closing(new_run(home.runs, time.time())))
        engine = stack.enter_context(
            contextlib.closing(
                InlineEngine(
                    lambda command, channel: run_item(command, channel, items[command.item], documents)
                )
            )
        )
        listeners: list[Listener] = [*_listeners(folder.path), watch, *others]
        for listener in listeners:
            stack.callback(listener.close)
        run = Scheduler(plan.ids, Pool(keys), Limits(WORKERS), random.random, host_clock())
        code = EventLoop(run, engine, listeners, Clock(host_clock, time.time), NoPeers()).run(
            _started_event(folder.id, plan, project, keys), ExternalInputs(signals, lambda: None)
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(code, watch.portions(), peak)


def run_item(command: StartWorker, channel: InlineChannel, item: Item, documents: ProjectFolder) -> Outcome:
    """Request a draft and a review as a worker would, then write the document."""
    for number, node in enumerate(("N1_design", "N3_review")):
        channel.write_output(f">>> Executing: {node}")
        channel.send(events.NodeStarted(item.id, node, 1))
        call = events.LeaseRequested(item.id, node, ("gemini",), ("gemini-2.5-pro",), 800, 600, number)
        channel.send(call)
        grant = channel.wait(60.0)
        if isinstance(grant, StopWorker) or grant is None:
            return Outcome(Ending.INTERRUPTED)
        assert isinstance(grant, GrantLease)
        channel.send(events.LeaseReleased(item.id, grant.lease, 0.001, Usage(1, 800, 600), None, "fast"))
        channel.send(events.NodeFinished(item.id, node, 0.001))
    name = f"{APPROVED}/{document_name(item.number)}"
    metadata = ReviewMetadata(
        item.id, Verdict.APPROVED, 1, "fast", "fast", "2026-01-01", item.source, item.digest
    )
    documents.write(name, with_metadata(metadata, f"# {item.title}\n").encode())
    return Outcome(Ending.FINISHED, Verdict.APPROVED, 1, result=name)


def _listeners(folder: Path) -> list[Listener]:
    encoder = EventEncoder(str)
    return [
        Journal(folder, encoder, _fail),
        LogFiles(folder, private_file, lambda line: None),
        Audit(folder, private_file, encoder, _fail),
        SummaryFile(_writer(folder / "summary.json"), str, _fail),
        Console(lambda line: None, str, lambda line: None),
    ]


def _fail(error: OSError) -> None:
    raise error


def _writer(path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        path.write_text(text)

    return write


def _started_event(run: str, plan: Plan, project: Path, keys: list[Credential]) -> events.RunStarted:
    names = tuple(key.name for key in keys)
    return events.RunStarted(run, "lld", str(project), plan.ids, WORKERS, names, offline=True)


# The commands as a user types them


def time_to_plan(project: Path, environment: dict[str, str]) -> str:
    """Wall time and CPU time of a dry run; CPU time is not affected by other programs."""
    before, started = _children_cpu(), time.monotonic()
    subprocess.run(_command(project, "--dry-run"), env=environment, check=True, stdout=subprocess.DEVNULL)
    return f"{time.monotonic() - started:6.2f} s, {_children_cpu() - before:.2f} s CPU"


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_to_resume(project: Path, environment: dict[str, str]) -> float:
    """Seconds from the command to the first node of the first item, with real processes."""
    started = time.monotonic()
    process = subprocess.Popen(
        _command(project), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    first = next(line for line in process.stdout if ">>> Executing" in line)
    seconds = time.monotonic() - started
    assert first
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return seconds


def _command(project: Path, *args: str) -> list[str]:
    python = [sys.executable, "-m", "agentos", "run", "lld"]
    return [*python, "--all", "--offline", "--parallel", "3", "--repo", str(project), *args]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stop-after", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return _report(run_all(args.run / "project", Home(args.run / "home"), PORTION, args.stop_after))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = make_project(folder, args.items)
        environment = {"PATH": os.environ["PATH"], "HOME": name, "AGENTOS_HOME": str(folder / "home")}
        print(f"{args.items:,} items, {WORKERS} inline workers, a model that answers at once")
        print(f"dry run, nothing done:      {time_to_plan(project, environment)}")
        _run_in_subprocess(folder, args.items // 2)
        print(f"dry run, half of it done:   {time_to_plan(project, environment)}")
        print(f"resume, to the first node:  {seconds_to_resume(project, environment):6.2f} s")
        _run_in_subprocess(folder, None)
        runs = run_folders(folder / "home" / "logs" / "parallel")
        kept = prune(folder / "home" / "logs" / "parallel", RetentionPolicy(runs=1), time.time())
        print(f"run folders: {len(runs)}, pruned to one: {len(kept)} removed")


def _run_in_subprocess(folder: Path, stop_after: int | None) -> None:
    """Run in a separate process, so that its memory can be measured."""
    options = [] if stop_after is None else ["--stop-after", str(stop_after)]
    subprocess.run([sys.executable, "-m", "bench.scale", "--run", str(folder), *options], check=True)


def _report(measured: Measured) -> None:
    portions = measured.portions
    print(f"run, exit {measured.code}: per {PORTION:,} items")
    print("  wall seconds: " + ", ".join(f"{lap.seconds:.1f}" for lap in portions))
    print("  CPU seconds:  " + ", ".join(f"{lap.cpu:.1f}" for lap in portions))
    if len(portions) > 1:
        first, last = portions[0], portions[-1]
        wall_ratio, cpu_ratio = last.seconds / first.seconds, last.cpu / first.cpu
        print(
            f"  the last {PORTION:,} relative to the first: {wall_ratio:.2f} wall time, {cpu_ratio:.2f} CPU time"
        )
    print(f"  peak memory: {measured.megabytes:.0f} MB")


if __name__ == "__main__":
    main()
