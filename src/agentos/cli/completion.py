"""`agentos completion`: what a shell needs to complete our commands."""

import click

PROGRAMS = ("agentos", "lld-workflow", "issue-workflow")
SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "echo 'source <(agentos completion bash)' >> ~/.bashrc",
    "zsh": "echo 'source <(agentos completion zsh)' >> ~/.zshrc   (after compinit)",
    "fish": "agentos completion fish > ~/.config/fish/completions/agentos.fish",
}


def _run(shell: str) -> int:
    from click.shell_completion import get_completion_class

    from agentos.cli.group import LazyGroup

    kind = get_completion_class(shell)
    assert kind is not None
    for program in PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        completion = kind(LazyGroup(), {}, program, variable)
        # Not source(): it starts a bash to ask for its version, also when the script is for another machine.
        click.echo(completion.source_template % completion.source_vars())
    return 0


command = click.Command(
    "completion",
    help="Print the script that makes a shell complete commands, flags, items and runs.",
    params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
    callback=_run,
    epilog="\b\nOnce for every new shell:\n" + "\n".join(f"  {line}" for line in INSTALL.values()),
)
