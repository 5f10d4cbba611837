"""The context object that a graph's nodes receive: item, project folder, model access, prompts and lineage."""

import contextlib
import functools
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Protocol

from agentos.core.errors import ItemError, PreflightError
from agentos.core.planning.gates import Gate
from agentos.core.planning.plan import Item
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.regular_files import list_folder, read_regular
from agentos.workflows.file_issue import Filing

Ask = Callable[[str, ModelRequest], Awaitable[ModelResponse]]
Say = Callable[[str], None]
LineageFile = dict[str, str]
"""`path` and `sha256` of a lineage file: small enough for the graph's state, which must be JSON."""

PROJECT_PROMPTS = Path(".agentos/prompts")
_PROMPT_TAGS = ("issue", "brief", "draft", "feedback")


class Tracker(Protocol):
    """An issue tracker outside the project folder."""

    async def check(self) -> str:
        """Raises if filing is bound to fail; returns what cannot be verified in advance, or an empty string."""
        ...

    async def file(self, filing: Filing, say: Say) -> str:
        """The address of the issue, whether it was filed now or found from an earlier attempt."""
        ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Everything a node may use while it works on one item.

    - `item`, `folder`: the item, and atomic reads and writes inside the project.
    - `ask(name, request)`: calls a model. The response is stored in the checkpoint under `name`, so a node that runs
      again after a crash gets the stored response instead of paying for a new one. Use a new name for each call.
    - `say(line)`: prints a line, prefixed with the item's id, and logs it.
    - `prompts`: the folder with the workflow's prompt files; None for the built-in workflows.
    - `gates`: the human gates that park this item. `parked`: the number of the gate at which it is parked now, or 0.
    - `text`: the text of an issue that is not a file in the project, such as one from GitHub.
    - `tracker`: where to file issues; None for the project's own folder.
    """

    item: Item
    folder: Documents
    ask: Ask
    say: Say
    max_iterations: int
    prompts: Path | None = None
    gates: tuple[Gate, ...] = ()
    parked: int = 0
    text: str | None = None
    tracker: Tracker | None = None
    today: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def root(self) -> Path:
        """The project folder."""
        return self.folder.root

    @property
    def lineage(self) -> str:
        """The folder, relative to the project, that keeps every draft, verdict and piece of feedback."""
        return f"docs/lineage/active/{self.item.number}-{self.item.workflow}"

    def write_lineage(self, count: int, kind: str, text: str) -> LineageFile:
        """Writes lineage file number `count`; the returned reference belongs in the graph's state."""
        name = f"{self.lineage}/{count:03}-{kind}.md"
        content = text.encode()
        self.folder.write(name, content)
        return {"path": name, "sha256": hashlib.sha256(content).hexdigest()}

    def read_lineage(self, file: LineageFile) -> str:
        """The text of a lineage file; raises ItemError if the file was removed or changed since it was written."""
        fix = "restore it, or start over with --fresh"
        try:
            content = self.folder.read(file["path"])
        except FileNotFoundError as error:
            raise ItemError(f"{file['path']} is missing", (fix,)) from error
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise ItemError(f"{file['path']} was changed while the item was in progress", (fix,))
        return content.decode()

    def prompt(self, name: str, **texts: str) -> str:
        """The prompt `name`, with `texts` inserted for its `$placeholders`.

        A file in the project's `.agentos/prompts` takes precedence over the workflow's own. The inserted texts are
        escaped so that they cannot close the tags that enclose them.
        """
        template = self._prompt_template(f"{name}.md")
        return Template(template).safe_substitute({key: _escape_tags(text) for key, text in texts.items()})

    def _prompt_template(self, file: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return read_prompt(self.root / PROJECT_PROMPTS / file, self.root)
        try:
            return read_prompt(self.prompts / file, self.prompts) if self.prompts else load_prompt_file(file)
        except OSError as error:
            expected = (self.prompts or Path(".agentos/prompts")) / file
            raise ItemError(f"prompt {file} not found", (f"create {expected}",)) from error


def _escape_tags(text: str) -> str:
    for tag in _PROMPT_TAGS:
        text = text.replace(f"</{tag}", f"<\\/{tag}").replace(f"<{tag}>", f"<\\{tag}>")
    return text


@functools.cache
def load_prompt_file(name: str) -> str:
    """The text of one file; read once per process and shared with processes forked from it."""
    return (resources.files("agentos.workflows") / "prompts" / name).read_text("utf-8")


def read_prompt(path: Path, root: Path) -> str:
    """A prompt that does not come with the package, such as a project's own. Raises PreflightError if it is unusable."""
    raw = read_regular(path, root)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"it is not UTF-8 (byte {raw[error.start]:#04x}): save it as UTF-8"
        raise PreflightError(f"{path}, line {line}: {problem}") from error


def check_project_prompts(project: Path) -> None:
    """Raises PreflightError if one of the project's prompts cannot be used, before a call is paid for."""
    folder = project / PROJECT_PROMPTS
    for name in list_folder(folder, project):
        if name.endswith(".md"):
            read_prompt(folder / name, project)


def load_all_prompt_files() -> None:
    """Read every file now, so that processes forked later do not depend on the files."""
    for entry in (resources.files("agentos.workflows") / "prompts").iterdir():
        if entry.name.endswith((".md", ".json")):
            load_prompt_file(entry.name)
