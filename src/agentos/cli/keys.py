"""`agentos keys`: the credentials, and where they stand."""

import sys

import click


def _list() -> int:
    from agentos.settings import environment, home_folder
    from agentos.storage.credentials import CredentialSource
    from agentos.storage.layout import Home

    home = Home(home_folder())
    found = CredentialSource(home.credentials, environment()).read()
    if not found:
        click.echo("No keys. Set GEMINI_API_KEY_1, or type: agentos keys add")
        return 0
    width = max(len(credential.name) for credential in found)
    for credential in found:
        state = "available" if credential.enabled else "disabled"
        where = credential.base_url or "the provider's own address"
        click.echo(
            f"{credential.name:<{width}}  {credential.provider:<9} {state:<10} bucket {credential.quota}  {where}"
        )
    return 0


def _add(provider: str, name: str | None) -> int:
    from agentos.settings import home_folder
    from agentos.storage.credentials_file import append_credential
    from agentos.storage.layout import Home

    key = click.prompt("Key", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    home = Home(home_folder()).open()
    append_credential(home.credentials, provider, key.strip(), name)
    click.echo(
        f"Kept in {home.credentials}. Runs that are under way take it up by themselves. See: agentos keys"
    )
    return 0


command = click.Group(
    "keys",
    help="The credentials, and where they stand; secrets are never shown.",
    invoke_without_command=True,
    callback=lambda: None,
    commands={
        "list": click.Command("list", help="Every key by name.", callback=_list),
        "add": click.Command(
            "add",
            help="Keep a key in credentials.toml; asks without echo, or reads one line from stdin.",
            callback=_add,
            params=[
                click.Option(
                    ["--provider"], type=click.Choice(["gemini", "anthropic", "openai"]), default="gemini"
                ),
                click.Option(["--name"], help="What it is called; without it key-1, key-2, ..."),
            ],
            epilog="\b\nExamples:\n  agentos keys add\n  pass show gemini | agentos keys add --name work",
        ),
    },
)


@click.pass_context
def _default(ctx: click.Context) -> int:
    return _list() if ctx.invoked_subcommand is None else 0


command.callback = _default
