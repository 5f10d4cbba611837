"""Judges a campaign from the server's ledger, the files and the kernel, never from what a run says."""

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
    """One promise, and everything that was found against it."""

    promise: str
    against: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was gathered while the campaign went on."""

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
        """Calls whose answer was sent as a whole and can be used."""
        whole = [call for call in self.ledger["calls"] if call["status"] == 200]
        return [call for call in whole if call["ending"] == "complete" and call["fault"] in HARMLESS]


def judge(metadata: Evidence) -> list[Finding]:
    found = {
        "lost": lost(metadata),
        "verdicts other than expected": wrong_verdicts(metadata),
        "effects twice": twice(metadata),
        "documents ever half-written": iter(metadata.reader.broken),
        "documents written again with another text": iter(metadata.reader.rewritten),
        "items worked on by two processes at once": overlaps(metadata),
        "keys over their concurrency": crowded_keys(metadata),
        "calls repeated beyond one per death": repeated(metadata),
        "calls for items that were over": after_the_end(metadata),
        "orphans after 2 s": iter(metadata.orphans),
        "temporary files, checkpoints and locks left": leftovers(metadata.harness),
        "tracebacks": (line for line in metadata.said.splitlines() if "Traceback (most" in line),
        "empty passes": empty_passes(metadata),
    }
    return [Finding(promise, tuple(against)) for promise, against in found.items()]


def lost(metadata: Evidence) -> Iterator[str]:
    designed = {_number(path) for path in verdict_documents(metadata.project) if path.name[:3] == "LLD"}
    issues = set(metadata.backlog.issues) | {_number(path) for path, _ in filed_issues(metadata.project)}
    yield from (f"LLD-{number} has no verdict" for number in sorted(issues - designed))
    origins = {origin for _, origin in filed_issues(metadata.project)}
    for number, quality in metadata.backlog.briefs.items():
        if verdict_of(quality) == APPROVED:
            if f"ISSUE-{number}" not in origins:
                yield f"ISSUE-{number} is not filed"
            if not (metadata.project / "ideas/done" / f"{number}-thing.md").exists():
                yield f"the brief of ISSUE-{number} was not moved"
        elif not (metadata.project / "docs/issues/needs-revision" / f"ISSUE-{number:03}.md").exists():
            yield f"ISSUE-{number} has no verdict"


def wrong_verdicts(metadata: Evidence) -> Iterator[str]:
    for path in verdict_documents(metadata.project):
        status = front_matter(path.read_text("utf-8")).get("status", "").strip('"')
        expected = metadata.backlog.expected(_number(path)) if path.name[:3] == "LLD" else REVISION
        if status != FOLDERS[path.parent.name] or status != (expected or status):
            yield f"{path.relative_to(metadata.project)} says {status}"
    for number, quality in metadata.backlog.briefs.items():
        if verdict_of(quality) == REVISION and f"ISSUE-{number}" in _origins(metadata):
            yield f"ISSUE-{number} was filed"


def twice(metadata: Evidence) -> Iterator[str]:
    documents = Counter(path.name for path in verdict_documents(metadata.project))
    yield from (f"{name} has {count} verdicts" for name, count in documents.items() if count > 1)
    filed = Counter(_origins(metadata))
    yield from (f"{origin} was filed {count} times" for origin, count in filed.items() if count > 1)
    places = [path.name for path in metadata.project.glob("ideas/*/*.md")]
    yield from (f"{name} is in two folders" for name, count in Counter(places).items() if count > 1)
    for path in sorted((metadata.project / "docs/lineage/done").iterdir()):
        if path.name.count("-") > 1:
            yield f"a second lineage: {path.name}"


def overlaps(metadata: Evidence) -> Iterator[str]:
    for item, calls in _by_item(metadata.ledger["calls"]).items():
        for before, after in pairwise(sorted(calls, key=lambda call: float(call["started"]))):
            if before["ended"] is None or after["started"] < before["ended"]:
                yield f"{item}: calls {before['seq']} and {after['seq']}"


def crowded_keys(metadata: Evidence) -> Iterator[str]:
    for key, most in sorted(metadata.ledger["max_concurrent"].items()):
        if most > CONCURRENCY:
            yield f"{key}: {most} calls at once, {CONCURRENCY} allowed"


def repeated(metadata: Evidence) -> Iterator[str]:
    for item, extra in extra_calls(metadata).items():
        deaths = sum(metadata.injector.deaths[name] for name in _names(metadata).get(item, ()))
        if extra > deaths:
            yield f"{item}: {extra} repeated calls, {deaths} deaths"


def extra_calls(metadata: Evidence) -> Counter[str]:
    """Item, by title -> answers to a question that had been answered before."""
    seen = Counter((call["item"], call["role"], call["prompt_sha256"]) for call in metadata.answered())
    extra: Counter[str] = Counter()
    for (item, _, _), count in seen.items():
        extra[item] += count - 1
    extra.subtract(_reviewed_unchanged(metadata))
    return +extra


def _reviewed_unchanged(metadata: Evidence) -> Iterator[str]:
    """A hopeless draft comes back from its revision as it was: its second review is the same question."""
    for number, quality in (metadata.backlog.issues | metadata.backlog.briefs).items():
        if quality == "hopeless":
            yield title_of(number)


def after_the_end(metadata: Evidence) -> Iterator[str]:
    over = {
        title: metadata.reader.first_seen.get(path)
        for title, path in _designs(metadata)
        if path in metadata.reader.first_seen
    }
    for item, calls in _by_item(metadata.ledger["calls"]).items():
        late = [call["seq"] for call in calls if call["started"] > (over.get(item) or float("inf"))]
        if late:
            yield f"{item}: calls {', '.join(map(str, late))}"


def empty_passes(metadata: Evidence) -> Iterator[str]:
    """A campaign that hit or read nothing has shown nothing."""
    if not metadata.injector.total:
        yield "nothing was injected"
    if not metadata.injector.deaths:
        yield "no worker died"
    if not metadata.reader.reads or not metadata.reader.to_the_end:
        yield f"the reader broke off after {metadata.reader.reads} documents"
    if not metadata.answered():
        yield "no call was answered"


def resumed(metadata: Evidence) -> tuple[int, int]:
    """Of the items that were killed, how many reached a verdict all the same, and how many there are."""
    killed = set(metadata.injector.deaths)
    left = set(re.findall(r"[A-Z]+-\d+", " ".join(lost(metadata))))
    return len(killed - left), len(killed)


def _origins(metadata: Evidence) -> list[str]:
    return [origin for _, origin in filed_issues(metadata.project)]


def _designs(metadata: Evidence) -> Iterator[tuple[str, Path]]:
    """Title and design of each issue; a brief and the issue that came of it may have one title."""
    titles = {number: title_of(number) for number in metadata.backlog.issues}
    for path, _ in filed_issues(metadata.project):
        titles[_number(path)] = front_matter(path.read_text("utf-8"))["title"].strip('"')
    for path in verdict_documents(metadata.project):
        if path.name.startswith("LLD"):
            yield titles[_number(path)], path


def _names(metadata: Evidence) -> dict[str, list[str]]:
    """Title -> the items that the ledger calls so."""
    names = defaultdict(list)
    for title, path in _designs(metadata):
        names[title].append(f"LLD-{_number(path)}")
    for number in metadata.backlog.briefs:
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
