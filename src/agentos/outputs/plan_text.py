"""Says what a plan leaves out and why: skipped files, items that do not run. Warns of items that will fail or are large."""

from collections.abc import Callable, Mapping, Sequence

from agentos.core.errors import NothingMatches
from agentos.core.planning.items import SKIP_FIXES, Candidate, Gone, Item, SkippedFile, SkipReason
from agentos.core.planning.plan import Plan, PlanEntry, Selection
from agentos.outputs.console import COORDINATOR
from agentos.outputs.format import count, prefixed

MAX_NAMED = 5
MAX_SKIPPED_NAMED = 10
LARGE_SOURCE = 20_000  # tokens
_FIRST_FILES = {
    "lld": ("issues", "issues/1-dark-mode.md"),
    "issue": ("briefs", "ideas/active/1-dark-mode.md"),
}
Say = Callable[[str], None]


def explain_empty_plan(plan: Plan, selection: Selection, say: Say, repo: str = "", workflow: str = "") -> int:
    """Say why nothing runs, and in the last line what to type next, with `repo` appended; returns the exit code.

    `workflow` is given if its items are files of the project.
    """
    explain_skipped(plan, say, repo)
    if plan.done or plan.parked or plan.closed:
        return 0
    if plan.gone and not plan.held:
        return NothingMatches.exit_code if selection.words else 0
    if plan.held:
        if len(plan.held) <= MAX_NAMED:
            say(f"{COORDINATOR} List runs: agentos runs")
    elif selection.failed:
        say(
            f"{COORDINATOR} No selected item failed in the last run. To run every pending item, replace --failed with --all"
        )
    elif selection.labels:
        labels = ", ".join(selection.labels)
        say(f"{COORDINATOR} Nothing is pending with label {labels}. See what was done: agentos status")
    elif plan.skipped:
        say(
            f"{COORDINATOR} Nothing is pending but the skipped files. See what to do about each: agentos doctor{repo}"
        )
    elif not plan.candidates and workflow in _FIRST_FILES:
        what, file = _FIRST_FILES[workflow]
        say(
            f"{COORDINATOR} Nothing is pending: there are no {what}. Write one, such as {file}, or type: agentos init"
        )
    else:
        say(f"{COORDINATOR} Nothing is pending. See what was done: agentos status")
    return 0


def skipped_lines(
    skipped: Sequence[SkippedFile], repo: str = "", fixes: Mapping[SkipReason, str] = SKIP_FIXES
) -> list[str]:
    """One line for each reason why files are not items: how many, which, and how to make items of them.

    `repo` is what to append to a command so that it finds the project.
    """
    lines = []
    for reason, fix in fixes.items():
        sources = [file.source for file in skipped if file.reason is reason]
        names = (
            sources if reason is SkipReason.SUBFOLDER else [source.rpartition("/")[2] for source in sources]
        )
        if names:
            fix = fix.format(them="it" if len(names) == 1 else "each" if "number" in fix else "them")
            fix += repo if "agentos" in fix else ""
            lines.append(f"{count(len(names), 'file')} skipped: {reason}: {_some_of(names)}; {fix}")
    return lines


def failing_lines(entries: Sequence[PlanEntry]) -> list[str]:
    """What a dry run says about the items that will fail; the reasons are listed below each item."""
    failing = [entry.item.id for entry in entries if entry.problems]
    if not failing:
        return []
    return [
        f"{len(failing)} of {count(len(entries), 'item')} will fail: {_some_of(failing)}; see the reasons above"
    ]


def large_lines(entries: Sequence[PlanEntry]) -> list[str]:
    """The items whose text makes every call expensive."""
    items = sorted((entry.item for entry in entries), key=lambda item: -item.source_tokens)
    large = [item for item in items if item.source_tokens > LARGE_SOURCE]
    lines = [
        f"{item.source} is large: it adds about {item.source_tokens:,} tokens to every call; shorten it, or limit "
        "the cost with --budget"
        for item in large[:MAX_NAMED]
    ]
    if more := large[MAX_NAMED:]:
        lines.append(
            f"{count(len(more), 'more item')} over {LARGE_SOURCE:,} tokens: {_some_of([item.id for item in more])}"
        )
    return lines


def ignored_lines(entries: Sequence[PlanEntry]) -> list[str]:
    """Front matter whose fields are probably misspelt, such as `status: closed`."""
    found = [text for entry in entries for text in entry.ignored]
    more = len(found) - MAX_NAMED
    return found[:MAX_NAMED] + (
        [f"{count(more, 'more field')} ignored for the same reason"] if more > 0 else []
    )


def _unlabelled_lines(unlabelled: Sequence[Candidate], repo: str) -> list[str]:
    """The files that `--label` cannot judge."""
    if not unlabelled:
        return []
    names = _some_of([candidate.item.id for candidate in unlabelled])
    files = "1 file has" if len(unlabelled) == 1 else f"{len(unlabelled)} files have"
    return [
        f"{files} labels that cannot be read: {names}; see why: agentos doctor{repo}",
    ]


def _some_of(names: Sequence[str]) -> str:
    shown, more = names[:MAX_SKIPPED_NAMED], len(names) - MAX_SKIPPED_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def explain_skipped(plan: Plan, say: Say, repo: str = "") -> None:
    """Name the files that are not items, the items that are large, and the selected ones that do not run.

    Those that do not run are named if they are few, otherwise counted.
    """
    for line in (
        *skipped_lines(plan.skipped, repo),
        *_range_lines(plan),
        *gone_lines(plan.gone, repo),
        *_dropped_lines(plan.entries),
        *_discarded_lines(plan.entries),
        *changed_lines(plan.changed),
        *_unlabelled_lines(plan.unlabelled, repo),
        *ignored_lines(plan.entries),
        *large_lines(plan.entries),
    ):
        say(prefixed(COORDINATOR, line))
    _say_each_or_count(
        plan.held,
        lambda skipped: f"{skipped.item.id} is being worked on by {skipped.held_by}",
        "items are being worked on by other runs; list runs: agentos runs",
        say,
    )
    _say_each_or_count(
        [candidate for candidate in plan.done if candidate not in plan.changed],
        lambda skipped: f"{skipped.item.id} is already approved; redo it with --fresh {_word(skipped.item)}",
        "items are already approved; redo them with --fresh",
        say,
    )
    _say_each_or_count(
        plan.parked,
        lambda skipped: _waiting(skipped, repo),
        f"items are waiting for a person; list them: agentos review{repo}",
        say,
    )


def _range_lines(plan: Plan) -> list[str]:
    """The closed items and the missing numbers in ranges that the user named."""
    lines = []
    if plan.missing:
        lines.append(f"No item has the number {_some_of(plan.missing)}")
    if plan.closed:
        ids = [candidate.item.id for candidate in plan.closed]
        verb, them, one = ("is", "it", "it") if len(ids) == 1 else ("are", "them", "one")
        lines.append(
            f"{_some_of(ids)} {verb} closed, so the range leaves {them} out; to run {one}, name {one} by itself"
        )
    return lines


def gone_lines(gone: Sequence[Candidate], repo: str = "") -> list[str]:
    """The items that are no longer there, each with what to do about it."""
    failed = [candidate.item.id for candidate in gone if candidate.gone is Gone.FAILED]
    lines = [
        f"{candidate.item.id} is parked, but its file is gone: restore it, or drop the item with: "
        f"agentos review {candidate.item.id} --reject{repo}"
        for candidate in gone
        if candidate.gone is Gone.PARKED
    ]
    if failed:
        verb = "is no longer an item: its" if len(failed) == 1 else "are no longer items: their"
        lines.append(
            f"{_some_of(failed)} failed in the last run, but {verb} file is gone or has another number"
        )
    return lines


def _dropped_lines(entries: Sequence[PlanEntry]) -> list[str]:
    return [
        f"{entry.item.id} was {entry.dropped} by a person, but {entry.item.source} has changed since: "
        "it starts over, without that decision"
        for entry in entries
        if entry.dropped
    ]


def _discarded_lines(entries: Sequence[PlanEntry]) -> list[str]:
    found = [entry for entry in entries if entry.discarded]
    if len(found) > MAX_NAMED:
        names = _some_of([entry.item.id for entry in found])
        return [f"--fresh drops the drafts and decisions of {len(found)} parked items: {names}"]
    return [f"{entry.item.id} starts over: --fresh drops {entry.discarded}" for entry in found]


def changed_lines(changed: Sequence[Candidate]) -> list[str]:
    """The approved items whose text has changed since."""
    if len(changed) > MAX_NAMED:
        names = _some_of([candidate.item.id for candidate in changed])
        return [
            f"{len(changed)} approved items have changed since: {names}; redo them with --fresh and their numbers"
        ]
    return [
        f"{item.id} is approved, but {item.source} has changed since; redo it with --fresh {_word(item)}"
        for item in (candidate.item for candidate in changed)
    ]


def _word(item: Item) -> str:
    """The shortest word that selects the item: its number, or its name if it has none."""
    return item.id.partition("-")[2] or item.id


def _waiting(parked: Candidate, repo: str) -> str:
    item = parked.item
    if parked.is_outdated:
        return f"{item.id} is waiting for a person, but {item.source} has changed since: redo it with --fresh {_word(item)}"
    return f"{item.id} is waiting for a person: agentos review {item.id}{repo}"


def _say_each_or_count(
    skipped: Sequence[Candidate], describe: Callable[[Candidate], str], many: str, say: Say
) -> None:
    if len(skipped) > MAX_NAMED:
        say(prefixed(COORDINATOR, f"{len(skipped)} {many}"))
        return
    for candidate in skipped:
        say(prefixed(COORDINATOR, describe(candidate)))
