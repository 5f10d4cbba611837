"""The agents themselves, as their authors publish them, through the gateway to the offline server.

`make agents` installs them and runs this; one that is not on the PATH is skipped.
"""

import os
import shutil

import pytest

from agentos.exec.agents import AGENTS
from tests.scenarios.harness import CompletedCommand, RunHarness

pytestmark = pytest.mark.long
ANSWER = "is a rule engine, not a language model"
LITELLM = (
    "import litellm, sys; print(litellm.completion(model=sys.argv[1], "
    "messages=[{'role': 'user', 'content': sys.argv[2]}]).choices[0].message.content)"
)
PYDANTIC_AI = (
    "import sys; from pydantic_ai import Agent; print(Agent(sys.argv[1]).run_sync(sys.argv[2]).output)"
)


def run(harness: RunHarness, program: str, *words: str) -> CompletedCommand:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: make agents")
    (harness.project / "task.md").write_text("# Task\n\nSay hello.\n")
    path = os.environ["PATH"]  # the harness has a shorter one
    started = harness.start("exec", "--offline", "task.md", *words, program="agentos", PATH=path)
    return started.wait(180)


def check(done: CompletedCommand, harness: RunHarness) -> None:
    assert done.code == 0 and ANSWER in " ".join(done.out.split()), done.out
    assert harness.summary()["usage"]["calls"] >= 1, "the calls went through the gateway"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_answers_through_the_gateway(harness: RunHarness, name: str) -> None:
    check(run(harness, AGENTS[name].program, "--agent", name, "--", "{item}"), harness)


def test_llm_answers_through_the_gateway(harness: RunHarness) -> None:
    check(run(harness, "llm", "--", "llm", "-m", "gpt-4o-mini", "Summarise {item}"), harness)


@pytest.mark.parametrize(
    "model", ["gemini/gemini-2.5-pro", "anthropic/claude-sonnet-4-5", "openai/gpt-5-mini"]
)
def test_litellm_answers_through_the_gateway(harness: RunHarness, model: str) -> None:
    check(run(harness, "litellm-python", "--", "litellm-python", "-c", LITELLM, model, "{item}"), harness)


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


@pytest.mark.parametrize("model", ["google:gemini-2.5-pro", "anthropic:claude-sonnet-4-5", "openai:gpt-5"])
def test_pydantic_ai_answers_through_the_gateway(harness: RunHarness, model: str) -> None:
    words = ("pydantic-ai-python", "-c", PYDANTIC_AI, model, "{item}")
    check(run(harness, "pydantic-ai-python", "--", *words), harness)
