"""Three agents in three worktrees over two keys: one refusal, one agent killed, resumed with the same command."""

import json
import os
import signal
from pathlib import Path

import pytest

from agentos.config.file import price_list
from agentos.core.protocol.results import Usage

from .harness import RunHarness, wait_until
from .test_worktrees import git

MODEL = "gemini-2.5-pro"
STEPS = 3
AGENT = """import json, os, sys, time, urllib.request
from pathlib import Path

seen, item = Path(sys.argv[1]), os.environ["AGENTOS_ITEM_ID"]
work = Path(f"{item}.txt")
for step in range(len(work.read_text().splitlines()) if work.exists() else 0, 3):
    body = json.dumps({"contents": [{"parts": [{"text": f"step {step} of {item}"}]}]}).encode()
    url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:generateContent"
    headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
        usage = json.load(answer)["usageMetadata"]
    (seen / f"{item}-{step}.json").write_text(json.dumps(usage))
    with work.open("a") as file:
        file.write(f"step {step}\\n")
    if item == "b" and step == 1 and not (seen / "b.pid").exists():
        (seen / "b.tmp").write_text(str(os.getpid()))
        (seen / "b.tmp").rename(seen / "b.pid")
        time.sleep(600)
"""


@pytest.mark.slow
def test_three_agents_end_with_three_clean_branches_and_the_right_costs(
    harness: RunHarness, tmp_path: Path
) -> None:
    project, seen = harness.project, tmp_path / "seen"
    seen.mkdir()
    (project / "agent.py").write_text(AGENT)
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "Start")
    server = harness.server(keys=harness.keys[:2])
    server.add_fault(kind="429-minute", retry_delay=1, times=1)
    words = ("exec", "--worktree", "--parallel", "3", "--retries", "0", "a", "b", "c", "--")
    command = (*words, "python3", "agent.py", str(seen), "{item}")

    first = harness.start(*command, program="agentos")
    wait_until(lambda: (seen / "b.pid").exists(), 60)
    os.kill(int((seen / "b.pid").read_text()), signal.SIGKILL)
    done = first.wait(60)
    assert done.code == 1 and "FAILED: killed by SIGKILL" in done.lines_of("b"), done.out
    assert "Rate limit hit on key-" in done.out
    costs = [harness.summary()["cost"]]

    again = harness.run(*command, program="agentos")
    assert again.code == 0, again.out
    assert [again.lines_of(item) for item in "ac"] == [[], []], "finished agents are not run again"
    assert "2 key slots for 3 workers" in done.out and "key slot" not in again.out, "two keys suffice for one"
    costs.append(harness.summary()["cost"])

    for item in "abc":
        assert git(project, "show", f"agentos/{item}:{item}.txt").split("\n") == [
            f"step {step}" for step in range(STEPS)
        ], "the killed agent went on in its own worktree"
        changed = git(project, "diff", "--name-only", "main", f"agentos/{item}").split()
        assert changed == [f"{item}.txt"]
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""
    listed = harness.run("worktrees", "--json", program="agentos")
    states = json.loads(listed.out)["worktrees"]
    assert [(state["conflicts"], state["uncommitted"]) for state in states] == [([], 0)] * 3

    used = [json.loads(path.read_text()) for path in sorted(seen.glob("*.json"))]
    assert len(used) == 3 * STEPS == len(server.answered())
    price = price_list().of(MODEL)
    assert price is not None
    total = Usage(
        len(used), sum(u["promptTokenCount"] for u in used), sum(u["candidatesTokenCount"] for u in used)
    )
    assert sum(costs) == pytest.approx(price.cost_of(total), abs=1e-6) and price.cost_of(total) > 0
