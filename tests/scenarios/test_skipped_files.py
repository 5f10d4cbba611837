"""Files that are no items are named with a fix, and a plan says which items will fail."""

import json

from .harness import CompletedCommand, RunHarness, snapshot

BODY = "# Login\n\nIt is slow.\n"


def write(harness: RunHarness, *names: str, text: str | bytes = BODY) -> None:
    for name in names:
        (harness.project / "issues" / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def agentos(harness: RunHarness, *words: object, **env: str) -> CompletedCommand:
    return harness.run(*words, program="agentos", **env)


def test_issues_without_a_number_are_named_with_the_fix_and_the_fix_works(harness: RunHarness) -> None:
    write(harness, "fix-login.md", "add-2fa.md", "2026-11-16-x.md", "BIG.MD", "old.markdown", "README.md")
    expected = [
        "3 files skipped: no number: 2026-11-16-x.md, add-2fa.md, fix-login.md; give each a number: agentos number",
        "2 files skipped: not named .md: BIG.MD, old.markdown; rename them to end in .md",
    ]
    done = harness.run("--all", "--offline")
    assert done.code == 0 and done.lines_of("COORDINATOR")[:2] == expected, done.out
    assert done.lines[-1].endswith("See what to do about each: agentos doctor")
    doctor = agentos(harness, "doctor", "--offline")
    assert doctor.code == 3 and "agentos number" in doctor.out
    assert "3 files skipped: no number: 2026-11-16-x.md, add-2fa.md, fix-login.md" in doctor.out
    assert "2 files skipped: not named .md: BIG.MD, old.markdown" in doctor.out

    before = snapshot(harness.project / "issues")
    assert "Would rename 5 issues." in agentos(harness, "number", "--dry-run").out
    assert snapshot(harness.project / "issues") == before
    numbered = agentos(harness, "number")
    assert numbered.code == 0 and "issues/add-2fa.md -> issues/003-add-2fa.md" in numbered.out, numbered.out
    done = harness.run("--all", "--dry-run", "--offline")
    assert "would process 5 items:" in done.out and "skipped" not in done.out


def test_a_run_names_what_it_skips_at_its_start_and_in_its_summary(harness: RunHarness) -> None:
    harness.issue(1)
    write(harness, "fix-login.md")
    done = harness.run("--all", "--offline")
    assert done.code == 0
    assert done.lines_of("COORDINATOR")[0].startswith(
        "1 file skipped: no number: fix-login.md; give it a number"
    )
    assert "[COORDINATOR]   Skipped: 1 file that cannot be an item (issues/fix-login.md)" in done.out
    listed = harness.run("issues/fix-login.md", "--dry-run", "--offline")
    assert listed.code == 5 and "agentos number gives it one" in listed.err


def test_a_range_says_what_it_does_not_run(harness: RunHarness) -> None:
    harness.issue(33)
    harness.issue(36)
    write(harness, "034-done.md", text=f"---\nstate: closed\n---\n{BODY}")
    write(harness, "038-login.MD", "LLD-7.md")
    (harness.project / "issues/524.md").mkdir()
    done = harness.run("33-39", "--dry-run", "--offline")
    assert done.code == 0 and "would process 2 items:" in done.out, done.out
    for line in (
        "1 file skipped: not named .md: 038-login.MD; rename it to end in .md",
        "No item has the number 35, 37-39",
        "LLD-34 is closed, so the range leaves it out; to run it, name it by itself",
    ):
        assert line in done.lines_of("COORDINATOR"), done.out
    assert "LLD-34  closed, but named" in harness.run("34", "--dry-run", "--offline").out
    closed = harness.run("34..34", "--offline")
    assert closed.code == 0 and closed.lines[-1].endswith("name it by itself"), closed.out
    for word, said in {
        "38": "issues/038-login.MD is skipped (not named .md)",
        "LLD-7": "issues/LLD-7.md is skipped (no number): give it a number: agentos number",
        "issues/nix.md": "no such file",
        "issues/524.md": "issues/524.md is skipped (a folder, not a file)",
    }.items():
        refused = harness.run(word, "--dry-run", "--offline")
        assert refused.code == 5 and f"nothing matches {word!r}: {said}" in refused.err, refused.err


def test_issues_in_a_subfolder_are_named_and_left_alone(harness: RunHarness) -> None:
    (harness.project / "issues/backlog").mkdir()
    write(harness, "backlog/7-login.md", "backlog/add-2fa.md")
    names = "issues/backlog/7-login.md, issues/backlog/add-2fa.md"
    line = f"2 files skipped: in a subfolder: {names}; to use them, move them out of there"
    done = harness.run("--all", "--offline")
    assert done.code == 0 and done.lines_of("COORDINATOR")[0] == line, done.out
    doctor = agentos(harness, "doctor", "--offline")
    (found,) = [row for row in doctor.lines if line in row]
    assert found.startswith("ok "), "it may be an archive"
    assert agentos(harness, "number").out == "Every issue has a number.\n"


def test_a_brief_that_is_not_named_md_is_named(harness: RunHarness) -> None:
    folder = harness.project / "ideas/active"
    folder.mkdir(parents=True)
    for name in ("dark.md", "light.markdown"):
        (folder / name).write_text(BODY)
    done = harness.run("--all", "--dry-run", "--offline", program="issue-workflow")
    assert "would process 1 item:" in done.out and "1 file skipped: not named .md: light.markdown" in done.out


def test_misspelt_fields_and_unreadable_labels_are_named_before_a_run(harness: RunHarness) -> None:
    harness.issue(40, "good", "bug")
    write(harness, "041-state.md", text=f"---\nState: closed\n---\n{BODY}")
    write(harness, "042-labels.md", text=f"---\nlables: [bug]\n---\n{BODY}")
    write(harness, "043-yaml.md", text=f"---\nlabels: [bug\n---\n{BODY}")
    write(harness, "044-other.md", text=f"---\npriority: high\n---\n{BODY}")
    done = harness.run("--all", "--dry-run", "--offline")
    state = "issues/041-state.md, line 2: 'State' in its front matter is ignored: the field is called state"
    labels = (
        "issues/042-labels.md, line 2: 'lables' in its front matter is ignored: the field is called labels"
    )
    assert [line for line in done.lines_of("COORDINATOR") if "is ignored" in line] == [state, labels]
    doctor = agentos(harness, "doctor", "--offline").out
    assert f"WARN issues       {state}\n" in doctor and f"WARN issues       {labels}\n" in doctor
    bugs = harness.run("--all", "--label", "bug", "--dry-run", "--offline")
    line = "1 file has labels that cannot be read: LLD-43; see why: agentos doctor"
    assert "would process 1 item:" in bugs.out and line in bugs.lines_of("COORDINATOR"), bugs.out


def test_doctor_names_approved_items_whose_issue_has_changed(harness: RunHarness) -> None:
    path = harness.issue(40)
    assert harness.run("--all", "--offline").code == 0
    path.write_text(f"{path.read_text()}\n- Also by mail.\n")
    doctor = agentos(harness, "doctor", "--offline")
    line = "LLD-40 is approved, but issues/040-thing.md has changed since; redo it with --fresh 40"
    assert doctor.code == 0 and f"WARN issues       {line}\n" in doctor.out, doctor.out


def test_dry_run_and_doctor_report_what_will_fail(harness: RunHarness) -> None:
    harness.issue(40)
    write(harness, "041-latin.md", text="# Größe\n\nEs gibt nur eine.\n".encode("latin-1"))
    write(harness, "042-yaml.md", text=f"---\nlabels: [\n---\n{BODY}")
    write(harness, "043-open.md", text=f"---\nlabels: [ui]\n{BODY}")
    write(harness, "044-one.md", "044-two.md")
    write(harness, "045-state.md", text=f"---\nstate: clsoed\n---\n{BODY}")
    write(harness, "046-status.md", text=f"---\nstatus: closed\n---\n{BODY}")
    write(harness, "hidden.md", text=f"---\nnumber: 45\n{BODY}")
    problems = {
        41: "issues/041-latin.md, line 1: it is not UTF-8 (byte 0xf6)",
        42: "issues/042-yaml.md, line 3: its YAML front matter cannot be read",
        43: "issues/043-open.md, line 1: the front matter opened by --- is not closed",
        44: "number 44 is claimed by issues/044-one.md and issues/044-two.md",
        45: "issues/045-state.md, line 2: state = 'clsoed' in its front matter is not open or closed",
    }
    done = harness.run("--all", "--dry-run", "--offline")
    for number, problem in problems.items():
        at = next(place for place, line in enumerate(done.lines) if line.startswith(f"  - LLD-{number} "))
        assert done.lines[at + 1].startswith(f"      will fail: {problem}"), done.out
    assert "5 of 7 items will fail: LLD-41, LLD-42, LLD-43, LLD-44, LLD-45" in done.out
    assert "1 file skipped: no readable number: hidden.md" in done.out
    rows = [json.loads(line) for line in harness.run("--all", "--dry-run", "--offline", "--json").lines]
    planned = {row["item"]: row["problems"] for row in rows if row["type"] == "item_planned"}
    assert [item for item, found in planned.items() if not found] == ["LLD-40", "LLD-46"]
    assert [row["file"] for row in rows if row["type"] == "file_skipped"] == ["issues/hidden.md"]
    doctor = agentos(harness, "doctor", "--offline")
    assert doctor.code == 3 and "Everything is ready" not in doctor.out
    (ignored,) = [line for line in doctor.lines if "issues/046-status.md, line 2: 'status' in its" in line]
    assert ignored.startswith("WARN ")
    for problem in (
        *problems.values(),
        "issues/hidden.md, line 1: the front matter opened by --- is not closed",
    ):
        assert problem in doctor.out, doctor.out
    assert doctor.out.count("a run cannot use it: correct it, or move it out of issues/") == 1, (
        "one fix for all"
    )


def test_a_large_issue_is_named_with_its_cost_before_it_is_paid_for(harness: RunHarness) -> None:
    harness.issue(40)
    write(harness, "041-log.md", text=f"# The log\n\n{'It is slow. ' * 70_000}\n")
    said = "issues/041-log.md is large: it adds about 210,00"
    done = harness.run("--all", "--dry-run", "--offline")
    assert done.code == 0 and said in done.out and "040" not in done.out, done.out
    rows = [json.loads(line) for line in harness.run("--all", "--dry-run", "--offline", "--json").lines]
    sizes = {row["item"]: row["source_tokens"] for row in rows if row["type"] == "item_planned"}
    assert sizes["LLD-41"] > 210_000 > 1000 > sizes["LLD-40"] > 0
    doctor = agentos(harness, "doctor", "--offline")
    (found,) = [line for line in doctor.lines if said in line]
    assert found.startswith("WARN ") and doctor.code == 0


def test_an_unknown_provider_in_a_role_fails_the_dry_run_and_doctor_as_it_fails_the_run(
    harness: RunHarness,
) -> None:
    harness.issue(1)
    (harness.project / "agentos.toml").write_text('reviewer = "mistral/large"\n')
    said = "reviewer = 'mistral/large': unknown provider; write it as provider/model"
    dry = harness.run("--all", "--dry-run")
    assert dry.code == 3 and f"the run would not start: {said}" in dry.out, dry.out
    assert "- LLD-1 " in dry.out, "the plan is still shown"
    assert (
        dry.lines[-1] == "[COORDINATOR] Fix the problems above first. To start the run, leave out --dry-run."
    )
    for env in ({}, {"GEMINI_API_KEY": "example-key-9f31"}):
        doctor = agentos(harness, "doctor", **env)
        assert doctor.code == 3 and said in doctor.out, doctor.out


def test_doctor_says_nothing_about_broken_issues_that_no_run_takes(harness: RunHarness) -> None:
    write(harness, "001-closed.md", text=f"---\nstate: closed\nnumber: none\n---\n{BODY}")
    write(harness, "002-done.md", text="")
    design = harness.project / "docs/lld/active/LLD-002.md"
    design.parent.mkdir(parents=True)
    design.write_text("# Design\n")
    doctor = agentos(harness, "doctor", "--offline")
    assert doctor.code == 0, doctor.out


def test_numbering_without_a_place_for_issues_says_what_to_do(harness: RunHarness) -> None:
    (harness.project / "issues").rmdir()
    done = agentos(harness, "number")
    assert done.code == 3 and "has no issues folder" in done.err and "agentos init" in done.err


def test_failed_items_whose_files_are_gone_are_named(harness: RunHarness) -> None:
    paths = [harness.issue(number) for number in (1, 2, 3)]
    for path in paths:
        path.write_text("")
    assert harness.run("--all", "--offline").code == 1
    paths[0].unlink()
    paths[1].rename(paths[1].with_name("022-thing.md"))
    expected = (
        "[COORDINATOR] LLD-1, LLD-2 failed in the last run, but are no longer items: "
        "their file is gone or has another number"
    )
    planned = harness.run("--failed", "--dry-run")
    assert expected in planned.lines and "would process 1 item:" in planned.out
    program = ("--failed", "--", "false", "{item}")
    assert agentos(harness, "exec", "a", "b", *program[1:]).code == 1
    left = agentos(harness, "exec", "b", *program)
    assert "[COORDINATOR] Failed in the last run, but not among these items: a" in left.lines


def test_suggested_commands_name_the_project_where_it_would_not_be_found(harness: RunHarness) -> None:
    issues = harness.root / "my shop" / "issues"
    issues.mkdir(parents=True)
    (issues / "thing.md").write_text(BODY)
    words, option = ("--repo", "../my shop"), "--repo '../my shop'"
    planned = harness.run("--all", "--dry-run", *words)
    assert f"give it a number: agentos number {option}" in planned.out
    assert planned.lines[-1].endswith(f"See what to do about each: agentos doctor {option}")
    assert f"agentos number {option}" in agentos(harness, "doctor", "--offline", *words).out
    numbered = agentos(harness, "number", *words)
    assert numbered.lines[-1] == f"Renamed 1 issue. See what would run: lld-workflow --all --dry-run {option}"
    ready = agentos(harness, "doctor", "--offline", *words)
    start = f"lld-workflow --all --parallel {option} --offline"
    assert ready.lines[-1] == f"Everything is ready. Start with: {start}"
