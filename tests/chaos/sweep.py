"""SIGKILL in place of the n-th durable system call, for every n there is."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.chaos.backlog import front_matter, verdict_documents
from tests.chaos.killing import TRACEBACK, Sweep, check_killed, readable, shim_of
from tests.chaos.leftovers import leftovers
from tests.chaos.reader import Reader
from tests.faults.shim import Shim
from tests.scenarios.harness import CALLS, RunHarness, title_of

STEP = 10
"""Item 10 * n dies at its n-th call; what stands between does not die."""
WORKERS = 4
ROUNDS = 4


def sweep_designs(root: Path, places: Sequence[int]) -> Sweep:
    """Workers of designs, each killed at its n-th durable call."""
    return _sweep_workers(root, "workers of lld", "lld-workflow", places, {})


def sweep_filings(root: Path, places: Sequence[int], environment: Mapping[str, str] | None = None) -> Sweep:
    """Workers that file issues, each killed at its n-th durable call."""
    return _sweep_workers(root, "workers of issue", "issue-workflow", places, environment or {})


def calls_of_a_worker(root: Path, program: str) -> int:
    """How many durable calls there are when nobody is killed."""
    with RunHarness.open(root) as harness:
        _give(harness, program, 1)
        harness.server()
        shim = shim_of(harness, "counted")
        done = harness.run("--all", program=program, **shim.environment(who="worker"))
        assert done.code == 0 and shim.calls, done.out + done.err
        return shim.calls


def sweep_coordinators(root: Path, places: Sequence[int]) -> Sweep:
    """A run of one item for each n; its coordinator is killed at its n-th durable call."""
    with Sweep("coordinators").timed() as sweep, RunHarness.open(root) as harness:
        server = harness.server()
        harness.issues(*places)
        reader = Reader(harness.project)
        reader.start()
        reached = []
        for n in places:
            shim = shim_of(harness, f"coordinator-{n}")
            running = harness.start(n, **shim.environment(who="coordinator", kill_at=n))
            running.wait(60)
            reached.append(n)
            if shim.kills == 0:
                # There are no further calls; what was meant to die at one is not wanted.
                _forget(harness, places[len(reached) :])
                break
            sweep.killed(n)
            sweep.violations += check_killed(harness, running, n)
        sweep.violations += [*_finish(harness, "lld-workflow"), *readable(harness)]
        reader.stop()
        sweep.violations += [*_designs(harness, reached), *leftovers(harness), *reader.broken]
        answered = Counter(call["item"] for call in server.answered())
        sweep.violations += _calls(answered, reached, 1)
    return sweep


def _forget(harness: RunHarness, numbers: Sequence[int]) -> None:
    for number in numbers:
        (harness.project / "issues" / f"{number:03}-thing.md").unlink()


def _sweep_workers(
    root: Path, name: str, program: str, places: Sequence[int], environment: Mapping[str, str]
) -> Sweep:
    with Sweep(name).timed() as sweep, RunHarness.open(root) as harness:
        doomed, spared = [STEP * n for n in places], [STEP * n + 1 for n in places]
        for number in (*doomed, *spared):
            _give(harness, program, number)
        server = harness.server("--latency", "0,0.05")
        reader = Reader(harness.project)
        reader.start()
        harness.extra_env = dict(environment)
        shim = shim_of(harness, "workers")
        words = ("--all", "--parallel", WORKERS, "--retries", 3)
        wishes = shim.environment(who="worker", kill_step=STEP)
        code = harness.start(*words, program=program, **wishes).wait(60 + 3 * len(doomed)).code
        sweep.kills = shim.kills
        sweep.last = last_hit(shim)
        if code not in (0, 1):
            sweep.violations.append(f"the run ended with {code}")
        sweep.violations += _finish(harness, program)
        reader.stop()
        sweep.violations += [*_results(harness, program, [*doomed, *spared]), *leftovers(harness)]
        sweep.violations += reader.broken
        answered = Counter(call["item"] for call in server.answered())
        sweep.violations += _calls(answered, doomed, 1) + _calls(answered, spared, 0)
        (harness.root / "ledger.json").write_text(json.dumps(server.ledger()))
    return sweep


def _give(harness: RunHarness, program: str, number: int) -> None:
    if program == "lld-workflow":
        harness.issue(number)
    else:
        harness.brief(f"{number}-thing.md", number)


def last_hit(shim: Shim) -> int:
    """The counters are five longs and a lock; then comes a byte an item."""
    hits = shim.state.read_bytes()[44:]
    return max((item % 10000 // STEP for item, hit in enumerate(hits) if hit), default=0)


def _finish(harness: RunHarness, program: str) -> Iterator[str]:
    """Left alone, it comes to its end."""
    codes: list[int] = []
    while len(codes) < ROUNDS and 0 not in codes:
        done = harness.start("--all", "--parallel", WORKERS, program=program).wait(300)
        codes.append(done.code)
        if TRACEBACK in done.out + done.err:
            yield f"a traceback: {(done.out + done.err)[-500:]}"
    if 0 not in codes:
        yield f"{program}, left alone, ended with {codes}"


def _results(harness: RunHarness, program: str, numbers: Sequence[int]) -> Iterator[str]:
    return _designs(harness, numbers) if program == "lld-workflow" else _filings(harness, numbers)


def _designs(harness: RunHarness, numbers: Sequence[int]) -> Iterator[str]:
    found = Counter(path.name for path in verdict_documents(harness.project))
    for number in numbers:
        if found[f"LLD-{number:03}.md"] != 1:
            yield f"LLD-{number} has {found[f'LLD-{number:03}.md']} verdicts"


def _filings(harness: RunHarness, numbers: Sequence[int]) -> Iterator[str]:
    """Counted by title: the marker is what the program itself goes by."""
    paths = (harness.project / "issues").glob("[!.]*.md")
    titles = Counter(front_matter(path.read_text("utf-8")).get("title", "").strip('"') for path in paths)
    for number in numbers:
        if titles[title_of(number)] != 1:
            yield f"ISSUE-{number} was filed {titles[title_of(number)]} times"
        if not (harness.project / "ideas/done" / f"{number}-thing.md").exists():
            yield f"the brief of ISSUE-{number} was not moved"


def _calls(answered: Counter[str], numbers: Sequence[int], deaths: int) -> list[str]:
    """A call may happen again after a death, once."""
    return [
        f"{number}: {answered[title_of(number)]} calls were answered, {deaths} deaths"
        for number in numbers
        if not CALLS["good"] <= answered[title_of(number)] <= CALLS["good"] + deaths
    ]
