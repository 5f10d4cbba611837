"""Checks a campaign against the server's call log, the files and the kernel, never against a run's own output."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.backlog import (
    APPROVED,
    REVISION,
    Backlog,
    filed_issues,
    front_matter,
    verdict_documents,
    verdict_of,
)
from tests.chaos.injector import Injector
from tests.chaos.leftovers import leftovers
from tests.chaos.reader import Reader
from tests.scenarios.harness import RunHarness, title_of

CONCURRENCY = 1
FOLDERS = {"active": APPROVED, "needs-revision": REVISION}
HARMLESS = (None, "slow")
Call = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise, with every violation found."""

    promise: str
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything recorded during the campaign."""

    harness: RunHarness
    backlog: Backlog
    injector: Injector
    reader: Reader
    ledger: dict[str, Any]
    orphans: tuple[str, ...]
    said: str

    @property
    def project(self) -> Path:
        return self.harness.project

    def answered(self) -> list[Call]:
        """Calls with a complete, usable answer."""
        whole = [call for call in self.ledger["calls"] if call["status"] == 200]
        return [call for call in whole if call["ending"] == "complete" and call["fault"] in HARMLESS]


def check_invariants(evidence: Evidence) -> list[Finding]:
    found = {
        "lost": lost(evidence),
        "verdicts other than expected": wrong_verdicts(evidence),
        "effects twice": twice(evidence),
        "documents ever half-written": iter(evidence.reader.broken),
        "documents written again with another text": iter(evidence.reader.rewritten),
        "items worked on by two processes at once": overlaps(evidence),
        "keys over their concurrency": crowded_keys(evidence),
        "calls repeated beyond one per death": repeated(evidence),
        "calls for items that were over": after_the_end(evidence),
        "orphans after 2 s": iter(evidence.orphans),
        "temporary files, checkpoints and locks left": leftovers(evidence.harness),
        "tracebacks": (line for line in evidence.said.splitlines() if "Traceback (most" in line),
        "empty passes": empty_passes(evidence),
    }
    return [Finding(promise, tuple(against)) for promise, against in found.items()]


def lost(evidence: Evidence) -> Iterator[str]:
    designed = {_number(path) for path in verdict_documents(evidence.project) if path.name[:3] == "LLD"}
    issues = set(evidence.backlog.issues) | {_number(path) for path, _ in filed_issues(evidence.project)}
    yield from (f"LLD-{number} has no verdict" for number in sorted(issues - designed))
    origins = {origin for _, origin in filed_issues(evidence.project)}
    for number, quality in evidence.backlog.briefs.items():
        if verdict_of(quality) == APPROVED:
            if f"ISSUE-{number}" not in origins:
                yield f"ISSUE-{number} is not filed"
            if not (evidence.project / "ideas/done" / f"{number}-thing.md").exists():
                yield f"the brief of ISSUE-{number} was not moved"
        elif not (evidence.project / "docs/issues/needs-revision" / f"ISSUE-{number:03}.md").exists():
            yield f"ISSUE-{number} has no verdict"


def wrong_verdicts(evidence: Evidence) -> Iterator[str]:
    for path in verdict_documents(evidence.project):
        status = front_matter(path.read_text("utf-8")).get("status", "").strip('"')
        expected = evidence.backlog.expected(_number(path)) if path.name[:3] == "LLD" else REVISION
        if status != FOLDERS[path.parent.name] or status != (expected or status):
            yield f"{path.relative_to(evidence.project)} says {status}"
    for number, quality in evidence.backlog.briefs.items():
        if verdict_of(quality) == REVISION and f"ISSUE-{number}" in _origins(evidence):
            yield f"ISSUE-{number} was filed"


def twice(evidence: Evidence) -> Iterator[str]:
    documents = Counter(path.name for path in verdict_documents(evidence.project))
    yield from (f"{name} has {count} verdicts" for name, count in documents.items() if count > 1)
    filed = Counter(_origins(evidence))
    yield from (f"{origin} was filed {count} times" for origin, count in filed.items() if count > 1)
    places = [path.name for path in evidence.project.glob("ideas/*/*.md")]
    yield from (f"{name} is in two folders" for name, count in Counter(places).items() if count > 1)
    for path in sorted((evidence.project / "docs/lineage/done").iterdir()):
        if path.name.count("-") > 1:
            yield f"a second lineage: {path.name}"


def overlaps(evidence: Evidence) -> Iterator[str]:
    for item, calls in _by_item(evidence.ledger["calls"]).items():
        for before, after in pairwise(sorted(calls, key=lambda call: float(call["started"]))):
            if before["ended"] is None or after["started"] < before["ended"]:
                yield f"{item}: calls {before['seq']} and {after['seq']}"


def crowded_keys(evidence: Evidence) -> Iterator[str]:
    for key, most in sorted(evidence.ledger["max_concurrent"].items()):
        if most > CONCURRENCY:
            yield f"{key}: {most} calls at once, {CONCURRENCY} allowed"


def repeated(evidence: Evidence) -> Iterator[str]:
    for item, extra in extra_calls(evidence).items():
        deaths = sum(evidence.injector.deaths[name] for name in _names(evidence).get(item, ()))
        if extra > deaths:
            yield f"{item}: {extra} repeated calls, {deaths} deaths"


def extra_calls(evidence: Evidence) -> Counter[str]:
    """Repeated answers to the same prompt, by item title."""
    seen = Counter((call["item"], call["role"], call["prompt_sha256"]) for call in evidence.answered())
    extra: Counter[str] = Counter()
    for (item, _, _), count in seen.items():
        extra[item] += count - 1
    extra.subtract(_reviewed_unchanged(evidence))
    return +extra


def _reviewed_unchanged(evidence: Evidence) -> Iterator[str]:
    """A hopeless draft does not change in its revision, so its second review repeats the first prompt."""
    for number, quality in (evidence.backlog.issues | evidence.backlog.briefs).items():
        if quality == "hopeless":
            yield title_of(number)


def after_the_end(evidence: Evidence) -> Iterator[str]:
    over = {
        title: evidence.reader.first_seen.get(path)
        for title, path in _designs(evidence)
        if path in evidence.reader.first_seen
    }
    for item, calls in _by_item(evidence.ledger["calls"]).items():
        late = [call["seq"] for call in calls if call["started"] > (over.get(item) or float("inf"))]
        if late:
            yield f"{item}: calls {', '.join(map(str, late))}"


def empty_passes(evidence: Evidence) -> Iterator[str]:
    """A campaign that hit or read nothing proves nothing."""
    if not evidence.injector.total:
        yield "no fault was injected"
    if not evidence.injector.deaths:
        yield "no worker died"
    if not evidence.reader.reads or not evidence.reader.completed:
        yield f"the reader broke off after {evidence.reader.reads} documents"
    if not evidence.answered():
        yield "no call was answered"


def resumed(evidence: Evidence) -> tuple[int, int]:
    """How many killed items still reached a verdict, and how many were killed."""
    killed = set(evidence.injector.deaths)
    left = set(re.findall(r"[A-Z]+-\d+", " ".join(lost(evidence))))
    return len(killed - left), len(killed)


def _origins(evidence: Evidence) -> list[str]:
    return [origin for _, origin in filed_issues(evidence.project)]


def _designs(evidence: Evidence) -> Iterator[tuple[str, Path]]:
    """Title and design of each issue; a brief and the issue filed from it may share a title."""
    titles = {number: title_of(number) for number in evidence.backlog.issues}
    for path, _ in filed_issues(evidence.project):
        titles[_number(path)] = front_matter(path.read_text("utf-8"))["title"].strip('"')
    for path in verdict_documents(evidence.project):
        if path.name.startswith("LLD"):
            yield titles[_number(path)], path


def _names(evidence: Evidence) -> dict[str, list[str]]:
    """The items with each title in the call log."""
    names = defaultdict(list)
    for title, path in _designs(evidence):
        names[title].append(f"LLD-{_number(path)}")
    for number in evidence.backlog.briefs:
        names[title_of(number)].append(f"ISSUE-{number}")
    return names


def _by_item(calls: list[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        found[call["item"]].append(call)
    return found


def _number(path: Path) -> int:
    """Of `LLD-007.md` and of `007-thing.md`."""
    return int(path.stem.removeprefix("LLD-").removeprefix("ISSUE-").partition("-")[0])
