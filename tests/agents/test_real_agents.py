"""The agents themselves, as their authors publish them, through the gateway to the offline server.

`make agents` installs them and runs this with their folder in AGENTS; without it, one that is not on the PATH is skipped.
"""

import os
import shutil
from pathlib import Path

import pytest

from agentos.exec.agents import AGENTS
from tests.scenarios.harness import CompletedCommand, RunHarness

pytestmark = pytest.mark.long
INSTALLED = os.environ.get("AGENTS", "")
ANSWER = "is a rule engine, not a language model"
EXAMPLE = "An example by offline-rules-1"
LIBRARIES = str(Path(__file__).with_name("libraries.py"))
MODELS = {
    "litellm": ("anthropic/claude-sonnet-4-5", "openai/gpt-5-mini", "gemini/gemini-2.5-pro"),
    "pydantic-ai": ("anthropic:claude-sonnet-4-5", "openai:gpt-5", "google:gemini-2.5-pro"),
    "langchain": ("anthropic:claude-sonnet-4-5", "openai:gpt-5-mini", "google_genai:gemini-2.5-pro"),
    "openai-agents": ("gpt-5-mini",),
    "instructor": ("anthropic/claude-sonnet-4-5", "openai/gpt-5-mini", "google/gemini-2.5-pro"),
}


def search_path() -> str:
    """The PATH of the tests, which is longer than that of the harness, behind the folder of `make agents`."""
    return os.pathsep.join([*([f"{INSTALLED}/bin"] if INSTALLED else []), os.environ["PATH"]])


def run(harness: RunHarness, program: str, *words: str) -> CompletedCommand:
    path = search_path()
    if shutil.which(program, path=path) is None:
        assert not INSTALLED, f"{program} is missing in {INSTALLED}"
        pytest.skip(f"{program} is not installed: make agents")
    (harness.project / "task.md").write_text("# Task\n\nSay hello.\n")
    started = harness.start("exec", "--offline", "task.md", *words, program="agentos", PATH=path)
    return started.wait(180)


def check(done: CompletedCommand, harness: RunHarness) -> None:
    words = " ".join(done.out.split())
    assert done.code == 0 and (ANSWER in words or EXAMPLE in words), done.out
    assert harness.summary()["usage"]["calls"] >= 1, "the calls went through the gateway"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_answers_through_the_gateway(harness: RunHarness, name: str) -> None:
    check(run(harness, AGENTS[name].program, "--agent", name, "--", "{item}"), harness)


def test_llm_answers_through_the_gateway(harness: RunHarness) -> None:
    check(run(harness, "llm", "--", "llm", "-m", "gpt-4o-mini", "Summarise {item}"), harness)


@pytest.mark.parametrize(
    ("library", "model"), [(library, model) for library in MODELS for model in MODELS[library]]
)
def test_a_library_answers_through_the_gateway(harness: RunHarness, library: str, model: str) -> None:
    python = f"{library}-python"
    settings = ("--env", "OPENAI_AGENTS_DISABLE_TRACING=1")
    done = run(harness, python, *settings, "--", python, LIBRARIES, library, model, "Summarise {item}")
    check(done, harness)
    assert "Both GOOGLE_API_KEY" not in done.out, "Google's SDK would warn of two keys"


@pytest.mark.parametrize(
    "model", ["anthropic/claude-sonnet-4-5", "openai/gpt-5-mini", "gemini/gemini-2.5-pro"]
)
def test_mini_swe_agent_answers_through_the_gateway(harness: RunHarness, model: str) -> None:
    # Its loop ends only when a model calls a tool, which the offline server does not: one step is what is tried.
    settings = ("--env", "MSWEA_CONFIGURED=true")
    config = ("-c", "mini.yaml", "-c", "agent.step_limit=1")
    words = ("mini", "-y", "--exit-immediately", *config, "-m", model, "-t", "Do the task in {item}")
    done = run(harness, "mini", *settings, "--", *words)
    assert done.code == 0 and "LimitsExceeded" in done.out, done.out
    assert harness.summary()["usage"]["calls"] >= 1, "the calls went through the gateway"
