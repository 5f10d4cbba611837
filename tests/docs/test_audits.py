"""The audits find what they are meant to find."""

import ast

import pytest

from tests.audits import code, commands, names, output_lines, portability
from tests.audits.check import Check, audit
from tests.audits.examples import Step
from tests.audits.pages import Block, Page
from tests.audits.tree import modules


def page_with(*lines: str) -> Page:
    return Page("docs/made-up.md", (Block("console", (), lines),), ())


@pytest.mark.parametrize(
    "line",
    [
        "lld-workflow --everything",
        "lld-workflow --all --parallel many",
        "agentos fly",
        "agentos keys delete key-1",
        "agentos status && agentos runs --limit 0",
        "make coffee",
        "frobnicate --all",
    ],
)
def test_an_invalid_command_is_reported(line: str) -> None:
    assert commands.problem_with(line)


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
def test_a_valid_command_is_not_reported(line: str) -> None:
    assert commands.problem_with(line) is None


@pytest.mark.slow
def test_output_that_the_program_never_writes_is_reported() -> None:
    invented = "[COORDINATOR] Everything went splendidly today"
    written = "[COORDINATOR] Rate limit hit on key-3. Backing off for 60s. Redistributing work..."
    assert list(output_lines.unknown_lines(page_with(invented, written))) == [invented]


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
    assert any(code._dangerous_construct(node) for node in ast.walk(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "os.open(path, 0)",
        "path.read_text()",
        "x.read_bytes()",
        "path.open('a')",
        "open(os.open(p, 0))",
    ],
)
def test_a_file_that_is_opened_in_another_way_is_recognised(source: str) -> None:
    assert any(code.opens_file(node) for node in ast.walk(ast.parse(source)))


def test_a_file_that_regular_files_opened_is_not_reported() -> None:
    assert not any(code.opens_file(node) for node in ast.walk(ast.parse("open(open_regular(path), 'rb')")))


def test_a_class_name_that_is_used_twice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {name: ast.parse("class Twice: ...") for name in ("run/a.py", "storage/b.py")}
    monkeypatch.setattr(names, "modules", lambda: trees)
    assert list(names.repeated_class_names()) == ["class Twice: run/a.py, storage/b.py"]


def test_a_module_name_that_is_used_for_two_jobs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {name: ast.parse("") for name in ("run/helpers.py", "storage/helpers.py", "cli/helpers.py")}
    monkeypatch.setattr(names, "modules", lambda: trees)
    assert list(names.repeated_module_names()) == ["helpers.py: run/helpers.py, storage/helpers.py"]


def test_every_exception_for_a_module_name_is_still_needed() -> None:
    paths = [name.rpartition("/")[2] for name in modules() if not name.startswith("cli/")]
    assert {name for name in names.SAME_JOB if paths.count(name) < 2} == set()


def test_an_example_with_another_exit_code_or_output_is_reported() -> None:
    as_shown = Step("x", 0, 0, ("[LLD-42] Done in 0.3s", "..."), ("[LLD-40] Done in 2m 05s",))
    assert not as_shown.problems()
    assert Step("x", 0, 1, (), ()).problems()
    assert Step("x", 0, 0, ("[LLD-42] Done",), ("[LLD-42] Failed",)).problems()


def test_an_audit_with_one_problem_fails_and_shows_it() -> None:
    report = audit("a title", [Check("holds", list), Check("is broken", lambda: ["what is wrong"])])
    assert not report.passed
    assert str(report).splitlines() == [
        "a title",
        "  ok   holds",
        "  FAIL is broken",
        "         what is wrong",
        "a title: FAIL",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "os.pipe2(0)",
        "from selectors import EpollSelector",
        "import ctypes",
        "Path('/proc/1/stat')",
        "f'/proc/{pid}/fd'",
    ],
)
def test_a_call_that_only_linux_has_is_reported(source: str) -> None:
    assert any(portability.linux_only_call(node) for node in ast.walk(ast.parse(source)))


def test_a_portable_call_is_not_reported() -> None:
    source = "os.pipe(); selectors.DefaultSelector(); 'agentos needs /proc'; from os import fsync"
    assert not any(portability.linux_only_call(node) for node in ast.walk(ast.parse(source)))
