"""The `agentos` command group, which imports a subcommand's module only when it is used."""

import importlib

import click

COMMANDS = {
    "run": "Run a workflow on backlog items: agentos run lld --all --parallel 3",
    "exec": "Run any program once per item: agentos exec --items '*.md' -- my-agent {item}",
    "worktrees": "Show, merge and remove what the items of exec --worktree changed",
    "demo": "Create an example project and run it offline",
    "init": "Create a project in a folder of your own",
    "number": "Give a number to each issue that has none",
    "context": "Show what the models would see of the code: agentos context LLD-42",
    "prompts": "Show the prompts a project uses, or copy them to edit: agentos prompts eject",
    "status": "Show what the last run did or is doing",
    "watch": "Show the live display of a run started in another terminal",
    "wait": "Wait for a run to end and exit with its code",
    "page": "Watch, read, decide and steer in a browser: agentos page --open",
    "logs": "Print an item's output: agentos logs LLD-42",
    "review": "Decide on items that are waiting for a person: agentos review LLD-42",
    "pause": "Start no new items and no new model calls",
    "resume": "Continue a paused run, or start one that has ended again",
    "stop": "Checkpoint and end a run, as Ctrl-C does",
    "retry": "Retry a failed item of the run in progress: agentos retry LLD-42",
    "set": "Change the run in progress: agentos set parallel 5",
    "report": "Export a run as Markdown, HTML with a timeline, JUnit or CSV",
    "runs": "List, compare and prune past runs",
    "keys": "Manage API keys and show their state",
    "gateway": "Share the keys with any agent through a local endpoint",
    "fleet": "Prepare a fleet of many machines: agentos fleet init",
    "worker": "Work for a fleet: agentos worker --parallel 10",
    "collect": "Write what the fleet has finished into the project",
    "doctor": "Check this machine and this project",
    "config": "Show the settings and where they come from",
    "trust": "Trust a project's agentos.toml to set a GitHub repository, prices and retention",
    "completion": "Print or install a completion script for bash, zsh or fish",
    "help": "Show the help of a command: agentos help keys add",
    "offline-server": "Run the built-in model server on its own",
}
MODULES = {
    **dict.fromkeys(("pause", "stop", "retry", "set"), "control"),
    **dict.fromkeys(("watch", "wait"), "follow"),
}
"""Modules that define several commands, or whose names differ from their command's."""


class LazyGroup(click.Group):
    """Lists all commands without importing any of them, so that `--help` stays fast."""

    def __init__(self) -> None:
        from agentos import __version__

        super().__init__(
            "agentos",
            help="Turn a backlog into reviewed documents with many LLM workers and one pool of API keys.",
            context_settings={"help_option_names": ["-h", "--help"]},
            params=[_version_option(__version__)],
            epilog="Start with: agentos demo (no key, no network), or agentos init in a folder of your own.",
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 3, 0.5)
            suggestion = f"did you mean {' or '.join(close)}? List" if close else "list"
            ctx.fail(f"unknown command {args[0]!r}; {suggestion} all commands: agentos --help")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        module = importlib.import_module(f"agentos.cli.{name}")
        command: click.Command = module.commands[cmd_name] if cmd_name in MODULES else module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version_option(version: str) -> click.Parameter:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            click.echo(f"agentos {version}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and exit.",
    )
