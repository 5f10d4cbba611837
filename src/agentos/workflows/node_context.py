"""The context object that a graph's nodes receive: item, project folder, model access, prompts and lineage."""

import asyncio
import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Protocol

from agentos.core.errors import ItemError, PreflightError
from agentos.core.planning.gates import Gate, GateRequest, ReviewDecision
from agentos.core.planning.items import Item
from agentos.core.protocol.codec import pack, unpack
from agentos.core.protocol.ports import Documents, ModelRequest, ModelResponse
from agentos.regular_files import list_folder, read_regular
from agentos.workflows.current_item import current_item, wait_for
from agentos.workflows.file_issue import Filing

if TYPE_CHECKING:
    from agentos.codebase.project_code import ProjectCode
    from agentos.codebase.related import RelatedDocument

Ask = Callable[[str, ModelRequest], Awaitable[ModelResponse]]
Say = Callable[[str], None]
Forget = Callable[..., Awaitable[None]]
LineageFile = dict[str, str]
"""`path` and `sha256` of a lineage file: small enough for the graph's state, which must be JSON."""

PROJECT_PROMPTS = Path(".agentos/prompts")
_PROMPT_TAGS = "issue|brief|draft|feedback|verdict|project|code|related|check"
_START_OF_TAG = re.compile(rf"<(?=/(?:{_PROMPT_TAGS})|(?:{_PROMPT_TAGS})>)")
PROMPT_VARIABLES: dict[str, tuple[str, ...]] = {
    "lld_draft.md": ("source", "draft", "feedback", "length", "project", "code", "check"),
    "lld_review.md": ("source", "draft", "verdict", "project", "code", "check"),
    "issue_draft.md": ("source", "draft", "feedback", "length", "related", "check"),
    "issue_review.md": ("source", "draft", "verdict", "related", "check"),
}
"""The variables that each built-in prompt may use; the first one is required."""
SYSTEM, SHARED, ITEM, ROUND = "system", "shared", "item", "round"
_DIVIDER = re.compile(rf"<!-- ({SHARED}|{ITEM}|{ROUND}) -->")


class Tracker(Protocol):
    """An issue tracker outside the project folder."""

    async def check(self) -> str:
        """Raises if filing is bound to fail; returns what cannot be verified in advance, or an empty string."""
        ...

    async def refresh(self) -> None:
        """Read the issues that were filed since the run started, so that `related` includes them."""
        ...

    def related(self, text: str, count: int) -> "list[RelatedDocument]":
        """The tracker's issues that are most similar to the text, best first."""
        ...

    async def file(self, filing: Filing, say: Say) -> str:
        """The address of the issue, whether it was filed now or found from an earlier attempt."""
        ...


async def _forget_nothing(*names: str) -> None:
    """For contexts without a checkpoint."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Everything a node may use while it works on one item.

    - `item`, `folder`: the item, and atomic reads and writes inside the project.
    - `ask(name, request)`: calls a model. The response is stored in the checkpoint, so a node that runs again after a
      crash gets it instead of paying for a new one: it belongs to the name, the prompt and this run of the node. Two
      calls with the same prompt in one node need different names.
    - `ask_sync(name, request)`: the same for a node that is not async.
    - `forget(*names)`: drops stored responses of this node that are of no use, so that the next run asks again.
    - `say(line)`: prints a line, prefixed with the item's id, and logs it.
    - `prompts`: the folder with the workflow's prompt files; None for the built-in workflows.
    - `gates`: the human gates that park this item. `parked`: the number of the gate at which it is parked now, or 0.
    - `decision(request)`: a person's decision at a gate for which the run was started with `--review`.
    - `text`: the text of an issue that is not a file in the project, such as one from GitHub.
    - `code`: the project's code, for a workflow with `uses_code`; None if `code_tokens` is 0 or there is no code.
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
    code: "ProjectCode | None" = None
    forget: Forget = _forget_nothing
    today: Callable[[], datetime] = lambda: datetime.now(UTC)

    def ask_sync(self, name: str, request: ModelRequest) -> ModelResponse:
        """`ask` for a node that is not async. In an async one it raises at once: it would block the node."""
        call = self._asking(name, request)
        item = current_item()
        return asyncio.run(call) if item is None else wait_for(item, call, "await context.ask(...)")

    async def _asking(self, name: str, request: ModelRequest) -> ModelResponse:
        """`ask` as a coroutine that starts nothing before it is awaited."""
        return await self.ask(name, request)

    def decision(self, request: GateRequest) -> ReviewDecision | None:
        """Park the item at this gate until a person decides; None if the gate was not asked for with `--review`.

        Requests are numbered: keep the number of the last decision in the graph's state, and ask with the next.
        """
        if request.gate not in self.gates and request.number != self.parked:
            return None
        from langgraph.types import interrupt

        decision: ReviewDecision = unpack(ReviewDecision, json.loads(interrupt(pack(request))))
        return decision

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
        escaped so that they cannot close the tags that enclose them. Raises ItemError for a placeholder without a text.
        """
        return self._fill(self._prompt_template(f"{name}.md"), texts)

    def model_request(self, role: str, name: str, **texts: str) -> ModelRequest:
        """The prompt `name` as a request to the model of the role.

        The lines `<!-- shared -->`, `<!-- item -->` and `<!-- round -->` divide a prompt file by how often its parts
        change: first the instructions, sent as the system message, then what all items share, what all calls of an item
        share, and the rest. Providers cache prompts by prefix. A file without such lines becomes one message.
        """
        parts = split_prompt(self._prompt_template(f"{name}.md"))
        filled = {part: self._fill(text, texts).strip() for part, text in parts.items()}
        context = tuple(filled[part] for part in (SHARED, ITEM) if filled.get(part))
        return ModelRequest(role, filled[ROUND], system=filled.get(SYSTEM, ""), context=context)

    def uses_variable(self, name: str, variable: str) -> bool:
        """Whether the prompt `name` inserts this variable; a project's own version may omit it."""
        return f"${variable}" in self._prompt_template(f"{name}.md").replace("{", "").replace("}", "")

    def _fill(self, template: str, texts: Mapping[str, str]) -> str:
        if problem := variable_problem(template, tuple(texts)):
            raise ItemError(f"a prompt cannot be filled: {problem}")
        return Template(template).safe_substitute({key: _escape_tags(text) for key, text in texts.items()})

    def has_own_prompt(self, name: str) -> bool:
        """Whether the project replaces the prompt `name` with its own."""
        return f"{name}.md" in list_folder(self.root / PROJECT_PROMPTS, self.root)

    def _prompt_template(self, file: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return read_prompt(self.root / PROJECT_PROMPTS / file, self.root)
        try:
            return read_prompt(self.prompts / file, self.prompts) if self.prompts else load_prompt_file(file)
        except OSError as error:
            expected = (self.prompts or Path(".agentos/prompts")) / file
            raise ItemError(f"prompt {file} not found", (f"create {expected}",)) from error


def split_prompt(template: str) -> dict[str, str]:
    """The parts of a prompt file by name; a file without dividing lines has only the part `ROUND`."""
    parts, name = {SYSTEM: ""}, SYSTEM
    for line in template.splitlines(keepends=True):
        if (found := _DIVIDER.fullmatch(line.strip())) is not None:
            name = found[1]
            parts.setdefault(name, "")
        else:
            parts[name] += line
    return parts if ROUND in parts else {ROUND: template}


def variable_problem(template: str, known: tuple[str, ...]) -> str:
    """The first placeholder that has no text, with its line and what exists; empty if there is none."""
    for found in Template.pattern.finditer(template):
        name = found["named"] or found["braced"]
        if name and name not in known:
            line = template.count("\n", 0, found.start()) + 1
            names = ", ".join(f"${each}" for each in known)
            return (
                f"line {line}: unknown variable ${name}: expected one of {names}; write $$ for a dollar sign"
            )
    return ""


def _escape_tags(text: str) -> str:
    return _START_OF_TAG.sub(r"<\\", text)


@functools.cache
def load_prompt_file(name: str) -> str:
    """The text of one file; read once per process and shared with the processes forked from it."""
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
    for name in sorted(list_folder(folder, project)):
        if not name.endswith(".md"):
            continue
        text = read_prompt(folder / name, project)
        if known := PROMPT_VARIABLES.get(name):
            if problem := variable_problem(text, known):
                raise PreflightError(f"{folder / name}, {problem}")
            if f"${known[0]}" not in text and f"${{{known[0]}}}" not in text:
                raise PreflightError(
                    f"{folder / name}: it does not use ${known[0]}, so a model would not see what to work on; "
                    f"start from the original: agentos prompts eject {name.removesuffix('.md')}"
                )


def load_all_prompt_files() -> None:
    """Read every file now, so that processes forked later do not depend on the files."""
    for entry in (resources.files("agentos.workflows") / "prompts").iterdir():
        if entry.name.endswith((".md", ".json")):
            load_prompt_file(entry.name)
