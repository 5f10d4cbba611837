"""The audits object when they should."""

import ast

import pytest

from tests.audits import code, commands, wordings
from tests.audits.check import Check, audit
from tests.audits.examples import Step
from tests.audits.pages import Block, Page


def _page(*lines: str) -> Page:
    return Page("docs/made-up.md", (Block("console", (), lines),), ())


@pytest.mark.parametrize(
    "line",
    [
        "lld-workflow --everything",
        "lld-workflow --all --parallel many",
        "agentos fly",
        "agentos keys remove key-1",
        "agentos status && agentos runs --limit 0",
        "make coffee",
        "frobnicate --all",
    ],
)
def test_a_command_that_cannot_be_typed_is_objected_to(line: str) -> None:
    assert commands.objection(line)


@pytest.mark.parametrize(
    "line",
    [
        "AGENTOS_CREDENTIAL_LIMIT=2 lld-workflow --all --parallel 5 --offline",
        "lld-workflow --all -j > run.log 2>&1",
        "agentos keys add --name spare < key.txt",
        'agentos offline-server --fault \'{"kind": "503"}\' | head -1',
        "make demo test",
        "agentos --help",
    ],
)
def test_a_command_that_can_be_typed_is_not(line: str) -> None:
    assert commands.objection(line) is None


def test_a_line_that_the_program_never_writes_is_objected_to() -> None:
    invented = "[COORDINATOR] Everything went splendidly with 3 workers"
    written = "[COORDINATOR] Rate limit hit on key-3. Backing off for 60s. Redistributing work..."
    assert list(wordings.unspoken(_page(invented, written))) == [invented]


@pytest.mark.parametrize(
    "source",
    [
        "eval(x)",
        "import pickle",
        "from marshal import loads",
        "run(x, shell=True)",
        "yaml.load(x, Loader=yaml.Loader)",
    ],
)
def test_dangerous_code_is_recognised(source: str) -> None:
    assert any(code._danger(node) for node in ast.walk(ast.parse(source)))


def test_an_example_that_ends_or_speaks_differently_is_objected_to() -> None:
    as_it_says = Step("x", 0, 0, ("[LLD-42] Done in 0.3s", "..."), ("[LLD-40] Done in 2m 05s",))
    assert not as_it_says.objections()
    assert Step("x", 0, 1, (), ()).objections()
    assert Step("x", 0, 0, ("[LLD-42] Done",), ("[LLD-42] Failed",)).objections()


def test_an_audit_with_one_objection_fails_and_shows_it() -> None:
    report = audit("a title", [Check("sound", list), Check("broken", lambda: ["what is wrong"])])
    assert not report.passed
    assert str(report).splitlines() == [
        "a title",
        "  ok   sound",
        "  FAIL broken",
        "         what is wrong",
        "a title: FAIL",
    ]
