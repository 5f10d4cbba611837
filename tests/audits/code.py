"""What the source must not contain, found in its syntax trees."""

import ast
import re
from collections.abc import Iterator

from .tree import modules

READERS = {"config/settings.py"}
PRINTERS = {"worker/main.py", "exec/worker.py", "cli/offline_server.py"}
STARTERS = {
    "codebase/index_process.py",
    "codebase/source_files.py",
    "cli/worktrees.py",
    "engines/template_client.py",
    "exec/git.py",
    "exec/sandbox.py",
    "exec/sandbox_bridge.py",
    "exec/worker.py",
    "gateway/child.py",
    "offline/child.py",
    "page/child.py",
    "platform_support.py",
    "run/done_hook.py",
    "run/prestart.py",
}
FORKERS = {"engines/reaper.py", "engines/template.py"}
OPENERS = {
    "cli/exit_codes.py": "the null device",
    "cli/init.py": "files of the package",
    "cli/offline_options.py": "files that the user names on the command line",
    "config/file.py": "a file of the package",
    "config/trust.py": "creates a new file in the home, exclusively",
    "offline/child.py": "the null device",
    "offline/server.py": "a file that the user names on the command line",
    "outputs/report/html.py": "a file of the package",
    "outputs/report/markdown.py": "a file that GitHub names in the environment",
    "outputs/report/svg_timeline.py": "a file of the package",
    "platform_support.py": "/proc and /sys",
    "page/json_http.py": "files of the package",
    "regular_files.py": "the one way",
    "storage/files.py": "folders by descriptor, and new files, exclusively",
    "workflows/node_context.py": "files of the package",
}
"""Modules that open files in another way than `regular_files`, with what they open."""
OPENED_BEFORE = {"open_regular", "private_file", "_create_tmp"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "multiprocessing"}
# The caller of the library passes its own function to its own child; no outside data is unpickled.
MAY_PICKLE = {"parallel/subprocess_call.py"}
FORBIDDEN_ATTRIBUTES = {
    ("os", "system"),
    ("os", "popen"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"),
}
ENVIRONMENT = {("os", "environ"), ("os", "getenv"), ("os", "environb")}
STARTING = {("subprocess", name) for name in ("Popen", "run", "call", "check_call", "check_output")}
FORKING = {("os", "fork"), ("os", "forkpty"), ("os", "execv"), ("os", "execve"), ("os", "posix_spawn")}


def environment_readers() -> Iterator[str]:
    """Writing is allowed: a worker stores the path of its database in its own environment."""
    for name, tree in modules().items():
        written = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        }
        uses = [node for node in _attributes(tree, ENVIRONMENT) if id(node) not in written]
        if name not in READERS:
            yield from (f"{name}, line {node.lineno}: reads the environment" for node in uses)
        elif not uses:
            yield f"{name} was expected to read the environment but does not"


def dangerous_calls() -> Iterator[str]:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            problem = _dangerous_construct(node)
            if problem and not (name in MAY_PICKLE and problem.startswith("imports multiprocessing")):
                yield f"{name}, line {getattr(node, 'lineno', 0)}: {problem}"
        yield from (
            f"{name}, line {node.lineno}: {ast.unparse(node)}"
            for node in _attributes(tree, FORBIDDEN_ATTRIBUTES)
        )


def file_openers() -> Iterator[str]:
    """Whatever a project or the home contains is opened by `regular_files`."""
    found = {name: [node for node in ast.walk(tree) if opens_file(node)] for name, tree in modules().items()}
    for name, nodes in found.items():
        if name not in OPENERS:
            lines = [getattr(node, "lineno", 0) for node in nodes]
            yield from (f"{name}, line {line}: opens a file itself; use regular_files" for line in lines)
    yield from (f"{name} was expected to open {OPENERS[name]}" for name in OPENERS if not found.get(name))


def opens_file(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="open"), args=[ast.Call(func=ast.Name(id=opener)), *_]):
            return opener not in OPENED_BEFORE
        case (
            ast.Call(func=ast.Name(id="open")) | ast.Call(func=ast.Attribute(attr="read_text" | "read_bytes"))
        ):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "io"), attr="open" | "fdopen")):
            return True
        case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str())]):
            return True
    return False


def prints() -> Iterator[str]:
    for name, tree in modules().items():
        for node in _calls(tree, "print"):
            if name not in PRINTERS:
                yield f"{name}, line {node.lineno}: calls print; only cli and outputs write to people"


def process_starters() -> Iterator[str]:
    for expected, attributes in ((STARTERS, STARTING), (FORKERS, FORKING)):
        found = {name: list(_attributes(tree, attributes)) for name, tree in modules().items()}
        yield from (f"{name} starts a process" for name in found if found[name] and name not in expected)
        yield from (f"{name} was expected to start a process" for name in expected if not found.get(name))


def _dangerous_construct(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
            return f"calls {name}"
        case ast.Import(names=names) if (
            found := {alias.name.split(".")[0] for alias in names} & FORBIDDEN_MODULES
        ):
            return f"imports {found.pop()}"
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in FORBIDDEN_MODULES:
            return f"imports {module}"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr="load")) if not _is_safe_load(node):
            return "loads YAML without the safe loader"
        case ast.keyword(arg="shell", value=ast.Constant(value=True)):
            return "shell=True"
    return None


def _is_safe_load(call: ast.AST) -> bool:
    loaders = [
        node.value for node in ast.walk(call) if isinstance(node, ast.keyword) and node.arg == "Loader"
    ]
    names = {name for loader in loaders for name in re.findall(r"\w*[Ll]oader\w*", ast.unparse(loader))}
    return bool(names) and names <= {"SafeLoader", "CSafeLoader", "_safe_yaml_loader"}


def _calls(tree: ast.Module, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


def _attributes(tree: ast.Module, wanted: set[tuple[str, str]]) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in wanted:
                yield node
        elif isinstance(node, ast.ImportFrom) and any(
            (node.module, alias.name) in wanted for alias in node.names
        ):
            # Imported by name, its uses could not be found: report the import.
            yield ast.Attribute(ast.Name("os"), "environ", ast.Load(), lineno=node.lineno, col_offset=0)
