"""Measures what a design gets to see, on real changes: `python -m bench.recall RECORDS REPOSITORIES [--scale N]`.

RECORDS is a JSON list; each record has `repo` (owner/name), `base_commit`, `problem_statement` (the issue's text) and
`patch_files` (the files that the merged change touched, without tests). REPOSITORIES is a folder with a git directory for
each repository, named by its last part, in which `repo` may stand below `owner+name`. Recall is the share of the changed
files whose signatures are in the context that the product makes from the issue at that commit. `--scale` also indexes a
project of N files made of the repositories' own.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.context import CONVENTIONS, ContextBuilder, PartKind
from agentos.codebase.index import CodeIndex
from agentos.codebase.indexing import IndexJob, update_index
from agentos.codebase.ranking import rank
from agentos.codebase.source_files import ProjectSource

BUDGETS = (2000, 4000, 8000, 16000)  # tokens
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}


@dataclass(frozen=True, slots=True)
class Change:
    """A merged change: the issue that asked for it, and the files it touched."""

    repository: str
    commit: str
    issue: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Recall by budget; CPU per indexed file and per context in milliseconds."""

    change: Change
    total_files: int
    indexed: int
    index_ms: float
    context_ms: float
    recall: dict[int, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("records", type=Path)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("--scale", type=int, nargs="*", default=[])
    options = parser.parse_args()
    changes = read_changes(options.records)
    with tempfile.TemporaryDirectory(prefix="agentos-recall-") as folder:
        measured = [measure(change, options.repositories, Path(folder)) for change in changes]
        print_table(measured)
        for number in options.scale:
            measure_scale(number, changes, options.repositories, Path(folder) / str(number))


def read_changes(path: Path) -> list[Change]:
    rows = json.loads(path.read_text("utf-8"))
    return [
        Change(row["repo"], row["base_commit"], row["problem_statement"], tuple(row["patch_files"]))
        for row in rows
    ]


def measure(change: Change, repositories: Path, folder: Path) -> Measurement:
    source = ProjectSource(git_directory(repositories, change.repository), ENVIRONMENT)
    snapshot = source.take_snapshot(change.commit)
    assert snapshot.commit == change.commit, f"{change.repository} has no commit {change.commit}"
    # One index per change: otherwise a later one would find most contents there.
    database = folder / f"{change.commit}.db"
    before = cpu_seconds()
    update = update_index(IndexJob(database, source, snapshot, CONVENTIONS), lambda done, total: None)
    index_ms = (cpu_seconds() - before) * 1000 / update.indexed
    title, _, text = change.issue.partition("\n")
    recall, times = {}, []
    with CodeIndex(database, snapshot.name) as index:
        for budget in BUDGETS:
            before = time.process_time()
            context = ContextBuilder(index, folder, budget).build(title, text)
            times.append(time.process_time() - before)
            assert context.tokens <= budget, (context.tokens, budget)
            shown = {part.path for part in context.own if part.kind is PartKind.SIGNATURES}
            recall[budget] = sum(path in shown for path in change.files) / len(change.files)
    return Measurement(
        change, len(snapshot.files), update.indexed, index_ms, statistics.median(times) * 1000, recall
    )


def print_table(measured: list[Measurement]) -> None:
    print(f"| repository | commit | files | index ms/file | context ms | {' | '.join(map(str, BUDGETS))} |")
    print("| --- | --- | --- | --- | --- | " + " | ".join("---" for _ in BUDGETS) + " |")
    for m in measured:
        found = " | ".join(f"{m.recall[budget]:.2f}" for budget in BUDGETS)
        print(
            f"| {m.change.repository} | {m.change.commit[:10]} | {m.total_files:,} | {m.index_ms:.1f} | "
            f"{m.context_ms:.1f} | {found} |"
        )
    means = " | ".join(f"{statistics.mean(m.recall[b] for m in measured):.2f}" for b in BUDGETS)
    worst, slowest = max(m.index_ms for m in measured), max(m.context_ms for m in measured)
    print(f"| mean (times: worst) | | | {worst:.1f} | {slowest:.1f} | {means} |")


def measure_scale(number: int, changes: list[Change], repositories: Path, folder: Path) -> None:
    """Index a repository of `number` files, then change ten of them; contexts for every issue."""
    project = folder / "project"
    project.mkdir(parents=True)
    for path, content in many_files(number, changes, repositories):
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    commit(project)
    source = ProjectSource(project, ENVIRONMENT)
    listed = time.monotonic()
    snapshot = source.take_snapshot()
    listed = time.monotonic() - listed
    database, before, started = folder / "index.db", cpu_seconds(), time.monotonic()
    update_index(IndexJob(database, source, snapshot), lambda done, total: None)
    cpu, wall = cpu_seconds() - before, time.monotonic() - started
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ranking, times = [], []
    with CodeIndex(database, snapshot.name) as index:
        for change in changes:
            title, _, text = change.issue.partition("\n")
            before = time.process_time()
            rank(index, title, text)
            ranking.append((time.process_time() - before) * 1000)
            before = time.process_time()
            ContextBuilder(index, project, 8000).build(title, text)
            times.append((time.process_time() - before) * 1000)
    for file in list(snapshot.files)[:10]:
        (project / file.path).write_bytes(b"changed = 1\n" + (project / file.path).read_bytes())
    commit(project)
    before = time.monotonic()
    update = update_index(IndexJob(database, source, source.take_snapshot()), lambda done, total: None)
    print(
        f"{number:,} files: listed in {listed:.1f} s, indexed in {wall:.0f} s ({cpu * 1000 / number:.1f} ms of CPU a "
        f"file), peak memory {megabytes:.0f} MB, index {database.stat().st_size / 2**20:.0f} MB; query: median "
        f"{statistics.median(ranking):.1f} ms, worst {max(ranking):.1f} ms; whole context: median "
        f"{statistics.median(times):.1f} ms, worst {max(times):.1f} ms; a commit that changes {update.indexed} files: "
        f"{time.monotonic() - before:.1f} s"
    )


def many_files(number: int, changes: list[Change], repositories: Path) -> Iterator[tuple[str, bytes]]:
    """The source files of the repositories, again and again, each with a line of its own so that none is the same."""
    made = 0
    while made < number:
        for change in changes:
            source = ProjectSource(git_directory(repositories, change.repository), ENVIRONMENT)
            snapshot = source.take_snapshot(change.commit)
            reader = source.open_reader(snapshot)
            try:
                for file in (
                    file for file in snapshot.files if file.path.endswith(".py") and file.size < 200_000
                ):
                    made += 1
                    yield f"part{made // 2000}/{made}/{file.path}", b"# %d\n" % made + reader.read(file)
                    if made >= number:
                        return
            finally:
                reader.close()


def commit(project: Path) -> None:
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
    if not (project / ".git").exists():
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    subprocess.run(["git", "add", "--all"], cwd=project, check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "--message", "files"], cwd=project, check=True)


def git_directory(repositories: Path, name: str) -> Path:
    """`owner/name` as a folder `name`, `owner+name` or `owner+name/repo`."""
    places = (name.partition("/")[2], name.replace("/", "+"), f"{name.replace('/', '+')}/repo")
    found = [repositories / place for place in places if (repositories / place / "HEAD").exists()]
    found += [repositories / place for place in places if (repositories / place / ".git").exists()]
    if not found:
        raise SystemExit(f"no git directory of {name} in {repositories}: expected one of {', '.join(places)}")
    return found[0]


def cpu_seconds() -> float:
    """Of this process and of the git processes that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
