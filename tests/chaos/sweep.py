"""Replaces the n-th durable system call with SIGKILL, for every n."""

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
"""The worker of item 10 * n is killed at its n-th call; items in between are spared."""
WORKERS = 4
ROUNDS = 4


def sweep_designs(root: Path, call_numbers: Sequence[int]) -> Sweep:
    """Kill the workers of the lld workflow, each at its n-th durable call."""
    return _sweep_workers(root, "workers of lld", "lld-workflow", call_numbers, {})


def sweep_filings(
    root: Path, call_numbers: Sequence[int], environment: Mapping[str, str] | None = None
) -> Sweep:
    """Kill the workers of the issue workflow, each at its n-th durable call."""
    return _sweep_workers(root, "workers of issue", "issue-workflow", call_numbers, environment or {})


def calls_of_a_worker(root: Path, program: str) -> int:
    """The number of durable calls of a worker that is not killed."""
    with RunHarness.open(root) as harness:
        _add_item(harness, program, 1)
        harness.server()
        shim = shim_of(harness, "counted")
        done = harness.run("--all", program=program, **shim.environment(who="worker"))
        assert done.code == 0 and shim.calls, done.out + done.err
        return shim.calls


def sweep_coordinators(root: Path, call_numbers: Sequence[int]) -> Sweep:
    """Run one item for each n and kill the coordinator at its n-th durable call."""
    with Sweep("coordinators").timed() as sweep, RunHarness.open(root) as harness:
        server = harness.server()
        harness.issues(*call_numbers)
        reader = Reader(harness.project)
        reader.start()
        reached = []
        for n in call_numbers:
            shim = shim_of(harness, f"coordinator-{n}")
            running = harness.start(n, **shim.environment(who="coordinator", kill_at=n))
            running.wait(60)
            reached.append(n)
            if shim.kills == 0:
                # The run made fewer than n calls: drop the items meant for higher numbers.
                _remove_items(harness, call_numbers[len(reached) :])
                break
            sweep.killed(n)
            sweep.violations += check_killed(harness, running, n)
        sweep.violations += [*_finish(harness, "lld-workflow"), *readable(harness)]
        reader.stop()
        sweep.violations += [*_check_documents(harness, reached), *leftovers(harness), *reader.broken]
        answered = Counter(call["item"] for call in server.answered())
        sweep.violations += _check_calls(answered, reached, 1)
    return sweep


def _remove_items(harness: RunHarness, numbers: Sequence[int]) -> None:
    for number in numbers:
        (harness.project / "issues" / f"{number:03}-thing.md").unlink()


def _sweep_workers(
    root: Path, name: str, program: str, call_numbers: Sequence[int], environment: Mapping[str, str]
) -> Sweep:
    with Sweep(name).timed() as sweep, RunHarness.open(root) as harness:
        doomed, spared = [STEP * n for n in call_numbers], [STEP * n + 1 for n in call_numbers]
        for number in (*doomed, *spared):
            _add_item(harness, program, number)
        server = harness.server("--latency", "0,0.05")
        reader = Reader(harness.project)
        reader.start()
        harness.extra_env = dict(environment)
        shim = shim_of(harness, "workers")
        args = ("--all", "--parallel", WORKERS, "--retries", 3)
        faults = shim.environment(who="worker", kill_step=STEP)
        code = harness.start(*args, program=program, **faults).wait(60 + 3 * len(doomed)).code
        sweep.kills = shim.kills
        sweep.last = last_hit(shim)
        if code not in (0, 1):
            sweep.violations.append(f"the run ended with {code}")
        sweep.violations += _finish(harness, program)
        reader.stop()
        sweep.violations += [*_check_results(harness, program, [*doomed, *spared]), *leftovers(harness)]
        sweep.violations += reader.broken
        answered = Counter(call["item"] for call in server.answered())
        sweep.violations += _check_calls(answered, doomed, 1) + _check_calls(answered, spared, 0)
        (harness.root / "ledger.json").write_text(json.dumps(server.ledger()))
    return sweep


def _add_item(harness: RunHarness, program: str, number: int) -> None:
    if program == "lld-workflow":
        harness.issue(number)
    else:
        harness.brief(f"{number}-thing.md", number)


def last_hit(shim: Shim) -> int:
    """The highest call number at which a worker was killed."""
    # The state file holds five longs and a lock, then one byte per item.
    hits = shim.state.read_bytes()[44:]
    return max((item % 10000 // STEP for item, hit in enumerate(hits) if hit), default=0)


def _finish(harness: RunHarness, program: str) -> Iterator[str]:
    """Run without kills until everything is finished."""
    codes: list[int] = []
    while len(codes) < ROUNDS and 0 not in codes:
        done = harness.start("--all", "--parallel", WORKERS, program=program).wait(300)
        codes.append(done.code)
        if TRACEBACK in done.out + done.err:
            yield f"traceback: {(done.out + done.err)[-500:]}"
    if 0 not in codes:
        yield f"{program} without kills ended with {codes}"


def _check_results(harness: RunHarness, program: str, numbers: Sequence[int]) -> Iterator[str]:
    return (
        _check_documents(harness, numbers)
        if program == "lld-workflow"
        else _check_filed_issues(harness, numbers)
    )


def _check_documents(harness: RunHarness, numbers: Sequence[int]) -> Iterator[str]:
    documents = Counter(path.name for path in verdict_documents(harness.project))
    for number in numbers:
        if documents[f"LLD-{number:03}.md"] != 1:
            yield f"LLD-{number} has {documents[f'LLD-{number:03}.md']} verdicts"


def _check_filed_issues(harness: RunHarness, numbers: Sequence[int]) -> Iterator[str]:
    """Count filed issues by title, since agentos itself identifies them by their marker."""
    paths = (harness.project / "issues").glob("[!.]*.md")
    titles = Counter(front_matter(path.read_text("utf-8")).get("title", "").strip('"') for path in paths)
    for number in numbers:
        if titles[title_of(number)] != 1:
            yield f"ISSUE-{number} was filed {titles[title_of(number)]} times"
        if not (harness.project / "ideas/done" / f"{number}-thing.md").exists():
            yield f"the brief of ISSUE-{number} was not moved"


def _check_calls(answered: Counter[str], numbers: Sequence[int], kills: int) -> list[str]:
    """Each kill may repeat at most one call."""
    return [
        f"{number}: {answered[title_of(number)]} calls were answered, {kills} kills"
        for number in numbers
        if not CALLS["good"] <= answered[title_of(number)] <= CALLS["good"] + kills
    ]
