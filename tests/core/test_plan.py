"""Which items run, in what order, and why."""

import re
from dataclasses import replace

import pytest

from agentos.core.errors import NothingMatches
from agentos.core.planning.items import Candidate, Gone, Item, ItemStatus, SkippedFile, SkipReason
from agentos.core.planning.plan import Plan, Selection, gone_item, make_plan, merge_duplicates
from agentos.outputs.plan_text import explain_skipped


def candidate(number: int, status: ItemStatus = ItemStatus.PENDING, *labels: str) -> Candidate:
    item = Item(f"LLD-{number}", "lld", number, "A title", f"issues/{number:03}-title.md", labels=labels)
    return Candidate(item, status)


BACKLOG = [
    candidate(40, ItemStatus.PENDING, "ui"),
    candidate(41, ItemStatus.APPROVED, "ui"),
    replace(candidate(42, ItemStatus.PENDING, "api"), node="N3_review", failed_before=True),
    candidate(43, ItemStatus.UNCHANGED),
    candidate(44, ItemStatus.CHANGED, "ui", "api"),
    candidate(45, ItemStatus.CLOSED),
]


def plan(*words: str, backlog: list[Candidate] | None = None, **fields: object) -> Plan:
    selection = replace(Selection(words=words, everything=not words), **fields)  # type: ignore[arg-type]
    return make_plan(BACKLOG if backlog is None else backlog, selection)


def test_all_selects_pending_and_changed_items_in_order() -> None:
    assert plan().ids == ("LLD-40", "LLD-42", "LLD-44")


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("42", ("LLD-42",)),
        ("042", ("LLD-42",)),
        ("LLD-42", ("LLD-42",)),
        ("lld-42", ("LLD-42",)),
        ("LLD42", ("LLD-42",)),
        ("lld-042", ("LLD-42",)),
        ("#42", ("LLD-42",)),
        ("issues/042-title.md", ("LLD-42",)),
        ("42-44", ("LLD-42", "LLD-43", "LLD-44")),
        ("43-99", ("LLD-43", "LLD-44")),
        ("42..44", ("LLD-42", "LLD-43", "LLD-44")),
        ("LLD-42-44", ("LLD-42", "LLD-43", "LLD-44")),
        ("lld-42..LLD-44", ("LLD-42", "LLD-43", "LLD-44")),
    ],
)
def test_an_item_is_named_by_number_id_range_or_file(word: str, ids: tuple[str, ...]) -> None:
    assert plan(word).ids == ids


def test_a_reversed_range_says_how_to_write_it() -> None:
    with pytest.raises(NothingMatches, match="a range begins with its lower number: 40-44"):
        plan("44-40")
    with pytest.raises(NothingMatches, match="name items by number"):
        plan("ISSUE42")


def test_a_range_leaves_closed_items_out_that_are_not_named_by_themselves() -> None:
    found = plan("44-45")
    assert found.ids == ("LLD-44",) and [one.item.id for one in found.closed] == ["LLD-45"]
    only = plan("45..45")
    assert only.ids == () and [one.item.id for one in only.closed] == ["LLD-45"]
    for words in (("44-45", "45"), ("LLD-45", "44-45")):
        named = plan(*words)
        assert set(named.ids) == {"LLD-44", "LLD-45"} and named.closed == ()


def test_the_numbers_of_a_range_without_an_item_are_told() -> None:
    assert plan("40-45").missing == () and plan("44").missing == ()
    assert plan("38-41", "44-48").missing == ("38-39", "46-48")
    gap = [one for one in BACKLOG if one.item.number != 43]
    assert plan("42-44", "43-45", backlog=gap).missing == ("43",)
    assert plan("42-999999999999").missing == ("46-999999999999",)


def test_a_range_or_number_without_an_item_names_the_skipped_files_that_it_means() -> None:
    skipped = (
        SkippedFile("issues/501.MD", SkipReason.SUFFIX, number=501),
        SkippedFile("issues/LLD-7.md", SkipReason.NO_NUMBER, number=7),
        SkippedFile("issues/524.md", SkipReason.FOLDER, number=524),
    )
    for word, said in {
        "500-503": "issues/501.MD is skipped (not named .md): rename it to end in .md",
        "501": "issues/501.MD is skipped",
        "issues/501.MD": "issues/501.MD is skipped",
        "LLD-7": "issues/LLD-7.md is skipped (no number): give it a number: agentos number",
        "issues/524.md": "issues/524.md is skipped (a folder, not a file)",
    }.items():
        with pytest.raises(NothingMatches, match=re.escape(f"nothing matches {word!r}: {said}")):
            make_plan(BACKLOG, Selection(words=(word,)), skipped)
    assert make_plan(BACKLOG, Selection(words=("45-501",)), skipped).skipped == skipped[:1]


def test_a_name_that_cannot_match_says_why() -> None:
    with pytest.raises(NothingMatches, match="no such file"):
        make_plan(BACKLOG, Selection(words=("issues/nix.md",), absent=("issues/nix.md",)))
    with pytest.raises(NothingMatches, match="separate items by spaces"):
        plan("40,41")


def test_named_items_run_in_the_order_of_naming_and_once_each() -> None:
    assert plan("44", "40-42", "LLD-40").ids == ("LLD-44", "LLD-40", "LLD-42")


@pytest.mark.parametrize("word", ["99", "LLD-99", "90-99", "44-40", "nothing.md", "", "-", "4²"])
def test_an_unknown_name_is_refused_with_the_known_items(word: str) -> None:
    with pytest.raises(NothingMatches, match="LLD-40, LLD-41"):
        plan(word)


def test_an_approved_item_that_is_named_is_listed_as_done() -> None:
    found = plan("41")
    assert found.entries == () and [one.item.id for one in found.done] == ["LLD-41"]


def test_fresh_selects_items_that_need_revision_but_approved_ones_only_by_name() -> None:
    assert plan(fresh=True).ids == ("LLD-40", "LLD-42", "LLD-43", "LLD-44")
    assert plan("41", fresh=True).ids == ("LLD-41",)


def test_only_items_with_all_given_labels_are_selected() -> None:
    assert plan(labels=("ui",)).ids == ("LLD-40", "LLD-44")
    assert plan(labels=("ui", "api")).ids == ("LLD-44",)


def test_an_unknown_label_is_refused_with_the_labels_in_use() -> None:
    with pytest.raises(NothingMatches, match="labels in use: api, ui"):
        plan(labels=("urgent",))


def test_a_known_label_that_nothing_pending_has_gives_an_empty_plan() -> None:
    assert plan(labels=("ui",), backlog=[candidate(1, ItemStatus.APPROVED, "ui")]).ids == ()


def test_failed_selects_the_items_that_failed_in_the_last_run() -> None:
    assert plan(failed=True).ids == ("LLD-42",)


def test_the_limit_counts_items_that_run_not_those_that_another_run_holds() -> None:
    held = replace(BACKLOG[0], held_by="process 4711")
    found = plan(limit=1, backlog=[held, *BACKLOG[1:]])
    assert found.ids == ("LLD-42",)
    assert [one.item.id for one in found.held] == ["LLD-40"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("40", "new"),
        ("42", "failed before, resumes at N3_review"),
        ("43", "needed revision before"),
        ("45", "closed, but named"),
    ],
)
def test_each_entry_says_why_it_runs(word: str, reason: str) -> None:
    assert plan(word).entries[0].reason == reason


def test_the_reason_says_whether_all_or_fresh_selected_an_item() -> None:
    assert plan().entries[-1].reason == "changed since it needed revision"
    assert {entry.reason for entry in plan(fresh=True).entries} == {"starts over"}


def test_two_files_with_one_number_become_one_item_with_a_problem() -> None:
    second = replace(candidate(40), item=replace(candidate(40).item, source="issues/40-other.md"))
    (found,) = merge_duplicates([candidate(40), second])
    assert found.item.source == "issues/040-title.md"
    assert found.item.problems == (
        "number 40 is claimed by issues/040-title.md and issues/40-other.md: give each its own number",
    )


def test_a_file_with_the_number_of_an_approved_item_is_a_problem() -> None:
    first = replace(candidate(40), status=ItemStatus.APPROVED)
    second = replace(first, item=replace(first.item, source="issues/40-other.md"))
    found = merge_duplicates([first, second])
    assert plan(backlog=found).ids == plan("issues/40-other.md", backlog=found).ids == ("LLD-40",)
    closed = [replace(one, status=ItemStatus.CLOSED) for one in (first, second)]
    assert plan(backlog=merge_duplicates(closed)).ids == ()


def test_a_closed_item_runs_only_if_it_is_named_and_has_no_verdict() -> None:
    closed = replace(candidate(45), is_closed=True)
    approved = replace(closed, status=ItemStatus.APPROVED)
    (entry,) = plan("45", backlog=[closed]).entries
    assert entry.reason == "closed, but named" and plan(backlog=[closed, approved]).ids == ()
    assert plan("45", backlog=[approved]).done == (approved,)
    (redo,) = plan("45", backlog=[approved], fresh=True).entries
    assert redo.redo
    (revised,) = plan("45", backlog=[replace(closed, status=ItemStatus.UNCHANGED)]).entries
    assert revised.redo and revised.reason == "needed revision before, closed, but named"


def test_items_with_different_numbers_are_left_unchanged() -> None:
    assert merge_duplicates(BACKLOG) == BACKLOG


def test_a_parked_item_keeps_waiting_even_if_it_is_named() -> None:
    parked = replace(candidate(40), node="N2_human_edit", waits=True)
    for words in ((), ("40",)):
        planned = plan(*words, backlog=[parked, candidate(41)])
        assert "LLD-40" not in planned.ids and [c.item.id for c in planned.parked] == ["LLD-40"]
    assert plan("40", backlog=[parked], fresh=True).ids == ("LLD-40",)


def test_items_that_will_fail_take_no_place_within_the_limit() -> None:
    broken = [replace(candidate(number), problems=("line 1: no heading",)) for number in (38, 41)]
    backlog = [broken[0], candidate(40), broken[1], candidate(42)]
    assert plan(backlog=backlog, limit=2).ids == ("LLD-40", "LLD-42")
    assert plan(backlog=backlog, limit=3).ids == ("LLD-38", "LLD-40", "LLD-42")


def test_a_text_that_has_changed_since_its_checkpoint_starts_over() -> None:
    changed = replace(candidate(40), node="N2_human_edit", is_outdated=True)
    (entry,) = plan(backlog=[changed]).entries
    assert (entry.reason, entry.node) == ("changed since its checkpoint: starts over", None)
    (entry,) = plan(backlog=[replace(changed, decided="approved")]).entries
    assert (entry.reason, entry.dropped) == (
        "approved by a person, but changed since: starts over",
        "approved",
    )


def test_items_that_are_gone_are_named_where_they_would_have_been_selected() -> None:
    parked, failed = gone_item("LLD-50", "lld", Gone.PARKED), gone_item("LLD-51", "lld", Gone.FAILED)
    backlog = [candidate(40), parked, failed]
    assert plan(backlog=[candidate(40), parked]).gone == (parked,)
    assert plan("50", "40", backlog=backlog).gone == (parked,) and plan("40", backlog=backlog).gone == ()
    retried = plan(backlog=backlog, everything=False, failed=True)
    assert retried.gone == (failed,) and retried.ids == ()


def test_an_approved_item_with_a_changed_text_is_named_but_not_redone() -> None:
    changed = replace(candidate(41, ItemStatus.APPROVED, "ui"), changed_since_approval=True)
    backlog = [candidate(40), changed]
    for found in (plan(backlog=backlog), plan("41", backlog=backlog), plan(backlog=backlog, labels=("ui",))):
        assert found.changed == (changed,) and "LLD-41" not in found.ids
    assert plan("40", backlog=backlog).changed == plan("41", backlog=backlog, fresh=True).changed == ()
    told: list[str] = []
    explain_skipped(plan("41", backlog=backlog), told.append)
    assert told == [
        "[COORDINATOR] LLD-41 is approved, but issues/041-title.md has changed since; redo it with --fresh 41"
    ]
    told.clear()
    many = [replace(changed, item=candidate(number).item) for number in range(41, 48)]
    explain_skipped(plan(backlog=many), told.append)
    (line,) = told
    assert line.startswith("[COORDINATOR] 7 approved items have changed since: LLD-41, ")


@pytest.mark.parametrize(
    ("state", "discarded"),
    [
        ({"waits": True}, "a parked draft"),
        ({"waits": True, "edited": True}, "a draft edited by a person"),
        ({"decided": "approved"}, "a person's decision (approved)"),
    ],
)
def test_fresh_says_what_of_a_person_it_drops(state: dict[str, object], discarded: str) -> None:
    parked = replace(candidate(40), node="N2_human_edit", **state)  # type: ignore[arg-type]
    found = plan("40", backlog=[parked], fresh=True)
    assert found.entries[0].reason == f"starts over and drops {discarded}"
    told: list[str] = []
    explain_skipped(found, told.append)
    assert told == [f"[COORDINATOR] LLD-40 starts over: --fresh drops {discarded}"]


def test_a_decision_is_the_reason_why_a_parked_item_resumes() -> None:
    decided = replace(candidate(40), node="N2_human_edit", decided="sent back")
    (entry,) = plan(backlog=[decided]).entries
    assert entry.reason == "sent back by a person, resumes at N2_human_edit"


def test_files_that_are_not_items_are_listed_only_in_a_plan_of_all_items() -> None:
    skipped = (SkippedFile("issues/login.md", SkipReason.NO_NUMBER),)
    assert make_plan(BACKLOG, Selection(everything=True), skipped).skipped == skipped
    assert make_plan(BACKLOG, Selection(labels=("ui",)), skipped).skipped == skipped
    assert make_plan(BACKLOG, Selection(words=("42",)), skipped).skipped == ()
    assert make_plan(BACKLOG, Selection(failed=True), skipped).skipped == ()


def test_an_entry_lists_the_problems_that_will_make_it_fail() -> None:
    broken = replace(candidate(50), problems=("issues/050-title.md: it is empty",))
    twice = merge_duplicates([candidate(51), candidate(51)])
    found = plan(backlog=[broken, *twice]).entries
    assert found[0].problems == broken.problems and "claimed by" in found[1].problems[0]
