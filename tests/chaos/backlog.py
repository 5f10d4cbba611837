"""The backlog of a campaign and the results expected from it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.harness import TEXTS, RunHarness, title_of

QUALITIES = ("good", "weak", "hopeless")
SHARES = (60, 25, 15)
FIRST_BRIEF = 5001
FIRST_ADDED, APART = 8000, 500
"""Spacing that leaves room for the numbers of filed issues, which follow the highest existing one."""
APPROVED, REVISION = "approved", "needs revision"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Quality by number, of the issues and of the initial briefs."""

    issues: dict[int, str]
    briefs: dict[int, str]

    def add(self, harness: RunHarness) -> None:
        """Add one issue atomically."""
        number = FIRST_ADDED + APART * sum(map(is_added, self.issues))
        self.issues[number] = "good"
        name = f"{number}-thing.md"
        draft = harness.root / name
        draft.write_text(f"# {title_of(number)}\n{TEXTS['good'].format(number=number)}")
        draft.rename(harness.project / "issues" / name)

    def expected(self, number: int) -> str | None:
        """The expected verdict; None for an issue filed during the campaign, where either is right."""
        return verdict_of(self.issues[number]) if number in self.issues else None


def is_added(number: int) -> bool:
    """Whether an issue was added during the campaign."""
    return number >= FIRST_ADDED and (number - FIRST_ADDED) % APART == 0


def verdict_of(quality: str) -> str:
    return REVISION if quality == "hopeless" else APPROVED


def make_backlog(harness: RunHarness, rng: random.Random, items: int) -> Backlog:
    """Write a backlog of mixed quality; one item in ten is a brief."""
    briefs = max(1, items // 10)
    drawn = [*QUALITIES, *rng.choices(QUALITIES, SHARES, k=items)][: items - briefs]
    backlog = Backlog(
        dict(enumerate(drawn, 1)),
        dict(enumerate(["good", *rng.choices(QUALITIES, SHARES, k=briefs - 1)], FIRST_BRIEF)),
    )
    for number, quality in backlog.issues.items():
        harness.issue(number, quality)
    for number, quality in backlog.briefs.items():
        harness.brief(f"{number}-thing.md", number, quality)
    return backlog


def verdict_documents(project: Path) -> Iterator[Path]:
    """Every document with a verdict."""
    for folder in ("docs/lld", "docs/issues"):
        yield from sorted((project / folder).glob("*/[!.]*.md"))


def filed_issues(project: Path) -> Iterator[tuple[Path, str]]:
    """The issues filed by runs, with the brief each came from."""
    for path in sorted((project / "issues").glob("[!.]*.md")):
        if origin := front_matter(path.read_text("utf-8")).get("origin", ""):
            yield path, origin.strip('"')


def front_matter(text: str) -> dict[str, str]:
    """Parsed independently of the product's code; empty unless the block is complete."""
    head, closed, _ = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not closed:
        return {}
    pairs = (line.partition(": ") for line in head.splitlines())
    return {name: value.strip() for name, _, value in pairs}
