"""Issues on GitHub: paging, filing exactly once, rate limits, and the secrecy of the token."""

import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .github import REPOSITORY, TOKEN, FakeGitHub
from .harness import TEXTS, CompletedCommand, RunHarness, RunningCommand, title_of, wait_until
from .screens import Shell


@pytest.fixture
def github(harness: RunHarness) -> Iterator[FakeGitHub]:
    (harness.project / "agentos.toml").write_text(f'github = "{REPOSITORY}"\n')
    harness.extra_env["AGENTOS_TRUST"] = "1"
    (harness.project / "issues").rmdir()
    with FakeGitHub().serve() as server:
        yield server


def add(github: FakeGitHub, number: int, *labels: str) -> None:
    body = TEXTS["good"].format(number=number)
    github.add(number, title_of(number), body, labels=[{"name": name} for name in labels])


def run(
    harness: RunHarness, github: FakeGitHub, *args: object, program: str = "lld-workflow"
) -> CompletedCommand:
    return start(harness, github, *args, program=program).wait(100)


def start(
    harness: RunHarness, github: FakeGitHub, *args: object, program: str = "lld-workflow"
) -> RunningCommand:
    return harness.start(*args, program=program, GITHUB_TOKEN=TOKEN, GITHUB_API_URL=github.url)


def filed(github: FakeGitHub) -> list[str]:
    return [issue["title"] for issue in github.issues]


@pytest.mark.slow
def test_every_page_of_open_issues_is_read_without_pull_requests(
    harness: RunHarness, github: FakeGitHub
) -> None:
    for number in range(1, 251):
        github.add(number, f"Wish {number}", "Something.", state="closed" if number % 50 == 0 else "open")
    github.issues[6]["pull_request"] = {"url": "..."}
    add(github, 300, "ui")
    listed = run(harness, github, "--all", "--dry-run")
    assert listed.code == 0, listed.err
    # Of 250, five are closed and one is a pull request; number 300 is on the third page.
    assert "would process 245 items:" in listed.out
    assert "  - LLD-7 " not in listed.out and "  - LLD-50 " not in listed.out
    assert len(github.asked) == 3 and all("state=open" in path for path in github.asked)
    harness.server()
    done = run(harness, github, "--all", "--label", "ui")
    assert done.code == 0, done.out + done.err
    text = harness.document(300).read_text()
    assert f'source: "{REPOSITORY}#300"' in text and "GET /things/300" in text
    assert (
        run(harness, github, 300, "--dry-run")
        .lines[-1]
        .startswith("[COORDINATOR] LLD-300 is already approved")
    )


def test_an_issue_without_a_body_fails_alone_before_any_call(harness: RunHarness, github: FakeGitHub) -> None:
    github.add(42, "Later", "")
    server = harness.server()
    done = run(harness, github, 42)
    assert done.code == 1 and "[LLD-42] FAILED: Invalid spec format" in done.lines and not server.calls()


def test_an_approved_brief_is_filed_with_its_labels_and_only_once(
    harness: RunHarness, github: FakeGitHub
) -> None:
    path = harness.brief("17-thing.md", 17)
    path.write_text(f"---\nlabels: [ui]\n---\n\n{path.read_text()}")
    harness.server()
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0, done.out + done.err
    assert f"Filed as https://github.example/{REPOSITORY}/issues/1" in done.lines_of("ISSUE-17")
    (issue,) = github.issues
    assert {"name": "ui"} in issue["labels"] and "<!-- agentos-origin: ISSUE-17 " in issue["body"]
    assert (harness.project / "ideas/done/17-thing.md").exists() and not (harness.project / "issues").exists()
    # The brief is restored, as from a backup: its issue is found on GitHub without any local record.
    os.rename(harness.project / "ideas/done/17-thing.md", path)
    assert run(harness, github, "--all", program="issue-workflow").code == 0
    assert len(github.issues) == 1 and not path.exists()


def test_a_duplicate_that_exists_only_on_github_is_named_before_filing(
    harness: RunHarness, github: FakeGitHub
) -> None:
    """The duplicate is on the second of three pages; one issue is a pull request, one is closed."""
    for number in range(1, 251):
        github.add(number, f"Wish {number}", f"Something about {number}.")
    path = harness.brief("17-thing.md", 17)
    github.issues[140] |= {"title": "A thing of that kind", "body": path.read_text(), "state": "closed"}
    github.issues[141] |= {"body": path.read_text(), "pull_request": {"url": "..."}}
    harness.server()
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0, done.out + done.err
    (named,) = [line for line in done.lines_of("ISSUE-17") if line.startswith("Possible duplicate of ")]
    assert named.startswith(f"Possible duplicate of {REPOSITORY}#141, A thing of that kind (closed) (")
    filed_line = next(line for line in done.lines_of("ISSUE-17") if line.startswith("Filed as "))
    assert done.lines_of("ISSUE-17").index(named) < done.lines_of("ISSUE-17").index(filed_line)
    pages = [line for line in github.asked if "direction=asc" in line]
    assert len(pages) == 3, "every page is read, once per run"


def test_an_issue_filed_by_the_same_run_is_compared_too(harness: RunHarness, github: FakeGitHub) -> None:
    harness.brief("17-thing.md", 17)
    harness.brief("18-same-thing.md", 17)
    harness.server()
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0, done.out + done.err
    assert not [line for line in done.lines_of("ISSUE-17") if "Possible duplicate" in line]
    assert any(f"Possible duplicate of {REPOSITORY}#1" in line for line in done.lines_of("ISSUE-18"))


@pytest.mark.slow
def test_a_run_killed_between_filing_and_recording_an_issue_files_it_once(
    harness: RunHarness, github: FakeGitHub
) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    github.faults.append(("POST", "hang"))
    running = start(harness, github, "--all", program="issue-workflow")
    wait_until(lambda: len(github.issues) == 1, 60)
    os.kill(harness.worker("ISSUE-17"), signal.SIGKILL)
    running.signal(signal.SIGKILL)
    running.wait()
    assert (harness.project / "ideas/active/17-thing.md").exists()
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0 and "Filed as" in done.out and len(github.issues) == 1
    assert sum(line.startswith("POST") for line in github.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", "502"])
def test_after_a_lost_response_the_issue_is_looked_up_before_filing_again(
    harness: RunHarness, github: FakeGitHub, fault: str
) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    github.faults.append(("POST", fault))
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0 and "Checking whether the issue was filed..." in done.out
    assert len(github.issues) == 1
    assert sum(line.startswith("POST") for line in github.asked) == (1 if fault == "lost" else 2)


@pytest.mark.slow
def test_github_rate_limits_are_announced_and_waited_for(harness: RunHarness, github: FakeGitHub) -> None:
    add(github, 42)
    github.faults += [("GET", "primary:1"), ("GET", "secondary:1"), ("GET", "500")]
    done = run(harness, github, "--all", "--dry-run")
    assert done.code == 0 and "would process 1 item:" in done.out and len(github.asked) == 4
    github.faults.append(("GET", "secondary:1"))
    harness.server()
    done = run(harness, github, "--all")
    assert done.code == 0, done.err
    assert f"Waiting 1s, then continuing with {REPOSITORY}..." in done.out


@pytest.mark.slow
def test_a_rate_limit_that_lasts_too_long_exits_with_75_and_is_resumable(
    harness: RunHarness, github: FakeGitHub
) -> None:
    harness.brief("17-thing.md", 17)
    server = harness.server()
    github.faults.append(("GET", "primary:7200"))
    early = run(harness, github, "--all", "--max-wait", "10m", program="issue-workflow")
    assert early.code == 75 and "longer than --max-wait allows" in early.err
    github.faults.append(("POST", "primary:7200"))
    late = run(harness, github, "--all", "--max-wait", "10m", program="issue-workflow")
    assert late.code == 75, late.out
    assert "Stopped: GitHub's rate limit is used up until" in late.out
    assert late.lines[-1].endswith("Resume with: issue-workflow --all --max-wait 10m")
    done = run(harness, github, "--all", program="issue-workflow")
    assert done.code == 0 and len(github.issues) == 1 and len(server.calls()) == 2


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("401", "GitHub rejects the token"),
        ("403", "it needs read and write access to issues"),
        ("404", "does not exist, or the token has no access to it"),
        ("410", "issues are disabled"),
        ("moved:http://127.0.0.2:9/x", "another host, 127.0.0.2:9: not followed"),
    ],
)
def test_a_refusal_by_github_is_reported_with_a_fix(
    harness: RunHarness, github: FakeGitHub, fault: str, expected: str
) -> None:
    github.faults.append(("GET", fault))
    refused = run(harness, github, "--all", "--dry-run")
    assert refused.code == 3 and expected in refused.err and TOKEN not in refused.err


def test_a_renamed_repository_is_followed_on_its_own_host(harness: RunHarness, github: FakeGitHub) -> None:
    add(github, 42)
    target = f"/repos/{REPOSITORY}/issues?state=open&per_page=100"
    github.faults.append(("GET", f"moved:{target}"))
    assert "LLD-42" in run(harness, github, "--all", "--dry-run").out


@pytest.mark.slow
def test_missing_permission_to_file_is_detected_before_any_model_call(
    harness: RunHarness, github: FakeGitHub
) -> None:
    harness.brief("17-thing.md", 17)
    server = harness.server()
    for change, expected in (
        ({"archived": True}, "is archived"),
        ({"archived": False, "has_issues": False}, "issues are disabled"),
        ({"has_issues": True}, "the token has the scopes gist"),
    ):
        github.repository.update(change)
        github.scopes = "gist" if "scopes" in expected else "repo"
        done = run(harness, github, "--all", program="issue-workflow")
        assert done.code == 1 and "cannot file: " in done.out and expected in done.out
    assert not server.calls() and not github.issues


@pytest.mark.long
def test_the_missing_permission_of_a_read_only_fine_grained_token_is_named(
    harness: RunHarness, github: FakeGitHub
) -> None:
    """GitHub does not list the permissions of such a token: doctor says so, and the refusal names the missing one."""
    github.scopes = None
    github.repository["permissions"] = {"pull": True, "triage": False, "push": False}
    well = run(harness, github, "doctor", program="agentos")
    (line,) = [line for line in well.lines if " github " in line]
    assert line.startswith("ok ") and "GitHub reveals only on filing whether this token may write" in line
    assert '"Issues: Read and write"' in line and "labels may be dropped" in line
    harness.brief("17-thing.md", 17)
    server = harness.server()
    github.faults.append(("POST", "ungranted:issues=write"))
    refused = run(harness, github, "--all", program="issue-workflow")
    assert refused.code == 1, refused.out
    assert '"Issues: Read and write"' in refused.out and "GitHub asks for issues=write" in refused.out
    assert run(harness, github, "--all", program="issue-workflow").code == 0, "granted since"
    assert len(github.issues) == 1 and len(server.calls()) == 2, "the draft is not paid for twice"


@pytest.mark.parametrize("program", ["lld-workflow", "issue-workflow"])
def test_ctrl_c_while_waiting_for_githubs_limit_exits_at_once(
    harness: RunHarness, github: FakeGitHub, program: str
) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    took: list[float] = []
    # A busy machine may be late once, but not three times in a row.
    while not took or (min(took) >= 0.1 and len(took) < 3):
        github.faults.append(("GET", "primary:600"))
        terminal = harness.terminal("--all", program=program, GITHUB_TOKEN=TOKEN, GITHUB_API_URL=github.url)
        terminal.wait_for("Waiting 60", 60)
        took.append(terminal.response_time("\x03", "[COORDINATOR] Shutting down...\r\n"))
        done = terminal.wait(5)
        assert done.code == 130 and "Traceback" not in done.out
        assert done.lines[-1] == f"[COORDINATOR] Nothing was started. Start it with: {program} --all"
    assert min(took) < 0.1, took


@pytest.mark.slow
def test_ctrl_c_while_a_worker_waits_for_githubs_limit_exits_within_five_seconds(
    harness: RunHarness, github: FakeGitHub
) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    github.faults.append(("POST", "primary:600"))
    terminal = harness.terminal(
        "--all", program="issue-workflow", GITHUB_TOKEN=TOKEN, GITHUB_API_URL=github.url
    )
    terminal.wait_for("then continuing with", 60)
    began = time.monotonic()
    terminal.response_time("\x03", "Shutting down... waiting for workers to checkpoint")
    done = terminal.wait(30)
    assert time.monotonic() - began < 7 and done.code == 130
    assert done.lines[-1].endswith("Resume with: issue-workflow --all") and "Traceback" not in done.out
    assert run(harness, github, "--all", program="issue-workflow").code == 0 and len(github.issues) == 1


def test_ctrl_z_while_waiting_for_githubs_limit_suspends_the_run(
    harness: RunHarness, github: FakeGitHub
) -> None:
    github.faults.append(("GET", "primary:600"))
    shell = Shell(harness, GITHUB_TOKEN=TOKEN, GITHUB_API_URL=github.url)
    shell.type("lld-workflow --all")
    shell.screen.wait_for("Waiting 60", 60)
    shell.terminal.press("\x1a")
    shell.screen.wait_for("Stopped")
    shell.type("fg")
    time.sleep(0.3)
    shell.terminal.ctrl_c()
    shell.screen.wait_for("Nothing was started. Start it with: lld-workflow --all")


def test_a_dry_run_says_what_it_waits_for_but_doctor_does_not_wait(
    harness: RunHarness, github: FakeGitHub
) -> None:
    add(github, 42)
    github.faults.append(("GET", "secondary:1"))
    listed = run(harness, github, "--all", "--dry-run")
    assert "GitHub's rate limit is used up until" in listed.out and "Waiting 1s" in listed.out
    github.faults.append(("GET", "primary:600"))
    found = run(harness, github, "doctor", program="agentos")
    assert found.code == 3 and "GitHub's rate limit is used up until" in found.out


def test_without_a_token_or_with_offline_it_says_what_to_do(harness: RunHarness, github: FakeGitHub) -> None:
    none = harness.run("--all", GITHUB_API_URL=github.url)
    assert none.code == 3 and "set GITHUB_TOKEN or GH_TOKEN, or run: gh auth login" in none.err
    offline = run(harness, github, "--all", "--offline")
    assert offline.code == 3 and "--offline has none" in offline.err
    open_air = harness.run("--all", GITHUB_TOKEN=TOKEN, GITHUB_API_URL="http://example.org")
    assert open_air.code == 2 and "https://" in open_air.err
    gh = harness.root / "bin"
    gh.mkdir()
    (gh / "gh").write_text(f"#!/bin/sh\necho {TOKEN}\n")
    (gh / "gh").chmod(0o755)
    path = f"{gh}:{harness.environment()['PATH']}"
    assert harness.run("--all", PATH=path, GITHUB_API_URL=github.url).code == 0


@pytest.mark.slow
def test_the_github_token_appears_in_no_record_output_or_worker_environment(
    harness: RunHarness, github: FakeGitHub
) -> None:
    harness.brief("17-thing.md", 17)
    harness.server()
    github.faults.append(("POST", "hang"))
    running = start(harness, github, "--all", program="issue-workflow")
    wait_until(lambda: len(github.issues) == 1, 60)
    environments = [
        Path(f"/proc/{mark.pid}/environ").read_bytes() for mark in running.processes() if mark.alive
    ]
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert environments and not [found for found in environments if TOKEN.encode() in found]
    assert TOKEN not in done.out + done.err
    files = [
        path for folder in (harness.home, harness.project) for path in folder.rglob("*") if path.is_file()
    ]
    assert len(files) > 5 and not [path for path in files if TOKEN.encode() in path.read_bytes()]


def test_doctor_says_whether_issues_can_be_filed_on_github(harness: RunHarness, github: FakeGitHub) -> None:
    well = run(harness, github, "doctor", program="agentos")
    assert any(line.startswith("ok   github") and REPOSITORY in line for line in well.lines), well.out
    github.repository["archived"] = True
    ill = run(harness, github, "doctor", program="agentos")
    assert ill.code == 3 and "cannot file: acme/shop is archived" in ill.out


def test_a_certificate_that_is_not_trusted_is_named_at_once_and_ssl_cert_file_helps(
    harness: RunHarness, github: FakeGitHub, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    secure = FakeGitHub()
    add(secure, 42)
    with secure.serve(tls):
        began = time.monotonic()
        refused = run(harness, secure, "--all", "--dry-run")
        assert time.monotonic() - began < 10, "waiting does not help"
        assert refused.code == 3 and "its certificate is not accepted (self-signed certificate" in refused.err
        assert "set SSL_CERT_FILE" in refused.err and "try again later" not in refused.err
        harness.extra_env["SSL_CERT_FILE"] = str(certificate)
        assert "  - LLD-42" in run(harness, secure, "--all", "--dry-run").out


OWN_WORKFLOW = '''
from langgraph.graph import START, StateGraph
from agentos.workflows import Candidate, Filing, Item, ItemStatus

class Wishes:
    """Reads the open issues and files one more for each."""

    name, prefix, folders, reads_issues, files_issues = "wishes", "WISH", (".",), True, True

    def __init__(self, pages=()):
        self.pages = pages

    def with_issues(self, pages):
        return Wishes(pages)

    def candidates(self, project):
        items = [Item(f"WISH-{page.number}", "wishes", page.number, page.title, str(page.path)) for page in self.pages]
        return [Candidate(item, ItemStatus.PENDING) for item in items]

    def status(self, project, item):
        return ItemStatus.PENDING

    def graph(self, context):
        async def file(state):
            filing = Filing(context.item.id, "wish", ("mine",), f"# More\\n\\n{context.text}")
            return {"result": await context.tracker.file(filing, context.say)}

        return StateGraph(dict).add_node("file", file).add_edge(START, "file")
'''


@pytest.mark.slow
def test_a_users_own_workflow_reads_and_files_issues_like_the_built_in_ones(
    harness: RunHarness, github: FakeGitHub
) -> None:
    add(github, 7)
    (harness.project / "wishes.py").write_text(OWN_WORKFLOW)
    harness.server()
    command = ("run", "wishes:Wishes", "7")
    done = run(harness, github, *command, program="agentos")
    assert done.code == 0, done.out + done.err
    issue = github.issues[1]
    assert issue["title"] == "More" and "GET /things/7" in issue["body"]
    assert "<!-- agentos-origin: WISH-7 " in issue["body"] and {"name": "mine"} in issue["labels"]
    harness.extra_env["AGENTOS_TRUST"] = ""
    refused = run(harness, github, *command, program="agentos")
    assert refused.code == 3 and "agentos trust" in refused.err and len(github.issues) == 2
