"""Machines that lack something, and networks that fail in different ways: it works, or one line says what is missing."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.gateway.test_clients import tls_provider
from tests.scenarios.harness import RunHarness, wait_until

PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9")
ASCII = {
    "LANG": "C",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
}


def test_calls_to_this_machine_do_not_go_to_the_proxy_of_the_environment(harness: RunHarness) -> None:
    harness.issues(1)
    server = harness.server()
    done = harness.run("--all", **PROXIES)
    assert done.code == 0 and len(server.answered(1)) == 2, done.out
    checked = harness.run("keys", "check", program="agentos", **PROXIES)
    assert checked.code == 0, checked.out + checked.err


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"TERM": ""}, ASCII])
def test_a_run_needs_neither_a_terminal_type_nor_more_than_ascii(
    harness: RunHarness, env: dict[str, str]
) -> None:
    harness.issues(1)
    (harness.project / "issues/002-ü.md").write_text("# Thing 2 – can be used ✓\n\nText.\n", "utf-8")
    done = harness.run("--all", "--offline", **env)
    assert done.code in (0, 1) and harness.document(1).exists(), done.out + done.err
    assert "This is unexpected" not in done.err and "Traceback" not in done.out + done.err


def test_a_file_name_that_is_not_utf8_fails_its_item_and_nothing_else(harness: RunHarness) -> None:
    harness.issues(1)
    (harness.project / "issues" / os.fsdecode(b"003-\xff.md")).write_text("# Thing 3\n\nText.\n")
    done = harness.run("--all", "--offline")
    assert done.code == 1 and harness.document(1).exists()
    assert "Execution complete:" in done.out and "1 completed, 1 failed (LLD-3)" in done.out, done.err
    assert [item["item"] for item in harness.summary()["items"]] == ["LLD-1", "LLD-3"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [24, 12])
def test_few_descriptors_are_enough_or_named(harness: RunHarness, limit: int) -> None:
    if not shutil.which("prlimit"):
        pytest.skip("needs prlimit (package util-linux)")
    harness.issues(1)
    done = harness.start("1", "--offline", before=("prlimit", f"--nofile={limit}")).wait(60)
    assert "Traceback" not in done.out + done.err
    assert (done.code == 0 and harness.document(1).exists()) or (
        done.code == 3 and "raise the limit (ulimit -n 256)" in done.err
    )


@pytest.mark.slow
def test_a_project_renamed_during_a_run_fails_clearly_and_is_finished_later(harness: RunHarness) -> None:
    harness.issues(1)
    server = harness.server()
    moved = harness.root / "moved"
    with server.frozen():
        running = harness.start("1", "--retries", "0")
        running.wait_for("Executing: N1_design", 60)
        harness.project.rename(moved)
    done = running.wait(60)
    # The node finds either the issue or the place of its draft gone, whichever it needs first after the renaming.
    assert done.code == 1 and ("No such file or directory" in done.out or "is missing" in done.out), done.out
    assert "Traceback" not in done.out
    assert not harness.project.exists(), "nothing is written where the project was"
    moved.rename(harness.project)
    again = harness.run("1")
    assert again.code == 0 and harness.document(1).exists() and not server.repeated_prompts()


@pytest.mark.slow
def test_failures_on_the_way_to_a_server_are_told_apart_with_its_host(
    harness: RunHarness, tmp_path: Path
) -> None:
    harness.issues(1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with tls_provider(tmp_path) as (untrusted, _):
        for url, expected in (
            (refusing, "127.0.0.1 refused the connection"),
            ("http://no-such-host.invalid", "no-such-host.invalid cannot be resolved"),
            (untrusted, "the certificate of 127.0.0.1 is not trusted"),
        ):
            key = {"GEMINI_API_KEY_1": "some-key-123456", "GEMINI_BASE_URL_1": url}
            checked = harness.run("keys", "check", program="agentos", **key)
            assert checked.code != 0 and expected in checked.out + checked.err, checked.out + checked.err
            running = harness.start("--all", stdout=None, before=(), **key)
            wait_until(lambda running=running, expected=expected: expected in running.out, 60)  # type: ignore[misc]
            running.process.kill()
            running.wait()
