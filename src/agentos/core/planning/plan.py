"""Planning: which items a run works on, in what order, and why."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentos.core.errors import NothingMatches
from agentos.core.planning.items import (
    FINISHED,
    SKIP_FIXES,
    Candidate,
    Gone,
    Item,
    ItemRange,
    ItemStatus,
    SkippedFile,
    SkipReason,
    parse_range,
)

# Other ways in which people write an id: LLD42, LLD-042, #42.
_TYPED_ID = re.compile(r"(?:#|(?P<prefix>[A-Za-z]+)-?)(?P<number>[0-9]+)")
LONGEST_WORD = 64


@dataclass(frozen=True, slots=True)
class Selection:
    """The items that the command line selects. `absent` are those of the words that are paths without a file."""

    everything: bool = False
    words: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    limit: int | None = None
    failed: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """An item to run.

    `redo`: it has a verdict and runs again; `node`: where it resumes; `problems`: why it will fail; `dropped`: a person's
    decision on a text that has changed since; `discarded`: the draft or decision that `--fresh` drops; `ignored`: fields
    of its front matter that are probably misspelt.
    """

    item: Item
    reason: str
    redo: bool = False
    node: str | None = None
    problems: tuple[str, ...] = ()
    dropped: str = ""
    discarded: str = ""
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The items to run, those that another run holds or that wait for a person, those named but done or gone, and skipped
    files.

    `changed` are approved items whose text has changed since, some of them also in `done`; they are not redone unasked.
    `closed` are the closed items and `missing` the numbers without an item within the ranges that were named.
    `unlabelled` are the pending items of which `--label` cannot tell whether they have the label. `candidates` counts all items
    of the project, whatever is selected.
    """

    entries: tuple[PlanEntry, ...]
    held: tuple[Candidate, ...] = ()
    done: tuple[Candidate, ...] = ()
    parked: tuple[Candidate, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    gone: tuple[Candidate, ...] = ()
    closed: tuple[Candidate, ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[Candidate, ...] = ()
    unlabelled: tuple[Candidate, ...] = ()
    candidates: int = 0

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(entry.item.id for entry in self.entries)


def make_plan(
    candidates: Sequence[Candidate], selection: Selection, skipped: Iterable[SkippedFile] = ()
) -> Plan:
    """Select and order the items. Raises NothingMatches for a name or label without an item."""
    skipped = tuple(skipped)
    named, ranges = _named(candidates, selection, skipped)
    chosen = named if selection.words else [c for c in candidates if _pending(c, selection)]
    chosen = _labelled(chosen, candidates, selection.labels)
    if selection.failed:
        chosen = [candidate for candidate in chosen if candidate.failed_before]
    closed = [candidate for candidate in chosen if candidate.item.id in ranges.closed]
    chosen = [candidate for candidate in chosen if candidate.item.id not in ranges.closed]
    gone = tuple(candidate for candidate in chosen if candidate.gone)
    chosen = [candidate for candidate in chosen if not candidate.gone]
    done = [c for c in chosen if c.status is ItemStatus.APPROVED and not selection.fresh]
    over = {c.item.id for c in done}
    ready = [c for c in chosen if c.item.id not in over]
    parked = [c for c in ready if c.waits and c.held_by is None and not selection.fresh]
    waiting = {c.item.id for c in parked}
    free = [c for c in ready if c.held_by is None and c.item.id not in waiting]
    return Plan(
        tuple(_entry(candidate, selection) for candidate in _limited(free, selection.limit)),
        held=tuple(c for c in ready if c.held_by is not None),
        done=tuple(done),
        parked=tuple(parked),
        # Skipped files have never run, so --failed does not select them. Of the named words, only ranges do.
        skipped=() if selection.failed else ranges.skipped if selection.words else skipped,
        gone=gone,
        closed=tuple(closed),
        missing=ranges.missing,
        changed=tuple(_changed(done if selection.words else candidates, selection)),
        unlabelled=tuple(_unlabelled(candidates, selection)),
        candidates=len(candidates),
    )


def _changed(candidates: Iterable[Candidate], selection: Selection) -> Iterator[Candidate]:
    """The approved items among these whose text has changed since."""
    for candidate in candidates:
        is_selected = not selection.failed and all(name in candidate.item.labels for name in selection.labels)
        if candidate.changed_since_approval and candidate.status is ItemStatus.APPROVED and is_selected:
            yield candidate


def _unlabelled(candidates: Iterable[Candidate], selection: Selection) -> Iterator[Candidate]:
    if selection.labels and not selection.words and not selection.failed:
        yield from (c for c in candidates if c.has_unknown_labels and _pending(c, selection))


def _limited(free: list[Candidate], limit: int | None) -> list[Candidate]:
    """At most `limit` items, in order. Items that will fail are included only if there is room left."""
    if limit is None:
        return free
    kept = sorted(free, key=lambda candidate: bool(candidate.item.problems or candidate.problems))[:limit]
    ids = {candidate.item.id for candidate in kept}
    return [candidate for candidate in free if candidate.item.id in ids]


def _entry(candidate: Candidate, selection: Selection) -> PlanEntry:
    return PlanEntry(
        candidate.item,
        _reason(candidate, selection),
        _is_redone(candidate, selection),
        None if selection.fresh or candidate.is_outdated else candidate.node,
        (*candidate.item.problems, *candidate.problems),
        candidate.decided if candidate.is_outdated and not selection.fresh else "",
        _discarded(candidate) if selection.fresh else "",
        candidate.ignored,
    )


def _discarded(candidate: Candidate) -> str:
    if candidate.decided:
        return f"a person's decision ({candidate.decided})"
    if candidate.edited:
        return "a draft edited by a person"
    return "a parked draft" if candidate.waits else ""


def _pending(candidate: Candidate, selection: Selection) -> bool:
    if candidate.is_closed:
        return False
    if candidate.status is ItemStatus.UNCHANGED:
        return selection.fresh or candidate.node not in (None, FINISHED)
    return candidate.status in (ItemStatus.PENDING, ItemStatus.CHANGED, ItemStatus.OUTDATED)


def _is_redone(candidate: Candidate, selection: Selection) -> bool:
    over = candidate.status in (ItemStatus.APPROVED, ItemStatus.UNCHANGED)
    return over and (selection.fresh or bool(selection.words))


def _labelled(
    chosen: list[Candidate], candidates: Sequence[Candidate], labels: Iterable[str]
) -> list[Candidate]:
    for label in labels:
        if not any(label in candidate.item.labels for candidate in candidates):
            known = sorted({name for candidate in candidates for name in candidate.item.labels})
            raise NothingMatches(
                f"no item is labelled {label!r}; labels in use: {', '.join(known) or 'none'}"
            )
        chosen = [candidate for candidate in chosen if label in candidate.item.labels]
    return chosen


@dataclass(frozen=True, slots=True)
class _Ranges:
    """What the named ranges contain besides items to run: ids of closed items, numbers without an item, skipped files."""

    closed: frozenset[str]
    missing: tuple[str, ...]
    skipped: tuple[SkippedFile, ...]


def _named(
    candidates: Sequence[Candidate], selection: Selection, skipped: tuple[SkippedFile, ...]
) -> tuple[list[Candidate], _Ranges]:
    """The candidates that the words name. Uses an index, because a shell glob may name thousands of files."""
    index: dict[str | int, list[Candidate]] = {}
    for candidate in candidates:
        item = candidate.item
        identifier = item.id.casefold()
        without_prefix = identifier.partition("-")[2] or identifier
        names: set[str | int] = {item.number, identifier, without_prefix, item.source}
        for name in (*names, *candidate.twins):
            index.setdefault(name, []).append(candidate)
    chosen: dict[str, Candidate] = {}
    by_itself: set[str] = set()
    missing: dict[str, None] = {}
    files: dict[str, SkippedFile] = {}
    for word in selection.words:
        matches = _matching(index, word)
        if not matches and (span := _range(word)):
            matches = [each for each in candidates if span.includes(each.item.id, each.item.number)]
            numbers = {each.item.number for each in matches}
            missing.update(dict.fromkeys(_gaps(span, numbers)))
            files.update((file.source, file) for file in _meant(word, skipped) if file.number not in numbers)
        else:
            by_itself.update(candidate.item.id for candidate in matches)
        if not matches:
            raise NothingMatches(_nothing(word, candidates, skipped, word in selection.absent))
        chosen.update((candidate.item.id, candidate) for candidate in matches)
    closed = {name for name, each in chosen.items() if each.is_closed or each.status is ItemStatus.CLOSED}
    return list(chosen.values()), _Ranges(
        frozenset(closed - by_itself), tuple(missing), tuple(files.values())
    )


def _matching(index: dict[str | int, list[Candidate]], word: str) -> list[Candidate]:
    """The candidates that the word names by itself, not as a range."""
    if len(word) > LONGEST_WORD:
        return index.get(word, [])
    if _is_number(word):
        return index.get(int(word), [])
    if found := index.get(word) or index.get(word.casefold()):
        return found
    typed = _TYPED_ID.fullmatch(word)
    if typed is None:
        return []
    number = int(typed["number"])
    return index.get(f"{typed['prefix'].casefold()}-{number}" if typed["prefix"] else number, [])


def _range(word: str) -> ItemRange | None:
    return parse_range(word) if len(word) <= LONGEST_WORD else None


def _gaps(span: ItemRange, numbers: Iterable[int]) -> list[str]:
    """The numbers of the range that are not among these: `35`, or `60-61` for several in a row."""
    found, first = [], span.first
    for number in (*sorted(numbers), span.last + 1):
        if number > first:
            found.append(str(first) if number == first + 1 else f"{first}-{number - 1}")
        first = number + 1
    return found


def _meant(word: str, skipped: Iterable[SkippedFile]) -> list[SkippedFile]:
    """The skipped files that the word means: by the numbers that their names suggest, or by their path."""
    if len(word) > LONGEST_WORD:
        return [file for file in skipped if file.source == word]
    span, typed = parse_range(word), _TYPED_ID.fullmatch(word)
    if span is None and (typed or _is_number(word)):
        number = int(typed["number"] if typed else word)
        span = ItemRange("", number, number)
    return [
        file
        for file in skipped
        if file.source == word or (span and file.number and span.first <= file.number <= span.last)
    ]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _nothing(word: str, candidates: Sequence[Candidate], skipped: Sequence[SkippedFile], absent: bool) -> str:
    ids = [candidate.item.id for candidate in candidates]
    known = ", ".join(ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    how = "name items by number (42), id, range (40-45) or file"
    span, files = _range(word), _meant(word, skipped)
    if span and span.first > span.last:
        how = f"a range begins with its lower number: {span.last}-{span.first}"
    elif absent:
        how = "no such file"
    elif files and (files[0].source != word or files[0].reason is not SkipReason.NO_NUMBER):
        described = (
            f"{file.source} is skipped ({file.reason}): {SKIP_FIXES[file.reason].format(them='it')}"
            for file in files[:3]
        )
        how = "; ".join(described) + (f"; and {len(files) - 3} more" if len(files) > 3 else "")
    elif "," in word:
        how = "separate items by spaces: 31 32"
    elif word.endswith(".md"):
        how += "; a file needs a number, first in its name (42-title.md) or in its front matter: agentos number gives it one"
    return f"nothing matches {word!r}: {how}; there are: {known or 'none'}"


def _reason(candidate: Candidate, selection: Selection) -> str:
    if selection.fresh:
        discarded = _discarded(candidate)
        return f"starts over and drops {discarded}" if discarded else "starts over"
    reasons = []
    if candidate.failed_before:
        reasons.append("failed before")
    if candidate.decided:
        reasons.append(f"{candidate.decided} by a person")
    if candidate.is_outdated:
        reasons.append(
            "but changed since: starts over" if reasons else "changed since its checkpoint: starts over"
        )
    elif candidate.node:
        reasons.append(f"resumes at {candidate.node}")
    if candidate.status is ItemStatus.CHANGED or _is_redone(candidate, selection):
        reasons.append("needed revision before" if selection.words else "changed since it needed revision")
    if candidate.status is ItemStatus.OUTDATED:
        reasons.append(candidate.status.value)
    if candidate.is_closed or candidate.status is ItemStatus.CLOSED:
        reasons.append("closed, but named")
    return ", ".join(reasons) or "new"


def gone_item(item: str, workflow: str, why: Gone) -> Candidate:
    number = item.rpartition("-")[2]
    known = Item(item, workflow, int(number) if _is_number(number) else 0, "", "")
    return Candidate(known, ItemStatus.PENDING, failed_before=why is Gone.FAILED, gone=why)


def merge_duplicates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of items with the same number, keep one and note the problem on it."""
    by_id: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_id.setdefault(candidate.item.id, []).append(candidate)
    return [_merged(same) for same in by_id.values()]


def _merged(same: list[Candidate]) -> Candidate:
    if len(same) == 1:
        return same[0]
    files = " and ".join(candidate.item.source for candidate in same)
    problem = f"number {same[0].item.number} is claimed by {files}: give each its own number"
    # Pending even if one is approved: it is unclear which of them the document belongs to, so every run reports it.
    closed = all(candidate.status is ItemStatus.CLOSED for candidate in same)
    return replace(
        same[0],
        item=replace(same[0].item, problems=(problem,)),
        status=ItemStatus.CLOSED if closed else ItemStatus.PENDING,
        twins=tuple(candidate.item.source for candidate in same[1:]),
    )
