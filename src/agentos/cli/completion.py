"""`agentos completion`: prints or installs shell completion scripts."""

import contextlib
import os
import shlex
from pathlib import Path

import click

from agentos.core.errors import PreflightError, UsageError

PROGRAMS = ("agentos", "lld-workflow", "issue-workflow")
SHELLS = ("bash", "zsh", "fish")
_LOAD_COMPINIT = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"


def _run(shell: str | None, install: bool) -> int:
    if shell is None:
        if not install:
            raise click.UsageError(f"name a shell: agentos completion {'|'.join(SHELLS)}")
        shell = _login_shell()
    if not install:
        click.echo("".join(_script(shell, program) for program in PROGRAMS), nl=False)
        return 0
    try:
        (_install_fish if shell == "fish" else _install)(shell)
    except OSError as error:
        raise PreflightError(
            f"cannot write {error.filename}: {error.strerror}. Install the script yourself: agentos completion {shell}"
        ) from error
    click.echo(f"Open a new terminal to use it, or type: exec {shell}")
    return 0


def _login_shell() -> str:
    from agentos.config.settings import environment

    name = os.path.basename(environment().get("SHELL", ""))
    if name not in SHELLS:
        raise UsageError(f"your shell is {name or 'unknown'}: name one of {', '.join(SHELLS)}")
    return name


def _script(shell: str, program: str) -> str:
    from click.shell_completion import get_completion_class

    from agentos.cli.group import LazyGroup

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    completion = completion_class(LazyGroup(), {}, program, f"_{program.replace('-', '_').upper()}_COMPLETE")
    # Not source(): it runs bash to check its version, even if the script is for another machine.
    return completion.source_template % completion.source_vars() + "\n"


def _install(shell: str) -> None:
    """Write the script, and load it from the shell's start file, which is faster than running agentos there."""
    from agentos.config.settings import environment

    env = environment()
    home = Path(env.get("HOME") or "~").expanduser()
    script = Path(env.get("XDG_DATA_HOME") or home / ".local/share") / f"agentos/completion.{shell}"
    start_file = Path(env.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
    text = "".join(_script(shell, program) for program in PROGRAMS)
    _write(script, _LOAD_COMPINIT + text if shell == "zsh" else text)
    click.echo(f"Wrote {_shown(script, home)}")
    quoted = shlex.quote(str(script))
    line = f"[ -r {quoted} ] && . {quoted}"
    if line in _read(start_file).splitlines():
        click.echo(f"{_shown(start_file, home)} reads it already")
        return
    _append(start_file, f"# Completion of agentos\n{line}\n")
    click.echo(f"Added a line to {_shown(start_file, home)} that reads it")


def _install_fish(shell: str) -> None:
    """fish finds the completions of each program by their file name."""
    from agentos.config.settings import environment

    env = environment()
    home = Path(env.get("HOME") or "~").expanduser()
    folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions"
    for program in PROGRAMS:
        _write(folder / f"{program}.fish", _script(shell, program))
        click.echo(f"Wrote {_shown(folder / f'{program}.fish', home)}")


def _shown(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _write(path: Path, text: str) -> None:
    from agentos.storage.files import Folder

    path.parent.mkdir(parents=True, exist_ok=True)
    Folder(path.parent, file_mode=0o644).write(path.name, text.encode())


def _read(path: Path) -> str:
    from agentos.regular_files import read_regular

    with contextlib.suppress(FileNotFoundError):
        return read_regular(path, follow=True).decode("utf-8", "replace")
    return ""


def _append(path: Path, text: str) -> None:
    """Append to a start file. It is often a link into a folder of dotfiles, so links are followed."""
    from agentos.regular_files import open_regular

    separator = "\n" if _read(path) and not _read(path).endswith("\n") else ""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with open(open_regular(path, flags=flags, mode=0o644, follow=True), "a", encoding="utf-8") as file:
        file.write(separator + text)


command = click.Command(
    "completion",
    help="Print a script that makes a shell complete commands, flags, items and runs, or install it.",
    params=[
        click.Argument(["shell"], type=click.Choice(SHELLS), required=False),
        click.Option(
            ["--install"],
            is_flag=True,
            help="Install it for you: a script, and a line in ~/.bashrc or ~/.zshrc that reads it. "
            "Without a shell: your login shell.",
        ),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos completion --install\n  agentos completion zsh --install\n"
    "  source <(agentos completion bash)",
)
