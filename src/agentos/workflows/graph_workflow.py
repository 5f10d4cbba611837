"""A workflow made from an existing LangGraph graph: files as items, a function for its input, one for its documents."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agentos.core.errors import BrokenWorkflow, ItemError
from agentos.core.planning.items import Candidate, Item, ItemStatus
from agentos.core.protocol.ports import Documents
from agentos.core.text.values import without_accents
from agentos.regular_files import UnsafeFile, read_regular
from agentos.workflows.base import Conclusion, GraphOptions, Workflow
from agentos.workflows.markdown import MARKDOWN_SUFFIXES, page_of, split_front_matter
from agentos.workflows.node_context import NodeContext

DONE_RECORDS = ".agentos/done"
OUTPUT_EXAMPLE = "out/name.md"
MAX_SOURCE = 64 * 1024 * 1024  # bytes of one item's file
# Numbers in file names have at most nine digits; the number of a file without one is derived from its path and larger.
_FIRST_MADE_NUMBER = 10**9
_WILDCARD = re.compile(r"[*?\[]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class GraphItem:
    """An item as the functions `input` and `output` of `Workflow.from_graph` receive it.

    `id` is unique in the project and safe as part of a file name, `name` is the file's name without its suffix.
    `text` is the file's text without its front matter, which is in `meta`.
    """

    id: str
    number: int
    name: str
    title: str
    source: str
    labels: tuple[str, ...]
    path: Path
    """The file itself."""

    @property
    def text(self) -> str:
        return split_front_matter(self._content())[1]

    @property
    def meta(self) -> dict[str, object]:
        return split_front_matter(self._content())[0]

    def _content(self) -> str:
        try:
            return read_regular(self.path, None, MAX_SOURCE).decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise ItemError(f"{self.source} is not UTF-8", ("read its bytes with item.path",)) from error


Input = Callable[[GraphItem], Any]
Output = Callable[[Any, GraphItem], Mapping[str, str | bytes] | None]


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """The arguments of `Workflow.from_graph`, described there."""

    graph: Any
    items: str | Iterable[str]
    input: Input
    output: Output | None = None
    env: tuple[str, ...] = ()
    gateway: bool = True
    name: str = ""
    prefix: str = ""
    options: GraphOptions = field(default_factory=GraphOptions)


class GraphWorkflow(Workflow):
    """What `Workflow.from_graph` returns.

    An item is finished when its graph has ended and its documents are written. They are recorded in `.agentos/done`; if
    one of them is deleted, the item is pending again.
    """

    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self.origin = ""
        """Its `module:object` path, once it is loaded."""
        self.options = spec.options
        self._patterns = (spec.items,) if isinstance(spec.items, str) else tuple(spec.items)
        self.folders = tuple(dict.fromkeys(_literal_folder(pattern) for pattern in self._patterns))
        self.env = spec.env
        self.uses_gateway = spec.gateway
        self.name = spec.name or _default_name(self.folders[0])
        self.prefix = spec.prefix or re.sub(r"[^A-Z0-9]", "_", self.name.upper())[:16]

    def candidates(self, project: Path) -> list[Candidate]:
        paths = {path for pattern in self._patterns for path in project.glob(pattern)}
        relative = sorted(path.relative_to(project) for path in paths if not path.is_dir())
        shown = [path for path in relative if not any(part.startswith(".") for part in path.parts)]
        found = [self._candidate(project, path.as_posix()) for path in shown]
        return sorted(found, key=lambda candidate: min(candidate.item.number, _FIRST_MADE_NUMBER))

    def status(self, project: Path, item: Item) -> ItemStatus:
        record = self._recorded(project, item)
        if record is None or not all((project / name).exists() for name in record.documents):
            return ItemStatus.PENDING
        # A name that was given is meant; one made from the folder may be that of another graph over the same files.
        if not self._spec.name and self.origin and record.workflow not in ("", self.origin):
            raise BrokenWorkflow(
                f"{record.workflow} has finished {item.id}, and {self.origin} has the same name, {self.name!r}: give "
                f'one of them a name of its own, as in Workflow.from_graph(..., name="{_own_name(self.origin)}")'
            )
        return ItemStatus.APPROVED

    def approved_documents(self, project: Path, item: Item) -> tuple[str, ...]:
        record = self._recorded(project, item)
        return record.documents if record else ()

    def _recorded(self, project: Path, item: Item) -> "_DoneRecord | None":
        """What is recorded of a finished item; None if it is not finished."""
        try:
            record = json.loads(read_regular(project / self._record(item), project))
            documents, workflow = tuple(record["documents"]), record.get("workflow", "")
        except (OSError, UnsafeFile, ValueError, TypeError, KeyError):
            return None
        is_valid = all(isinstance(text, str) for text in (*documents, workflow))
        return _DoneRecord(documents, workflow) if is_valid else None

    def graph(self, context: NodeContext) -> Any:
        return self._spec.graph

    def input(self, context: NodeContext) -> Any:
        return self._spec.input(_graph_item(context.item, context.root))

    def publish(self, context: NodeContext, state: Any) -> str:
        """Write the documents, then the record that the item is finished. Repeating it after a crash is harmless."""
        item = _graph_item(context.item, context.root)
        documents = (self._spec.output(state, item) if self._spec.output else None) or {}
        _check_documents(documents)
        for name, content in documents.items():
            context.folder.write(name, content.encode() if isinstance(content, str) else content)
        record = {"item": item.source, "documents": sorted(documents), "workflow": self.origin}
        context.folder.write(self._record(context.item), json.dumps(record).encode())
        return next(iter(documents), "")

    def conclude(self, state: Any) -> Conclusion:
        return Conclusion()

    def tidy(self, documents: Documents, number: int) -> None:
        """Nothing to do: there is no lineage to move."""

    def _record(self, item: Item) -> str:
        return f"{DONE_RECORDS}/{self.name}/{item.id}.json"

    def _candidate(self, project: Path, source: str) -> Candidate:
        number, title, labels = None, PurePosixPath(source).stem, tuple[str, ...]()
        problems: tuple[str, ...] = ()
        raw = b""
        try:
            raw = read_regular(project / source, project, MAX_SOURCE)
        except UnsafeFile as error:
            problems = (f"{source}: it cannot be read: {error.problem}",)
        except OSError as error:
            problems = (f"{source}: it cannot be read: {error.strerror}",)
        if PurePosixPath(source).suffix in MARKDOWN_SUFFIXES:
            page = page_of(Path(source), raw.decode("utf-8", "replace"))
            number, title, labels = page.number, page.title, page.labels
        identifier = str(number)
        if number is None:
            identifier = _safe_name(source, self.folders)
            number = _FIRST_MADE_NUMBER + int(_digest(source)[:12], 16)
        item = Item(
            id=f"{self.prefix}-{identifier}",
            workflow=self.name,
            number=number,
            title=title,
            source=source,
            digest=hashlib.sha256(raw).hexdigest(),
            labels=labels,
        )
        return Candidate(item, self.status(project, item), problems=problems)


@dataclass(frozen=True, slots=True)
class _DoneRecord:
    """The documents of a finished item, and the `module:object` path of the workflow that wrote them."""

    documents: tuple[str, ...]
    workflow: str


def _graph_item(item: Item, root: Path) -> GraphItem:
    name = PurePosixPath(item.source).stem
    return GraphItem(item.id, item.number, name, item.title, item.source, item.labels, root / item.source)


def _literal_folder(pattern: str) -> str:
    """The folder before the first wildcard. Raises for a pattern that leads outside the project."""
    path = PurePosixPath(pattern)
    if not pattern or path.is_absolute() or ".." in path.parts:
        raise BrokenWorkflow(
            f'from_graph got items={pattern!r}; expected a pattern inside the project, such as "topics/*.md"'
        )
    literal = []
    for part in path.parts[:-1]:
        if _WILDCARD.search(part):
            break
        literal.append(part)
    return "/".join(literal) or "."


def _default_name(folder: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.rpartition("/")[2].lower()).strip("-")[:32]
    return name if name and name[0].isalpha() else "graph"


def _own_name(origin: str) -> str:
    return _default_name(origin.partition(":")[0].rpartition(".")[2])


def _safe_name(source: str, folders: tuple[str, ...]) -> str:
    """The file's path below the items' folder, as an id; with a hash appended if the path had to be changed."""
    folder = next((folder for folder in folders if source.startswith(f"{folder}/")), "")
    name = source.removeprefix(f"{folder}/").removesuffix(PurePosixPath(source).suffix)
    safe = _UNSAFE.sub("-", without_accents(name)).strip("-.")[:40]
    return safe if safe == name else f"{safe}-{_digest(source)[:6]}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _check_documents(documents: object) -> None:
    if not isinstance(documents, Mapping) or not all(
        isinstance(name, str) and isinstance(content, str | bytes) for name, content in documents.items()
    ):
        raise ItemError(
            f"output() returned {repr(documents)[:80]}; expected a dict of paths in the project and their text"
        )
    for name in documents:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ItemError(
                f"output() returned the path {name!r}; expected one inside the project, such as {OUTPUT_EXAMPLE!r}"
            )
