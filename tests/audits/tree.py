"""The files of the repository, as git lists them."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "agentos"
DEMO_CODE = SOURCE / "demo_backlog" / "codebase"


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file that is in the repository or would be added by the next commit."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return tuple(sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()}))


@functools.cache
def modules() -> dict[str, ast.Module]:
    """The syntax tree of every module, by its path below `src/agentos`; the code that the demo is about is not ours."""
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text("utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
        if DEMO_CODE not in path.parents
    }


def functions_of(path: Path) -> set[str]:
    """The names of all functions and methods in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
