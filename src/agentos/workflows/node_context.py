"""What a node works with: the item, the project's folder, the model, the lineage."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Protocol

from agentos.core.errors import ItemError
from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Item
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.workflows.file_issue import Filing
from agentos.workflows.prompt_files import load_prompt_file

Ask = Callable[[str, ModelRequest], Awaitable[ModelResponse]]
Say = Callable[[str], None]
Kept = dict[str, str]

_TAGS = ("issue", "brief", "draft", "feedback")


class Tracker(Protocol):
    """Where issues are filed when it is not the project's folder."""

    async def check(self) -> str: ...

    async def file(self, filing: Filing, say: Say) -> str:
        """The address of the issue, filed now or found."""
        ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """`ask` keeps each answer under its call's name, so that a crash does not pay twice.

    `gates` are those that park the item; `parked` is the number of the one that it is parked at already.
    `text` is that of an issue that stands in no file.
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
        return self.folder.root

    @property
    def lineage(self) -> str:
        return f"docs/lineage/active/{self.item.number}-{self.item.workflow}"

    def keep(self, count: int, kind: str, text: str) -> Kept:
        """Writes a lineage file; its place and hash are what the state remembers."""
        name = f"{self.lineage}/{count:03}-{kind}.md"
        content = text.encode()
        self.folder.write(name, content)
        return {"path": name, "sha256": hashlib.sha256(content).hexdigest()}

    def fetch(self, kept: Kept) -> str:
        """A lineage file's text; it must be what was kept."""
        cure = "put it back, or start over with --fresh"
        try:
            content = self.folder.read(kept["path"])
        except FileNotFoundError as error:
            raise ItemError(f"{kept['path']} is gone", (cure,)) from error
        if hashlib.sha256(content).hexdigest() != kept["sha256"]:
            raise ItemError(f"{kept['path']} was changed while the item was under way", (cure,))
        return content.decode()

    def prompt(self, name: str, **texts: str) -> str:
        """A prompt from the project's `.agentos/prompts`, or the workflow's; texts cannot close their tags."""
        template = self._template(f"{name}.md")
        return Template(template).safe_substitute({key: _enclosed(text) for key, text in texts.items()})

    def _template(self, file: str) -> str:
        try:
            return self.folder.read(f".agentos/prompts/{file}").decode()
        except (FileNotFoundError, NotADirectoryError):
            pass
        try:
            return (self.prompts / file).read_text("utf-8") if self.prompts else load_prompt_file(file)
        except OSError as error:
            place = self.prompts or Path(".agentos/prompts")
            raise ItemError(f"there is no prompt {file}", (f"write {place / file}",)) from error


def _enclosed(text: str) -> str:
    for tag in _TAGS:
        text = text.replace(f"</{tag}", f"<\\/{tag}").replace(f"<{tag}>", f"<\\{tag}>")
    return text
