"""Two users, one checkout: shared as a group folder with umask 002, or not shared, which is found before anything is paid."""

import os
import stat

import pytest

from agentos.storage.locks import Holder, ItemLocks, LockFile, LockTimeout
from tests.scenarios.harness import RunHarness

from .other_users import ALICE, BOB, GROUP, open_to_all, user


@pytest.mark.slow
def test_two_users_of_a_group_folder_share_a_backlog_and_each_is_told_who_holds_what() -> None:
    with open_to_all() as harness:
        alice, bob = user(harness, ALICE), user(harness, BOB)
        harness.issues(1, 2)
        server = harness.server()
        with server.frozen():
            first = alice.start(1)
            first.wait_for("Executing: N1_design", 60)
            held = bob.run(1)
            listed = bob.run("doctor", "--offline", program="agentos")
        assert held.code == 0 and "LLD-1 is being worked on by process" in held.out
        assert f", user {ALICE}" in held.out, held.out
        assert listed.code == 0 and f"held by active runs of user {ALICE}: LLD-1" in listed.out, listed.out
        assert first.wait(60).code == 0
        done = bob.run("--all")
        assert done.code == 0 and harness.document(2).exists() and not server.repeated_prompts(), done.out
        again = alice.run(1, 2, "--fresh", "--parallel", 2)
        assert again.code == 0 and "Succeeded: 2" in again.out, again.out + again.err
        for path in [*harness.project.rglob("docs/**"), *harness.project.glob(".locks/*")]:
            found = path.stat()
            assert found.st_gid == GROUP and found.st_mode & stat.S_IWGRP, path
        for folder in (harness.root / f"home-{uid}" / ".agentos" for uid in (ALICE, BOB)):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_checkout_that_is_not_shared_is_named_with_what_its_owner_has_to_type() -> None:
    with open_to_all() as harness:
        alice, bob = user(harness, ALICE, umask="022"), user(harness, BOB)
        harness.issues(1)
        server = harness.server()
        assert alice.run("--all").code == 0
        harness.issues(2)
        before = len(server.calls())
        refused = bob.run("--all")
        assert refused.code == 3 and len(server.calls()) == before, refused.out
        assert f"belongs to user {ALICE} (drwxr-s---), and you may not write there" in refused.err
        assert "being worked on" not in refused.out + refused.err
        numbered = bob.run("number", program="agentos")
        assert numbered.code == 3 and "cannot lock numbering.lock" in numbered.err
        checked = bob.run("doctor", "--offline", program="agentos")
        assert checked.code == 3 and "and you may not write there" in checked.out
        fix = checked.out.partition(f"ask user {ALICE} to type: ")[2].partition(";")[0]
        assert fix.startswith("chmod -R g+rwX ")
        alice.shell(fix)
        assert bob.run("doctor", "--offline", program="agentos").code == 0
        done = bob.run("--all")
        assert done.code == 0 and harness.document(2).exists(), done.out + done.err


def test_a_user_outside_the_group_is_told_how_a_group_is_made() -> None:
    with open_to_all() as harness:
        bob = user(harness, BOB)
        harness.issues(1)
        (harness.project / "docs").mkdir(mode=0o755)
        done = bob.run("--all", "--offline")
        assert done.code == 3 and "docs belongs to root (drwxr-sr-x)" in done.err, done.err
        os.chown(harness.project / "docs", 0, 0)
        done = bob.run("--all", "--offline")
        assert (
            done.code == 3 and "ask root to share it with a group that you are in: chgrp -R GROUP" in done.err
        )


@pytest.mark.slow
def test_a_lock_file_that_another_user_alone_may_open_counts_as_held_by_them() -> None:
    """Nobody can tell whether it is held, so it is never taken; doctor says whom to ask."""
    with open_to_all() as harness:
        alice, bob = user(harness, ALICE), user(harness, BOB)
        harness.issues(1, 2)
        harness.server()
        assert alice.run(1).code == 0
        alice.shell("chmod 600 .locks/task-LLD-1.*")
        done = bob.run("--fresh", 1, 2)
        assert done.code == 0 and harness.document(2).exists()
        assert f"LLD-1 is being worked on by user {ALICE}, who alone may open its lock file" in done.out
        checked = bob.run("doctor", "--offline", program="agentos")
        assert checked.code == 3 and f"1 lock file belongs to user {ALICE} alone" in checked.out


def test_waiting_for_the_numbering_lock_is_announced_with_its_holder(harness: RunHarness) -> None:
    harness.brief("dark-mode.md", 1)
    locks = ItemLocks(harness.project)
    locks.prepare()
    lock = locks.numbering()
    assert lock.acquire()
    running = harness.start("--all", "--offline", program="issue-workflow")
    running.wait_for(f"[COORDINATOR] Waiting for numbering.lock, which process {os.getpid()} holds...", 30)
    lock.release()
    assert running.wait(60).code == 0


def test_a_lock_that_is_never_released_is_an_error_that_names_its_holder(harness: RunHarness) -> None:
    held, wanted = (LockFile(harness.root / "numbering.lock") for _ in range(2))
    assert held.acquire()
    announced: list[str] = []
    with pytest.raises(LockTimeout, match=f"process {os.getpid()} has held .*numbering.lock for over 0 s"):
        wanted.wait(announced.append, timeout=0.0)
    held.release()
    wanted.wait(announced.append, timeout=0.0)
    assert wanted.descriptor is not None and announced == []
    wanted.release()


def test_a_holder_note_is_only_a_message_whatever_it_contains(harness: RunHarness) -> None:
    locks = ItemLocks(harness.project)
    locks.prepare()
    lock = locks.acquire("LLD-1", Holder(7, "run"))
    assert lock and locks.holder("LLD-1") == Holder(7, "run")
    note = harness.project / ".locks/task-LLD-1.holder"
    for text in ("", "[]", "7", '{"pid": "x"}', '{"pid": 1e999}', '{"pid": 1, "run": 2, "uid": "x"}', "\xff"):
        note.write_text(text)
        assert locks.holder("LLD-1") is None
        assert locks.held() == {"LLD-1": None}
    lock.release()
