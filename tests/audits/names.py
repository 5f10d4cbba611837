"""One name has one meaning: no class name twice, no module name for two jobs, no documented module that is missing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from .pages import pages
from .tree import SOURCE, modules

SAME_JOB = {
    "client.py": "sends requests to one service",
    "server.py": "accepts connections and answers requests",
    "refusals.py": "the refusal type in core, and one reader of refusals for each vendor",
    "child.py": "starts one helper process and owns it",
    "builder.py": "composition root of a kind of run",
    "base.py": "what the modules of its package implement",
    "registry.py": "finds an implementation by its name",
    "markdown.py": "reads or writes Markdown for its package",
    "locks.py": "item locks: in storage, and their public face in the library",
    "credentials.py": "credentials: in the core, and their public face in the library",
    "console.py": "writes prefixed lines for people",
    "facts.py": "what its package knows about one document or run",
    "queue.py": "items that wait: for a worker, or for a reviewer",
}
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")
OTHER_ROOTS = ("tests/", "bench/", "docs/", "examples/")


def repeated_class_names() -> Iterator[str]:
    places = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    yield from (f"class {name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1)


def repeated_module_names() -> Iterator[str]:
    """Modules of one name must share the job listed above; a file in cli/ is named after its command."""
    places = defaultdict(list)
    for name in modules():
        path = PurePosixPath(name)
        if not path.name.startswith("__") and path.parts[0] != "cli":
            places[path.name].append(name)
    repeated = {name: found for name, found in places.items() if len(found) > 1}
    yield from (f"{name}: {', '.join(found)}" for name, found in repeated.items() if name not in SAME_JOB)


def missing_modules() -> Iterator[str]:
    """Modules that a page names in backticks, such as `core/quota/pool.py`."""
    for page in pages().values():
        named = {found for code in page.code() for found in MODULE.findall(f"`{code}`")}
        for name in sorted(named):
            if (
                not name.startswith(OTHER_ROOTS)
                and not (SOURCE / name.removeprefix("src/agentos/")).is_file()
            ):
                yield f"{page.name}: {name}"
