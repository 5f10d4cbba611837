"""`agentos exec --worktree` and `--copy`: every item in a folder of its own, with real git and real processes."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from agentos.core.planning.exec_command import WorkspaceKind, WorkspaceSpec
from agentos.exec.copies import Copies
from agentos.exec.workspace import WorkspaceError, claim_name, recorded_items
from agentos.exec.worktrees import Worktrees, worktree_spec

from .github import REPOSITORY, TOKEN, FakeGitHub
from .harness import CompletedCommand, RunHarness, wait_until

AGENT = """#!/bin/sh
# usage: agent ITEM; appends to the shared file, then executes the text of the item
echo "line by $AGENTOS_ITEM_ID" >> shared.txt
. "$1"
"""


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
    found = subprocess.run(
        ["git", "-C", str(folder), *identity, *args], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.fixture
def project(harness: RunHarness) -> Path:
    root = harness.project
    (root / "agent").write_text(AGENT)
    (root / "agent").chmod(0o755)
    (root / "shared.txt").write_text("".join(f"{number}\n" for number in range(30)))
    (root / "work").mkdir()
    for name in "abc":
        (root / "work" / f"{name}.sh").write_text(f"echo {name} > {name}.txt\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "Start")
    return root


def exec_(harness: RunHarness, *args: object) -> CompletedCommand:
    return harness.run(
        "exec", "--worktree", "--items", "work/*.sh", *args, "--", "./agent", "./{item}", program="agentos"
    )


def worktrees(harness: RunHarness, *args: object) -> CompletedCommand:
    return harness.run("worktrees", *args, program="agentos")


def states(harness: RunHarness) -> dict[str, dict[str, object]]:
    return {state["item"]: state for state in json.loads(worktrees(harness, "--json").out)["worktrees"]}


def test_three_agents_that_edit_one_file_end_on_three_clean_branches(
    harness: RunHarness, project: Path
) -> None:
    done = exec_(harness, "--parallel", "3")
    assert done.code == 0
    assert "Saved on branch agentos/a: 2 files changed (+2 -0), no conflicts" in done.lines_of("a")
    assert done.lines_of("COORDINATOR")[-1] == "See what the items changed: agentos worktrees"
    for name in "abc":
        assert git(project, "show", f"agentos/{name}:shared.txt").endswith(f"29\nline by {name}")
    assert git(project, "status", "--porcelain") == "" and "line" not in (project / "shared.txt").read_text()


def test_the_subject_of_a_commit_names_the_program_without_its_folder(
    harness: RunHarness, project: Path
) -> None:
    command = ("exec", "--worktree", "work/a.sh", "--", project / "agent", "./{item}")
    assert harness.run(*command, program="agentos").code == 0
    assert git(project, "log", "-1", "--format=%s", "agentos/a") == "a: agent"


def test_branches_are_merged_in_order_and_a_conflict_changes_nothing(
    harness: RunHarness, project: Path
) -> None:
    exec_(harness)
    merged = worktrees(harness, "merge")
    assert merged.code == 1 and merged.out.splitlines() == ["Merged a"]
    assert "Not merged: agentos/b conflicts in shared.txt" in merged.err
    assert git(project, "status", "--porcelain") == "" and (project / "a.txt").exists()
    assert states(harness)["b"]["conflicts"] == ["shared.txt"] and states(harness)["a"]["is_merged"]
    pruned = worktrees(harness, "prune")
    assert pruned.out.splitlines()[-1] == "Removed 1 worktree, kept 2." and list(states(harness)) == [
        "b",
        "c",
    ]
    assert worktrees(harness, "prune", "b", "--force").code == 0 and list(states(harness)) == ["c"]
    assert git(project, "branch", "--format=%(refname:short)").split() == ["agentos/c", "main"]


def test_a_locked_worktree_is_kept_and_the_command_that_unlocks_it_named(
    harness: RunHarness, project: Path
) -> None:
    exec_(harness)
    worktrees(harness, "merge", "a")
    path = str(states(harness)["a"]["path"])
    git(project, "worktree", "lock", path, "--reason", "mine")
    kept = worktrees(harness, "prune", "a")
    assert f"a is locked; unlock it: git worktree unlock {path}" in kept.err and Path(path).exists()
    git(project, "worktree", "unlock", path)
    assert worktrees(harness, "prune", "a").code == 0 and not Path(path).exists()


@pytest.mark.slow
def test_a_failed_item_continues_in_its_own_worktree(harness: RunHarness, project: Path) -> None:
    (project / "work" / "a.sh").write_text("test -f half.txt || { echo half > half.txt; exit 3; }\n")
    git(project, "commit", "--quiet", "--all", "-m", "Fail once")
    assert exec_(harness).code == 1
    assert states(harness)["a"]["uncommitted"] == 2
    kept = worktrees(harness, "prune")
    assert "Kept: a has 2 uncommitted files" in kept.err
    again = exec_(harness)
    assert again.code == 0 and git(project, "show", "agentos/a:half.txt") == "half"
    assert git(project, "show", "agentos/a:shared.txt").count("line by a") == 2


def test_fresh_never_drops_unmerged_work(harness: RunHarness, project: Path) -> None:
    exec_(harness)
    before = git(project, "rev-parse", "agentos/a")
    again = exec_(harness, "--fresh")
    assert again.code == 1 and "is not merged into main" in "\n".join(again.lines_of("a"))
    assert git(project, "rev-parse", "agentos/a") == before


def test_a_killed_run_resumes_in_the_same_worktree(harness: RunHarness, project: Path) -> None:
    script = "test -f half.txt && exit 0; echo half > half.txt; git add half.txt; : > $(git rev-parse --git-path index.lock)\nsleep 60\n"
    (project / "work" / "a.sh").write_text(script)
    git(project, "commit", "--quiet", "--all", "-m", "Hang once")
    running = harness.start("exec", "--worktree", "work/a.sh", "--", "./agent", "./{item}", program="agentos")
    home = harness.home / "worktrees"
    wait_until(lambda: any(home.glob("*/a/half.txt")) and any(project.glob(".git/worktrees/a/index.lock")))
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    done = harness.run("exec", "--worktree", "work/a.sh", "--", "./agent", "./{item}", program="agentos")
    assert done.code == 0, done.out
    assert git(project, "show", "agentos/a:half.txt") == "half"


def test_an_item_that_git_does_not_know_is_named_by_its_place_in_the_project(
    harness: RunHarness, project: Path
) -> None:
    (project / "work" / "new.sh").write_text("echo new > new.txt\n")
    done = harness.run(
        "exec", "--worktree", "work/new.sh", "work/a.sh", "--", "sh", "-c", 'echo "got $1"', "sh", "{item}",
        program="agentos",
    )  # fmt: skip
    assert f"got {project / 'work' / 'new.sh'}" in done.lines_of("new")
    assert "got work/a.sh" in done.lines_of("a")


@pytest.mark.slow
def test_a_folder_without_git_is_told_about_copies_and_merges_them(harness: RunHarness) -> None:
    root = harness.project
    (root / "shared.txt").write_text("one\n")
    (root / "gone.txt").write_text("gone\n")
    os.mkfifo(root / "pipe")
    refused = harness.run("exec", "--worktree", "a", "--", "true", program="agentos")
    assert refused.code == 3 and "use --copy" in refused.err
    command = ("sh", "-c", 'echo "$1" >> shared.txt; echo "$1" > "$1.txt"; rm -f gone.txt', "sh", "{item}")
    done = harness.run("exec", "--copy", "a", "b", "-j", "2", "--", *command, program="agentos")
    assert done.code == 0 and (root / "shared.txt").read_text() == "one\n"
    merged = worktrees(harness, "merge")
    assert merged.code == 1 and merged.out.splitlines() == ["Merged a"]
    assert "b changed files that have changed in the project since: shared.txt" in merged.err
    assert (root / "shared.txt").read_text() == "one\na\n" and (root / "a.txt").exists()
    assert not (root / "gone.txt").exists() and not (root / "b.txt").exists()
    pruned = worktrees(harness, "prune")
    assert pruned.out.splitlines() == ["Removed 1 worktree, kept 1."]


@pytest.mark.slow
def test_a_branch_is_pushed_and_gets_one_pull_request(
    harness: RunHarness, project: Path, tmp_path: Path
) -> None:
    git(project, "init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    git(project, "remote", "add", "origin", str(tmp_path / "origin.git"))
    exec_(harness, "--limit", "1")
    with FakeGitHub().serve() as github:
        harness.extra_env.update(GITHUB_TOKEN=TOKEN, GITHUB_API_URL=github.url)
        refused = worktrees(harness, "pr", "a")
        assert refused.code == 3 and "is not on GitHub" in refused.err
        (project / "agentos.toml").write_text(f'github = "{REPOSITORY}"\n')
        harness.extra_env["AGENTOS_TRUST"] = "1"
        for _ in range(2):
            opened = worktrees(harness, "pr", "a")
            assert opened.out.strip() == f"https://github.example/{REPOSITORY}/pull/1"
        assert [(pull["head"]["ref"], pull["base"]) for pull in github.pulls] == [("agentos/a", "main")]
    assert git(tmp_path / "origin.git", "show", "agentos/a:a.txt") == "a"


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["--worktree", "--copy"])
def test_items_of_one_name_in_two_folders_have_folders_of_their_own(
    harness: RunHarness, project: Path, isolation: str
) -> None:
    for folder in ("shop", "blog"):
        (project / folder).mkdir()
        (project / folder / "login.sh").write_text(f"ls *.txt; echo >> {folder}.txt\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "Two folders")

    def run(folder: str) -> CompletedCommand:
        items = ("--items", f"{folder}/*.sh", "--parallel", "1")
        return harness.run("exec", isolation, *items, "--", "./agent", "./{item}", program="agentos")

    assert run("shop").code == 0
    second = run("blog")
    assert second.code == 0 and "shop.txt" not in second.lines_of("login"), second.out
    found = {str(state["source"]): str(state["item"]) for state in states(harness).values()}
    assert found["shop/login.sh"] == "login" and re.fullmatch("login-[0-9a-f]{8}", found["blog/login.sh"])
    (project / "blog" / "login.sh").write_text("cat blog.txt; ls *.txt\n")
    harness.run("worktrees", "prune", "login", "--force", program="agentos")
    third = harness.run(
        "exec", isolation, "blog/login.sh", "--", "sh", "-c", "ls; : {item}", program="agentos"
    )
    assert "blog.txt" in third.lines_of("login"), "it continues in its own folder, also when the id is free"


def test_items_whose_ids_lose_their_letters_have_names_of_their_own(tmp_path: Path) -> None:
    names = [claim_name(tmp_path / "w", "1", source) for source in ("альфа 1.md", "бета 1.md")]
    assert names[0] == "1" and names[1].startswith("1-") and len(set(names)) == 2
    assert names == [claim_name(tmp_path / "w", "1", source) for source in ("альфа 1.md", "бета 1.md")]
    assert len(claim_name(tmp_path / "w", "x" * 64, "one")) == 64
    assert len(claim_name(tmp_path / "w", "x" * 64, "two")) == 64


@pytest.mark.parametrize("submodule", [False, True])
def test_git_runs_no_program_that_a_nested_repository_names(
    harness: RunHarness, project: Path, tmp_path: Path, submodule: bool
) -> None:
    """Such a repository may come from a program in a sandbox, and git runs outside of it."""
    if submodule:
        commit = git(project, "rev-parse", "HEAD")
        git(project, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
        (project / ".gitmodules").write_text('[submodule "sub"]\npath = sub\nurl = x\nignore = none\n')
        git(project, "add", ".gitmodules")
        git(project, "commit", "--quiet", "-m", "Add a submodule")
    worktrees = Worktrees(worktree_spec(project, tmp_path / "worktrees"))
    path, taken = worktrees.open("a").path, tmp_path / "taken"
    nested = path / "sub"
    nested.mkdir(exist_ok=True)
    git(nested, "init", "--quiet")
    (nested / "file").write_text("one")
    git(nested, "add", "--all")
    git(nested, "commit", "--quiet", "-m", "Nested")
    (nested / "file").write_text("two")
    (nested / ".gitattributes").write_text("* filter=x\n")
    git(nested, "config", "filter.x.clean", f"touch '{taken}'; cat")
    (path / "mine.txt").write_text("mine")

    state = worktrees.save("a", "Save")

    worktrees.save("a", "Save again")
    assert not taken.exists()
    assert (state.files, state.uncommitted, state.left_out) == (1, 0, ("sub",))
    assert git(project, "diff", "--name-only", "main", "agentos/a") == "mine.txt"
    with pytest.raises(WorkspaceError, match="a git repository of its own, sub"):
        worktrees.remove("a")
    assert not taken.exists()
    worktrees.remove("a", force=True)


def test_a_repository_that_a_program_makes_in_its_copy_is_never_used(
    harness: RunHarness, tmp_path: Path
) -> None:
    (harness.project / "one.txt").write_text("one\n")
    copies = Copies(WorkspaceSpec(WorkspaceKind.COPY, str(harness.project), str(tmp_path / "copies")))
    path, taken = copies.open("a").path, tmp_path / "taken"
    git(path, "init", "--quiet")
    (path / ".gitattributes").write_text("* filter=x\n")
    git(path, "config", "filter.x.clean", f"touch '{taken}'; cat")
    assert copies.save("a", "").files == 1
    copies.merge("a")
    assert not taken.exists() and not (harness.project / ".git").exists()


@pytest.mark.slow
def test_merge_all_is_not_suggested_where_all_that_is_left_conflicts(
    harness: RunHarness, project: Path
) -> None:
    exec_(harness)
    assert worktrees(harness).out.endswith("Merge all: agentos worktrees merge\n")
    worktrees(harness, "merge")
    assert worktrees(harness).out.splitlines()[-1] == (
        "See one: agentos worktrees diff b. Merge one by hand: git merge agentos/b"
    )


@pytest.mark.slow
def test_items_with_any_file_name_get_branches_and_are_called_by_their_path(
    harness: RunHarness, project: Path
) -> None:
    names = (
        "идеи/вторая.md",
        "идеи/первая идея.md",
        "two words/x y.md",
        "two words/x.md",
        "a/x.md",
        "a/l\nb.md",
    )
    for name in names:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("text\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "Names")
    patterns = [word for folder in ("идеи", "two words", "a") for word in ("--items", f"{folder}/*.md")]
    done = harness.run(
        "exec", "--worktree", *patterns, "-j", "3", "--", "sh", "-c", 'echo more >> "$1"', "sh", "{item}",
        program="agentos",
    )  # fmt: skip
    assert done.code == 0, done.out
    assert {str(state["source"]) for state in states(harness).values()} == set(names)
    assert all(
        re.fullmatch(r"agentos/[A-Za-z0-9._-]+", str(one["branch"])) for one in states(harness).values()
    )
    assert " of a/l b.md in " in worktrees(harness).out
    assert "+more" in worktrees(harness, "diff", "./идеи/первая идея.md").out
    merged = worktrees(harness, "merge", "идеи/первая идея.md", "a/x.md")
    assert merged.code == 0 and (project / "идеи/первая идея.md").read_text() == "text\nmore\n"
    assert worktrees(harness, "merge").code == 0
    assert [(project / name).read_text() for name in names] == ["text\nmore\n"] * len(names)
    unknown = worktrees(harness, "diff", "идеи/нет.md")
    assert unknown.code == 5 and "'идеи/нет.md' has no worktree here" in unknown.err
    assert "Removed 6 worktrees, kept 0." in worktrees(harness, "prune").out


def test_worktrees_are_listed_in_natural_order(tmp_path: Path) -> None:
    for name in ("task-10", "task-2", "caf", "Arger", "10", "9"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert recorded_items(tmp_path) == ["9", "10", "Arger", "caf", "task-2", "task-10"]


@pytest.mark.slow
def test_one_deleted_branch_does_not_hide_the_other_worktrees(harness: RunHarness, project: Path) -> None:
    (project / "work" / "a.sh").write_text("exit 3\n")
    git(project, "commit", "--quiet", "--all", "-m", "Fail")
    exec_(harness, "--limit", "1")
    assert "run the item's command again, or commit them there" in worktrees(harness).out
    path = Path(str(states(harness)["a"]["path"]))
    git(project, "worktree", "remove", "--force", str(path))
    git(project, "branch", "--quiet", "-D", "agentos/a")
    exec_(harness, "--parallel", "3")
    listed = worktrees(harness)
    assert listed.code == 0 and "deleted; drop its record: agentos worktrees prune a --force" in listed.out
    assert "agentos/b of work/b.sh" in listed.out
    refused = worktrees(harness, "pr", "b")
    assert refused.code == 3 and "there is no remote named origin" in refused.err
    assert worktrees(harness, "prune", "a").code == 0 and list(states(harness)) == ["b", "c"]
    assert exec_(harness, "--parallel", "3").code == 1 and "a" in states(harness), "it starts over"
