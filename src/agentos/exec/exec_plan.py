"""What `agentos exec` was asked for, and which items it would run."""

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.settings import Settings
from agentos.core.errors import PreflightError, UsageError
from agentos.core.planning.exec_command import (
    WorkspaceKind,
    exec_items,
    has_placeholder,
    record_name,
    workflow_name,
)
from agentos.core.planning.items import Candidate, Column, Gone, ItemStatus
from agentos.core.planning.plan import Plan, Selection, gone_item, make_plan
from agentos.exec.agents import AgentChoice
from agentos.exec.done_markers import DoneMarkers
from agentos.outputs.format import name_list
from agentos.storage.home import Home
from agentos.storage.locks import ItemLocks
from agentos.storage.runs import failed_before


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the user asked `agentos exec` for.

    sources: the items, as paths of files or any other text.
    program: the arguments after `--`, with their placeholders.
    retry_codes, retry_any: exit codes after which an item is tried again.
    variables: additional environment variables of the program.
    piped: the items that came from standard input, which the command alone cannot repeat.
    repo: the folder the user named; None: the current folder, with the settings of the project that contains it.
    isolation: what each item gets to work in; None: the project itself.
    agent: the agent that `program` starts, if the user named one of those that we know.
    columns: the rows of the items that come from a table.
    rerun_changed: whether items are done again if their content changed since.
    keep_order: whether output is shown in the order of the items.
    sandbox: whether programs are kept from everything but their folder and the gateway.
    """

    sources: tuple[str, ...]
    program: tuple[str, ...]
    selection: Selection
    settings: Settings
    command: str
    retry_codes: tuple[int, ...] = ()
    retry_any: bool = False
    variables: Mapping[str, str] | None = None
    joblog: Path | None = None
    json: bool = False
    display: str = "auto"
    gateway: bool = True
    piped: tuple[str, ...] = ()
    repo: Path | None = None
    isolation: WorkspaceKind | None = None
    offline: bool = False
    max_wait: float | None = None  # seconds
    agent: AgentChoice | None = None
    columns: Mapping[str, tuple[Column, ...]] | None = None
    rerun_changed: bool = False
    keep_order: bool = False
    sandbox: bool = False

    @property
    def name(self) -> str:
        """Derived from what the user typed, because the flags that we add for an agent may change between versions."""
        return workflow_name((self.agent.name, *self.agent.words) if self.agent else self.program)


def plan_exec(request: ExecRequest) -> Plan:
    """Plan the run without writing anything."""
    _check_program(request)
    home, project = Home(request.settings.home), request.settings.project
    records = home.program(project, request.name)
    markers, held = DoneMarkers(records), ItemLocks.inside(records).held()
    done = markers.names()
    failed = failed_before(home.runs, request.name, project, required=request.selection.failed)
    candidates = []
    for item in exec_items(request.sources, request.name, request.columns):
        name = record_name(item.source)
        is_done = name in done and not request.selection.fresh
        is_changed = is_done and request.rerun_changed and markers.is_outdated(item, project)
        status = ItemStatus.APPROVED if is_done else ItemStatus.PENDING
        candidates.append(
            Candidate(
                item,
                ItemStatus.OUTDATED if is_changed else status,
                failed_before=item.id in failed,
                held_by="another run" if name in held else None,
            )
        )
    known = {candidate.item.id for candidate in candidates}
    gone = sorted(failed - known) if request.selection.failed else ()
    candidates += [gone_item(item, request.name, Gone.FAILED) for item in gone]
    plan = make_plan(candidates, request.selection)
    if request.selection.failed:
        return plan
    return replace(plan, done=tuple(each for each in candidates if each.status is ItemStatus.APPROVED))


def explain_gone(plan: Plan, echo: Callable[[str], None]) -> None:
    """Name the items that `--failed` does not find again, such as files that a pattern matched before."""
    if plan.gone:
        names = name_list([candidate.item.id for candidate in plan.gone])
        echo(f"[COORDINATOR] Failed in the last run, but not among these items: {names}")


def explain_done(plan: Plan, echo: Callable[[str], None]) -> None:
    """Count the items that need not run again."""
    if plan.done:
        already, them = ("items are", "them") if len(plan.done) > 1 else ("item is", "it")
        echo(f"[COORDINATOR] {len(plan.done)} {already} already done; redo {them} with --fresh")


def explain_none(plan: Plan, selection: Selection, echo: Callable[[str], None]) -> int:
    """Say why nothing runs and what to type instead; returns the exit code."""
    explain_gone(plan, echo)
    for candidate in plan.held:
        echo(f"[COORDINATOR] {candidate.item.id} is being worked on by {candidate.held_by}")
    if plan.held:
        echo("[COORDINATOR] List runs: agentos runs")
    elif selection.failed and not plan.gone:
        echo(
            "[COORDINATOR] No selected item failed in the last run of this command. To run every pending item, leave out --failed"
        )
    elif not plan.gone:
        echo("[COORDINATOR] Nothing is pending: every item is done. Redo them with --fresh")
    return 0


def _check_program(request: ExecRequest) -> None:
    """Raise PreflightError if there is no such program; one whose name depends on the item is not checked."""
    program = request.program[0]
    columns = {column.name for row in (request.columns or {}).values() for column in row}
    if len(request.program) == 1 and not request.agent:
        _check_unquoted(request.settings.project, program, columns)
    if has_placeholder(program, columns):
        return
    path = str(request.settings.project / program) if "/" in program else program
    if shutil.which(path) is None:
        problem = "does not exist or is not executable" if "/" in program else "is not on the PATH"
        if request.agent:
            raise PreflightError(f"{program!r} {problem}; install it with: {request.agent.client.package}")
        raise PreflightError(f"{program!r} {problem}; expected a program after --")


def _check_unquoted(project: Path, program: str, columns: Collection[str]) -> None:
    """Raise UsageError if the command was quoted as a single word, as in `"./check.sh {item}"`."""
    first, *others = program.split()
    if not others or has_placeholder(first, columns) or shutil.which(str(project / program)):
        return
    if shutil.which(str(project / first) if "/" in first else first):
        raise UsageError(
            f"{program!r} is one argument, and no program has that name; without the quotes, it is a program and its "
            f"arguments: -- {program}"
        )
