"""`agentos help`: the help of any command, or all of it as a manual page."""

import click

from agentos.core.errors import UsageError


def _run(words: tuple[str, ...], man: bool) -> int:
    if man:
        from agentos.cli.man_page import man_page

        click.echo(man_page(), nl=False)
        return 0
    context, rest = _program(words)
    for word in rest:
        if not isinstance(context.command, click.Group):
            raise UsageError(
                f"{context.command_path} has no command {word!r}: agentos help {context.info_name}"
            )
        name, found, _ = context.command.resolve_command(context, [word])
        assert found is not None
        context = click.Context(found, context, name, **found.context_settings)
    click.echo(context.command.get_help(context))
    return 0


def _program(words: tuple[str, ...]) -> tuple[click.Context, tuple[str, ...]]:
    """The program that the first word names, agentos by default, and the remaining words."""
    from agentos.cli.group import LazyGroup
    from agentos.cli.run import HELP, workflow_command

    workflow = words[0].removesuffix("-workflow") if words else ""
    is_workflow = workflow in HELP and words[0] != workflow
    command = workflow_command(workflow) if is_workflow else LazyGroup()
    context = click.Context(command, info_name=command.name, **command.context_settings)
    return context, words[1:] if is_workflow else words


command = click.Command(
    "help",
    help="Show the help of a command, as COMMAND --help does; without one, the list of commands.",
    params=[
        click.Argument(["words"], nargs=-1, metavar="[COMMAND]..."),
        click.Option(["--man"], is_flag=True, help="Print the manual page of all commands, as roff."),
    ],
    callback=_run,
    epilog="\b\nExamples:\n  agentos help\n  agentos help keys add\n  agentos help --man | man -l -",
)
