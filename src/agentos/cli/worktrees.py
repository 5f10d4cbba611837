"""`agentos worktrees`: what the items of `agentos exec --worktree` and `--copy` changed, and what to do with it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import print_json

if TYPE_CHECKING:
    from agentos.exec.workspace import Workspaces, WorkspaceState

EPILOG = """\b
Examples:
  agentos worktrees                     list them: changes, conflicts, state
  agentos worktrees diff fix-login      what one item changed
  agentos worktrees merge               merge all that are finished, in order
  agentos worktrees merge fix-login
  agentos worktrees pr fix-login        push its branch and open a pull request
  agentos worktrees prune               remove those that are merged
  agentos worktrees prune fix-login --force
"""


class _AllWorkspaces:
    """The worktrees and copies of a project together; an item is looked up in both."""

    def __init__(self, repo: Path | None) -> None:
        from agentos.config.project import working_folder
        from agentos.config.settings import Flags, read_settings
        from agentos.core.errors import PreflightError
        from agentos.core.planning.exec_command import WorkspaceKind
        from agentos.exec.workspaces import open_workspaces, workspace_spec
        from agentos.storage.home import Home

        settings = read_settings(Flags(repo=repo))
        self._stores: list[Workspaces] = []
        for folder in dict.fromkeys((settings.project if repo else working_folder(), settings.project)):
            for kind in WorkspaceKind:
                if Home(settings.home).workspaces(folder, kind.folder).is_dir():
                    try:
                        self._stores.append(
                            open_workspaces(workspace_spec(Home(settings.home), folder, kind))
                        )
                    except PreflightError as error:
                        click.echo(f"Skipped: {error}", err=True)

    def states(self) -> list["WorkspaceState"]:
        return [store.state(item) for store in self._stores for item in store.items()]

    def find(self, item: str) -> tuple["Workspaces", str]:
        """Find an item's workspaces and its name there; an item may also be given as a path."""
        from agentos.core.errors import NothingMatches

        for store in self._stores:
            if item in store.items():
                return store, item
        source = os.path.normpath(item)
        for store in self._stores:
            for name in store.items():
                if os.path.normpath(store.source(name)) == source:
                    return store, name
        raise NothingMatches(f"{item!r} has no worktree here; list them: agentos worktrees")


@click.pass_context
def _group(ctx: click.Context, /, repo: Path | None, as_json: bool) -> int:
    return _list(repo, as_json) if ctx.invoked_subcommand is None else 0


def _list(repo: Path | None, as_json: bool) -> int:
    states = _AllWorkspaces(repo).states()
    if as_json:
        from agentos.core.protocol.codec import pack

        print_json({"worktrees": [pack(state) for state in states]})
        return 0
    if not states:
        click.echo("No worktrees. Make them with: agentos exec --worktree --items '*.md' -- my-agent {item}")
        return 0
    from agentos.core.text.line_assembler import one_line

    width = max(len(state.item) for state in states)
    for state in states:
        click.echo(f"{state.item:<{width}}  {_state_text(state)}")
        owner = f" of {one_line(state.source)}" if state.source else ""
        click.echo(f"{'':<{width}}  {state.branch or 'copy'}{owner} in {state.path}")
    pending = [state for state in states if state.files and not state.is_merged and not state.is_missing]
    if any(not state.conflicts for state in pending):
        click.echo("See one: agentos worktrees diff ITEM. Merge all: agentos worktrees merge")
    elif pending:
        click.echo(_by_hand(pending[0]))
    elif unfinished := [state for state in states if state.uncommitted]:
        click.echo(
            f"Uncommitted changes are in {unfinished[0].path}: run the item's command again, or commit them there"
        )
    elif any(state.is_merged for state in states):
        click.echo("Remove what is merged: agentos worktrees prune")
    return 0


def _by_hand(state: "WorkspaceState") -> str:
    """What to do if every remaining item conflicts."""
    merge = (
        f" Merge one by hand: git merge {state.branch}" if state.branch else " Copy what you want by hand."
    )
    return f"See one: agentos worktrees diff {state.item}.{merge}"


def _state_text(state: "WorkspaceState") -> str:
    from agentos.exec.workspace import repositories_text
    from agentos.outputs.format import count

    if state.is_missing:
        return f"deleted; drop its record: agentos worktrees prune {state.item} --force"
    parts = [count(state.files, "file") + " changed"]
    if state.branch:
        parts[0] += f" (+{state.added_lines} -{state.removed_lines}), {count(state.commits, 'commit')}"
    if state.uncommitted:
        parts.append(f"{count(state.uncommitted, 'uncommitted file')}")
    if state.left_out:
        parts.append(f"contains {repositories_text(state.left_out)}")
    if state.files:
        base = state.base if state.branch else "the project"
        if state.is_merged:
            parts.append(f"merged into {base}")
        else:
            parts.append(
                f"conflicts with {base} in {', '.join(state.conflicts)}"
                if state.conflicts
                else "no conflicts"
            )
    return ", ".join(parts)


def _diff(item: str, repo: Path | None, stat: bool) -> int:
    store, name = _AllWorkspaces(repo).find(item)
    command = store.diff(name, *(("--stat",) if stat else ()))
    sys.stdout.flush()
    # git and diff exit with 1 if there are differences, which is not a failure here.
    return 0 if subprocess.run(command, check=False).returncode in (0, 1) else 1


def _merge(items: tuple[str, ...], repo: Path | None) -> int:
    from agentos.exec.workspace import WorkspaceError

    workspaces = _AllWorkspaces(repo)
    names = items or tuple(
        state.item
        for state in workspaces.states()
        if state.files and not state.is_merged and not state.is_missing
    )
    if not names:
        click.echo("Nothing to merge.")
        return 0
    failed = []
    for name in names:
        try:
            store, found = workspaces.find(name)
            store.merge(found)
            click.echo(f"Merged {found}")
        except WorkspaceError as error:
            failed.append(name)
            click.echo(f"Not merged: {error}", err=True)
    if not failed:
        click.echo("Remove what is merged: agentos worktrees prune")
    return 1 if failed else 0


def _pull_request(item: str, repo: Path | None) -> int:
    from agentos.config.settings import Flags, read_settings
    from agentos.core.errors import PreflightError
    from agentos.exec.pull_request import open_pull_request
    from agentos.exec.workspace import WorkspaceError
    from agentos.exec.worktrees import Worktrees
    from agentos.workflows.github.client import ResponseLost

    store, item = _AllWorkspaces(repo).find(item)
    if not isinstance(store, Worktrees):
        raise PreflightError(
            f"{item} is a copy, which has no branch; copy its changes into the project: agentos worktrees merge {item}"
        )
    try:
        pushed = store.push(item)
        click.echo(f"Pushed {pushed.branch}", err=True)
        click.echo(
            open_pull_request(
                read_settings(Flags(repo=repo)), pushed, lambda text: click.echo(text, err=True)
            )
        )
    except WorkspaceError as error:
        raise PreflightError(f"cannot push {item}: {error}") from error
    except ResponseLost as error:
        raise PreflightError(
            f"no response from GitHub ({error}); run the same command again: it opens no second one"
        ) from error
    return 0


def _prune(items: tuple[str, ...], repo: Path | None, force: bool) -> int:
    from agentos.exec.workspace import WorkspaceError
    from agentos.outputs.format import count

    if force and not items:
        raise click.UsageError(
            "--force needs the names of the worktrees to drop: agentos worktrees prune ITEM --force"
        )
    workspaces = _AllWorkspaces(repo)
    names = items or tuple(state.item for state in workspaces.states())
    removed, kept = 0, 0
    for name in names:
        try:
            store, found = workspaces.find(name)
            store.remove(found, force=force)
            removed += 1
        except WorkspaceError as error:
            kept += 1
            click.echo(f"Kept: {error}", err=True)
    click.echo(f"Removed {count(removed, 'worktree')}, kept {kept}.")
    return 1 if items and kept else 0


def _repo() -> click.Option:
    return click.Option(
        ["--repo"], type=click.Path(path_type=Path, file_okay=False), help="Project folder (current folder)."
    )


_ITEMS = click.Argument(["items"], nargs=-1, metavar="[ITEM]...")
command = click.Group(
    "worktrees",
    invoke_without_command=True,
    callback=_group,
    params=[_repo(), click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")],
    help="List what the items of `agentos exec --worktree` or `--copy` changed; show, merge or remove it.",
    epilog=EPILOG,
    commands=[
        click.Command(
            "diff",
            callback=_diff,
            params=[
                click.Argument(["item"]),
                click.Option(["--stat"], is_flag=True, help="Only the changed files, not the lines."),
                _repo(),
            ],
            help="Show what an item changed since it started.",
        ),
        click.Command(
            "merge",
            callback=_merge,
            params=[_ITEMS, _repo()],
            help="Merge items into the branch that is checked out, in order; a conflict changes nothing.",
        ),
        click.Command(
            "pr",
            callback=_pull_request,
            params=[click.Argument(["item"]), _repo()],
            help="Push an item's branch to origin and open a pull request on GitHub.",
        ),
        click.Command(
            "prune",
            callback=_prune,
            params=[
                _ITEMS,
                click.Option(["--force"], is_flag=True, help="Drop the named items even if work is lost."),
                _repo(),
            ],
            help="Remove worktrees whose changes are merged; nothing unsaved is removed without --force.",
        ),
    ],
)
