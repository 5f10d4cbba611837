"""A backlog for a campaign, and what must become of it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.harness import TEXTS, RunHarness, title_of

QUALITIES = ("good", "weak", "hopeless")
SHARES = (60, 25, 15)
FIRST_BRIEF = 5001
FIRST_ADDED, APART = 8000, 500
"""Far enough apart for the numbers that filed issues get, which follow the highest there is."""
APPROVED, REVISION = "approved", "needs revision"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number -> quality, of the issues and of the briefs that were there from the beginning."""

    issues: dict[int, str]
    briefs: dict[int, str]

    def add(self, harness: RunHarness) -> None:
        """One issue more, whole at every moment."""
        number = FIRST_ADDED + APART * sum(map(is_added, self.issues))
        self.issues[number] = "good"
        name = f"{number}-thing.md"
        draft = harness.root / name
        draft.write_text(f"# {title_of(number)}\n{TEXTS['good'].format(number=number)}")
        draft.rename(harness.project / "issues" / name)

    def expected(self, number: int) -> str | None:
        """The verdict of an issue; None for one that was filed on the way, where either may be right."""
        return verdict_of(self.issues[number]) if number in self.issues else None


def is_added(number: int) -> bool:
    """Whether an issue came on the way, and is neither of the backlog nor filed."""
    return number >= FIRST_ADDED and (number - FIRST_ADDED) % APART == 0


def verdict_of(quality: str) -> str:
    return REVISION if quality == "hopeless" else APPROVED


def make_backlog(harness: RunHarness, dice: random.Random, items: int) -> Backlog:
    """One of ten is a brief; the qualities are mixed, and each has at least one issue if there is room."""
    briefs = max(1, items // 10)
    drawn = [*QUALITIES, *dice.choices(QUALITIES, SHARES, k=items)][: items - briefs]
    backlog = Backlog(
        dict(enumerate(drawn, 1)),
        dict(enumerate(["good", *dice.choices(QUALITIES, SHARES, k=briefs - 1)], FIRST_BRIEF)),
    )
    for number, quality in backlog.issues.items():
        harness.issue(number, quality)
    for number, quality in backlog.briefs.items():
        harness.brief(f"{number}-thing.md", number, quality)
    return backlog


def verdict_documents(project: Path) -> Iterator[Path]:
    """Every document that carries a verdict, wherever it lies."""
    for folder in ("docs/lld", "docs/issues"):
        yield from sorted((project / folder).glob("*/[!.]*.md"))


def filed_issues(project: Path) -> Iterator[tuple[Path, str]]:
    """The issues that a run has filed, with the brief that each came from."""
    for path in sorted((project / "issues").glob("[!.]*.md")):
        if origin := front_matter(path.read_text("utf-8")).get("origin", ""):
            yield path, origin.strip('"')


def front_matter(text: str) -> dict[str, str]:
    """Read by other code than that which wrote it; nothing unless it is opened and closed."""
    head, closed, _ = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not closed:
        return {}
    pairs = (line.partition(": ") for line in head.splitlines())
    return {name: value.strip() for name, _, value in pairs}
