"""The commands of agentos, each loaded when it is wanted."""

import importlib

import click

COMMANDS = {
    "run": "Carry items through a workflow: agentos run lld --all --parallel 3",
    "exec": "Run any program once for every item: agentos exec --items '*.md' -- my-agent {item}",
    "demo": "Make an example project and run it, offline",
    "init": "Make a project of your own to begin with",
    "status": "What the last run did, or is doing",
    "watch": "The live display of a run that another terminal started",
    "wait": "Wait for the end of a run, and exit with its code",
    "logs": "What an item's worker said: agentos logs LLD-42",
    "review": "Decide on items that wait for a person: agentos review LLD-42",
    "pause": "Start no further item and no further call",
    "resume": "Go on with a paused run",
    "stop": "Checkpoint and end a run, as Ctrl-C does",
    "retry": "Try a failed item of the run again: agentos retry LLD-42",
    "set": "Change the run under way: agentos set parallel 5",
    "report": "A run as Markdown, a page with a timeline, JUnit or CSV",
    "runs": "The runs of the past: list, compare, prune",
    "keys": "The credentials, and where they stand",
    "gateway": "Share the keys with any agent: a loopback endpoint for its calls",
    "doctor": "Check this machine and this project",
    "config": "The settings, and where they come from",
    "trust": "Let a project's agentos.toml name a GitHub repository, prices, retention",
    "completion": "Complete commands in bash, zsh or fish",
    "offline-server": "Run the embedded model server by itself",
}


class LazyGroup(click.Group):
    """`--help` loads none of them."""

    def __init__(self) -> None:
        from agentos import __version__

        super().__init__(
            "agentos",
            help="Turn a backlog into reviewed documents.",
            context_settings={"help_option_names": ["-h", "--help"]},
            params=[_version(__version__)],
            epilog="Begin with: agentos demo (no key, no network), or agentos init in a folder of your own.",
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 3, 0.5)
            meant = f"did you mean {' or '.join(close)}? " if close else ""
            ctx.fail(f"no command is called {args[0]!r}; {meant}See all: agentos --help")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"agentos.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(number: str) -> click.Parameter:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            click.echo(f"agentos {number}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version.",
    )
