"""Which modules are imported, in which process and when."""

import re
import subprocess
import sys

from .harness import RunHarness
from .test_own_workflows import tutorial_code

EARLY_IMPORTS = "import agentos.cli.run, agentos.cli.worker_limit, agentos.run.api, agentos.config.settings, agentos.run.api, agentos.core.planning.plan, sys"


def test_a_worker_imports_nothing(harness: RunHarness) -> None:
    """Python reports imports on stderr: the fork server's in the run's own, a worker's in the output of its item."""
    harness.issue(42)
    done = harness.run("42", "--offline", PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0, done.out
    assert _imported("\n".join(done.lines_of("LLD-42"))) == []
    before = _imported(done.err)
    assert {"google.genai.types", "langgraph.pregel"} <= set(before)
    # Only the used parts of the lazily imported packages.
    assert "langsmith.types.run_select_field" in before and "langsmith.types.sandbox_response" not in before
    # httpx is imported without its command-line program, which needs a terminal library.
    assert "httpx._client" in before and not any(name.startswith("rich") for name in before)
    assert "langgraph_sdk.auth" in before and "langgraph_sdk.client" not in before


def test_a_worker_imports_only_what_a_plugin_needs_in_addition(harness: RunHarness) -> None:
    (harness.project / "haiku_flow.py").write_text(f"import sched\n{tutorial_code()}")
    (harness.project / "notes").mkdir()
    (harness.project / "notes" / "1-note.md").write_text("# Note\n\nSnow falls.\n")
    args = ("run", "haiku_flow:Haiku", "1", "--offline")
    done = harness.run(*args, program="agentos", PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0, done.out
    assert _imported("\n".join(done.lines_of("HAIKU-1"))) == ["sched"]


def test_the_fork_server_can_start_before_most_of_the_coordinator_is_loaded() -> None:
    """Its imports take longest, so they must not wait for those of the coordinator."""
    code = f"{EARLY_IMPORTS}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "agentos.engines.template_client" in loaded
    assert not loaded & {
        "agentos.run.builder",
        "agentos.core.protocol.events",
        "agentos.core.scheduling.scheduler",
        "agentos.outputs.console",
        "asyncio",
    }


def _imported(text: str) -> list[str]:
    return re.findall(r"import time: +\d+ \| +\d+ \| +(\S+)", text)
