"""A newcomer finds the main parts of the source with grep alone.

The search is `grep -rniE '^(class |def |async def |"").*WORDS' src/agentos`, with `.?` between the words: it finds
top-level definitions and the first line of module docstrings. Files are ranked by the number of matching lines, and the right one
must be among the first three.
"""

import re
import subprocess
from collections import Counter

import pytest

from tests.audits.tree import ROOT, SOURCE

QUESTIONS = {
    "rate limiter": "core/ratelimit/limiter.py",
    "circuit breaker": "core/ratelimit/circuit_breaker.py",
    "cooldown": "core/ratelimit/cooldown.py",
    "retry policy": "core/scheduling/retry_policy.py",
    "scheduler": "core/scheduling/scheduler.py",
    "fork server": "engines/template.py",
    "redact": "core/text/secrets.py",
    "lease": "core/quota/lease.py",
    "terminal renderer": "outputs/live.py",
    "request handler": "gateway/handler.py",
}
SHOWN = 3


def grep(phrase: str) -> list[str]:
    """The files with a matching definition or docstring, the most matches first, then in the order of their paths."""
    pattern = rf'^(class |def |async def |"").*{".?".join(phrase.split())}'
    found = subprocess.run(
        ["grep", "-rniE", "--include=*.py", pattern, "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    counts = Counter(line.removeprefix("./").partition(":")[0] for line in found.stdout.splitlines())
    return sorted(counts, key=lambda path: (-counts[path], path))


@pytest.mark.parametrize("phrase", QUESTIONS)
def test_grep_finds_the_right_file_among_the_first_three(phrase: str) -> None:
    assert QUESTIONS[phrase] in grep(phrase)[:SHOWN]


def test_a_phrase_that_the_source_does_not_use_finds_nothing() -> None:
    assert grep("flux capacitor") == []


def test_the_glossary_has_every_phrase_of_the_questions() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8").casefold()
    missing = [phrase for phrase in QUESTIONS if not re.search(phrase.replace(" ", ".?"), glossary)]
    assert missing == []
