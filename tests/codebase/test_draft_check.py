"""The mechanical check of a drafted design."""

import ast
import random
import shutil
from pathlib import Path

import pytest

from agentos.codebase.draft_check import CheckResult, check_draft
from tests.codebase.projects import indexed, make_project

SOURCE = Path(__file__).parents[2] / "src" / "agentos"
ISSUE = "# Dark theme\n\n## Requirements\n\n- R1: a dark theme\n- R2: it is remembered\n"
DESIGN = """# Low-level design: Dark theme

## Context

Readers want it. Today `app/reader.py:ArticleReader.render_article` has one theme.

## Requirements

- **R1** A dark theme.
- **R2** It is remembered.

## Design

### Component

`app/reader.py` changes.

### Flow

1. `app/reader.py:choose_theme` decides (R1).
2. `remember_theme(name)` stores it (R2).

## Files

| path | change | symbols | requirements |
| --- | --- | --- | --- |
| `app/reader.py` | modify | `choose_theme`, `ArticleReader.render_article`, `remember_theme` (new) | R1 |
| `app/themes.py` | add | `Theme` | R2 |

## Interfaces

- `remember_theme(name: str) -> None`

## Failure modes

None that lose data.

## Test plan

- `test_dark (R1)` and `test_remembered (R2)`

## Rollout

At once.

## Open questions

None.
"""


def check(draft: str, folder: Path) -> CheckResult:
    with indexed(make_project(folder / "p"), folder / "i.db") as index:
        return check_draft(draft, ISSUE, index)


def test_a_design_that_names_what_exists_has_no_findings(tmp_path: Path) -> None:
    result = check(DESIGN, tmp_path)

    assert result.findings == [] and result.unchecked == []
    assert len(result.paths) == 2 and len(result.symbols) == 2


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("## Rollout\n\nAt once.\n", "", "the section `Rollout` is missing"),
        ("At once.", "", "the section `Rollout` is empty"),
        ("## Context", "## Interfaces", "the section `Context` is missing"),
        ("- **R2** It is remembered.\n", "", "`Requirements` leaves out R2 of the issue"),
        (" (R2).", ".", "`Design` does not name R2"),
        (" and `test_remembered (R2)`", "", "`Test plan` does not name R2"),
        ("| modify |", "| change |", "expected add, modify or delete"),
        (
            "| `app/reader.py` |",
            "| `app/readers.py` |",
            "there is no `app/readers.py` to modify; did you mean `app/reader.py`",
        ),
        ("`app/themes.py` | add", "`app/storage/store.py` | add", "it exists: write modify"),
        ("`app/themes.py` | add", "`backend/ui/themes.py` | add", "there is no folder backend/ui/"),
        (
            "`app/themes.py` | add",
            "`app/storage/store.py` | delete",
            "`app/storage/store.py` defines no `Theme`",
        ),
        (
            "`choose_theme`,",
            "`pick_theme`,",
            "`app/reader.py` defines no `pick_theme`; did you mean `app/reader.py:choose_theme`",
        ),
        ("`app/reader.py` changes", "`reader/app.py` changes", "there is no `reader/app.py`"),
        ("py:choose_theme` decides", "py:Chooser.run` decides", "`app/reader.py` defines no `Chooser.run`"),
        ("- `remember_theme(name: str) -> None`", "- none", ""),
        (
            "2. `remember_theme(name)`",
            "2. `save(name)`",
            "the flow uses `save(name)`, which `Interfaces` does not list",
        ),
    ],
)
def test_each_defect_is_found(tmp_path: Path, old: str, new: str, finding: str) -> None:
    assert old in DESIGN
    result = check(DESIGN.replace(old, new, 1), tmp_path)

    if finding:
        assert any(finding in found for found in result.findings), result.findings
    else:
        assert result.findings == []


def test_what_cannot_be_checked_is_said() -> None:
    result = check_draft(DESIGN, "# Dark theme\n\nIt is too bright.\n", None)

    assert result.findings == []
    assert result.summary == (
        "no findings, 0 paths and 0 symbols compared with the code; "
        "not checked: whether every requirement of the issue is covered (the issue numbers none); "
        "not checked: paths and symbols (no code is indexed)"
    )


def test_a_file_that_the_design_adds_may_be_cited(tmp_path: Path) -> None:
    draft = DESIGN.replace(
        "Readers want it.", "See `app/themes.py:Theme` and `themes.py`, `data/out.epub`, `a/b`."
    )

    assert check(draft, tmp_path).findings == []


def test_ten_invented_paths_and_ten_invented_symbols_are_caught_and_no_true_one(tmp_path: Path) -> None:
    """Against the code of this package; the true names come from Python's own parser, not from the index."""
    chance = random.Random(15)
    true_paths = chance.sample(sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")), 25)
    true_symbols = chance.sample(sorted(_symbols()), 25)
    invented_paths = [
        f"{folder}/{name}.py"
        for folder, name in zip(
            ["core", "services", "run", "api/v2", "storage", "worker", "outputs", "utils", "models", "cli"],
            [
                "engine_core",
                "reader",
                "orchestration",
                "routes",
                "repository",
                "pipeline",
                "theme",
                "helpers",
                "mistral",
                "serve",
            ],
            strict=True,
        )
    ]
    invented_symbols = [
        f"core/quota/pool.py:{name}"
        for name in ["KeyVault", "Pool.rotate_keys", "acquire_all_keys", "PoolConfig", "Pool.drain_now"]
    ] + [
        f"workflows/lld.py:{name}"
        for name in [
            "DesignFactory",
            "LldWorkflow.approve_all",
            "load_config",
            "RenderMode",
            "LldWorkflow.theme",
        ]
    ]
    named = [*true_paths, *true_symbols, *invented_paths, *invented_symbols]
    chance.shuffle(named)
    draft = "# Design\n\n## Context\n\n" + "\n".join(f"- see `{name}`" for name in named)

    # A copy: the index would otherwise show the last commit, and the parser what is being worked on.
    shutil.copytree(SOURCE, tmp_path / "p", ignore=shutil.ignore_patterns("__pycache__"))
    with indexed(tmp_path / "p", tmp_path / "i.db") as index:
        result = check_draft(draft, ISSUE, index, with_form=False)

    def is_flagged(name: str) -> bool:
        path, _, symbol = name.partition(":")
        return any(f"`{path}`" in finding and f"`{symbol or path}`" in finding for finding in result.findings)

    assert len(true_paths) + len(true_symbols) == 50
    assert [name for name in (*invented_paths, *invented_symbols) if not is_flagged(name)] == []
    assert len(result.findings) == 20


def _symbols() -> set[str]:
    """`path:Class.method` and `path:function` of every module."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(f"{name}:{node.name}")
            if isinstance(node, ast.ClassDef):
                methods = (
                    inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
                )
                found.update(f"{name}:{node.name}.{method.name}" for method in methods)
    return found
