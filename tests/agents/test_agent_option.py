"""`--agent` gives each coding agent the flags and variables with which it reaches the gateway."""

import json
import re
from pathlib import Path

import pytest

from agentos.cli.param_types import AGENT_NAMES
from agentos.exec.agents import AGENTS, AgentChoice, prepare_agent
from tests.gateway.harness import gateway
from tests.scenarios.harness import RunHarness

INSTALL = Path(__file__).with_name("install")
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "agents.md"
FAKE_AGENT = """#!/usr/bin/env python3
import json, os, sys
json.dump({"args": sys.argv[1:], "env": dict(os.environ)}, open(f"{os.environ['AGENTOS_ITEM_ID']}.json", "w"))
"""


def fake_agent(harness: RunHarness, name: str) -> str:
    """A program of this name that notes how it was started; returns the PATH that finds it."""
    folder = harness.project / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(FAKE_AGENT)
    (folder / name).chmod(0o755)
    return f"{folder}:{harness.environment()['PATH']}"


def test_the_command_line_offers_every_known_agent() -> None:
    assert tuple(AGENTS) == AGENT_NAMES


@pytest.mark.slow
def test_each_agent_gets_its_prompt_and_its_address(harness: RunHarness) -> None:
    harness.server()
    (harness.project / "task.md").write_text("# Task\n")
    for name in AGENTS:
        path = fake_agent(harness, name)
        done = harness.run(
            "exec", "--agent", name, "--offline", "task.md", "--", "{item}", program="agentos", PATH=path
        )
        assert done.code == 0, done.out
        seen = json.loads((harness.project / "task.json").read_text())
        assert "Do the task that is described in the file task.md." in seen["args"], name
        url = seen["env"]["ANTHROPIC_BASE_URL"].removesuffix("/anthropic")
        assert not any("{gateway}" in text for text in (*seen["args"], *seen["env"].values()))
        if name == "codex":
            assert f'openai_base_url="{url}/openai/v1"' in seen["args"]
        if name == "opencode":
            config = json.loads(seen["env"]["OPENCODE_CONFIG_CONTENT"])
            assert config["provider"]["anthropic"]["options"]["baseURL"] == f"{url}/anthropic/v1"
            assert seen["env"]["OPENCODE_DB"] == ":memory:", (
                "it must not share a database with its neighbours"
            )
        if name == "gemini":
            settings = Path(seen["env"]["GEMINI_CLI_HOME"], ".gemini", "settings.json")
            assert json.loads(settings.read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"


def test_the_documentation_says_when_each_agent_was_tested_in_which_version() -> None:
    rows = re.findall(
        r"^\| .* \(`([\w-]+)`\) \| ([\d.]+) \| (\d{4}-\d\d-\d\d) \| .* \| .* \|$",
        DOCS.read_text(),
        re.MULTILINE,
    )
    packages = re.search(r"^for package in (.*); do$", INSTALL.read_text(), re.MULTILINE)
    assert packages
    by_program = {agent.program for agent in AGENTS.values()} - {"aider"}  # its package has another name
    assert {name for name, *_ in rows} == by_program | set(packages[1].split())


def test_the_users_own_flags_replace_the_defaults() -> None:
    words = ("--sandbox", "read-only", "Look at {item}")
    command = AgentChoice("codex", words).command(items_are_files=True)
    assert command.count("--sandbox") == 1 and "workspace-write" not in command
    assert command[-1] == "Look at {item}"


@pytest.mark.parametrize(
    ("prompt", "items_are_files", "expected"),
    [
        ("{item}", True, "Do the task that is described in the file {item}."),
        ("{item}", False, "{item}"),
        ("Translate {stem}", True, "Translate {stem}"),
        ("Fix the tests of", False, "Fix the tests of {item}"),
    ],
)
def test_the_prompt_always_contains_the_item(prompt: str, items_are_files: bool, expected: str) -> None:
    assert AgentChoice("claude", (prompt,)).command(items_are_files=items_are_files)[-1] == expected


def test_gemini_keeps_the_users_settings_except_for_the_way_to_authenticate(tmp_path: Path) -> None:
    own = tmp_path / "user" / ".gemini"
    own.mkdir(parents=True)
    given = {"ui": {"theme": "dark"}, "security": {"auth": {"selectedType": "oauth-personal"}, "x": 1}}
    (own / "settings.json").write_text(json.dumps(given))
    variables = prepare_agent("gemini", tmp_path / "agents", tmp_path / "user")
    found = json.loads(Path(variables["GEMINI_CLI_HOME"], ".gemini", "settings.json").read_text())
    assert found == {
        "ui": {"theme": "dark"},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "x": 1},
    }
    assert json.loads((own / "settings.json").read_text()) == given


@pytest.mark.parametrize("text", ["", "// comment\n{}", "[1]", "{" * 100_000])
def test_settings_that_cannot_be_read_do_not_stop_gemini(tmp_path: Path, text: str) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(text)
    variables = prepare_agent("gemini", tmp_path / "agents", tmp_path)
    assert Path(variables["GEMINI_CLI_HOME"], ".gemini", "settings.json").exists()


def test_a_missing_agent_or_key_is_named_with_what_to_type(harness: RunHarness) -> None:
    (harness.project / "task.md").write_text("# Task\n")
    words = ("exec", "--agent", "claude", "task.md")
    missing = harness.run(*words, "--", "{item}", program="agentos", PATH=str(harness.project))
    assert missing.code == 3 and "npm install -g @anthropic-ai/claude-code" in missing.err
    harness.server()
    path = fake_agent(harness, "claude")
    keyless = harness.run(*words, "--", "{item}", program="agentos", PATH=path)
    assert keyless.code == 4 and "ANTHROPIC_API_KEY" in keyless.err and "GEMINI" not in keyless.err
    unasked = harness.run(*words, "--", program="agentos", PATH=path)
    assert unasked.code == 2 and "no prompt" in unasked.err
    apart = harness.run(*words, "--no-gateway", "--", "{item}", program="agentos", PATH=path)
    assert apart.code == 2 and "drop --no-gateway" in apart.err


def test_the_gateway_prints_what_an_agent_needs(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness, "--agent", "gemini") as gate:
        assert Path(gate.agent["GEMINI_CLI_HOME"], ".gemini", "settings.json").exists()
    done = harness.start("gateway", "--agent", "codex", "--offline", program="agentos")
    done.wait_for("codex()")
    assert "codex() { command codex -c 'openai_base_url=\"http://127.0.0.1:" in done.out
    assert "export CODEX_API_KEY=agentos." in done.out
