"""`agentos gateway token`, `tokens` and `revoke`: who may use a gateway that other machines share."""

import time
from typing import TYPE_CHECKING

import click

from agentos.cli.json_output import json_option, print_json
from agentos.cli.param_types import BaseUrl, Dollars

if TYPE_CHECKING:
    from agentos.gateway.token_registry import IssuedToken, TokenRegistry

CREDENTIAL_CONCURRENCY = 10  # calls at a time: as many as a run has workers


def _issue(name: str, url: str | None, budget: float | None, format: str | None) -> int:
    """Print the token of NAME, a person, a machine or a job: the same one until it is revoked.

    With --url it prints what a client needs: lines for a shell, or for --format credentials the tables for
    credentials.toml, one per provider for which this machine has a key.
    """
    chosen = format or ("env" if url else "token")
    if chosen != "token" and url is None:
        raise click.UsageError(f"--format {chosen} needs the gateway's address: add --url https://HOST:PORT")
    token = _registry().issue(name, time.time(), budget)
    if url is None or chosen == "token":
        click.echo(token)
        return 0
    click.echo(_client_text(url.rstrip("/"), token, chosen), nl=False)
    return 0


def _client_text(url: str, token: str, format: str) -> str:
    from agentos.config.settings import environment
    from agentos.gateway.tokens import base_url, client_variables, shell_exports
    from agentos.storage.credentials.editor import NewCredential

    providers = _providers()
    if format == "env":
        return shell_exports(client_variables(url, providers, token, environment()))
    tables = []
    for provider in providers:
        fields = NewCredential(
            provider,
            token,
            f"gateway-{provider}",
            base_url(url, provider),
            concurrency=CREDENTIAL_CONCURRENCY,
        )
        tables.append("\n".join(["[[credential]]", *fields.lines(), ""]))
    return "\n".join(tables)


def _providers() -> list[str]:
    """The providers for which this machine, the gateway's, has keys; all of them if it has none."""
    from agentos.config.settings import environment, usable_home
    from agentos.storage.credentials.file_parser import PROVIDERS
    from agentos.storage.credentials.reader import CredentialSource
    from agentos.storage.home import Home

    found = CredentialSource(Home(usable_home()).credentials, environment()).read()
    used = {credential.provider for credential in found if credential.enabled}
    return [provider for provider in PROVIDERS if provider in used] or list(PROVIDERS)


def _list(as_json: bool) -> int:
    """List the names of all tokens, since when they are valid or revoked, and their budgets."""
    tokens = _registry().tokens()
    if as_json:
        print_json({"tokens": [_token_json(token) for token in tokens]})
        return 0
    if not tokens:
        click.echo("No tokens. Issue one with: agentos gateway token NAME")
    width = max((len(token.name) for token in tokens), default=0)
    for token in tokens:
        click.echo(f"{token.name:<{width}}  {_token_text(token)}")
    return 0


def _token_text(token: "IssuedToken") -> str:
    from agentos.outputs.format import clock, dollars

    now = time.time()
    if token.revoked_at is not None:
        return f"revoked {clock(token.revoked_at, now)}"
    budget = "" if token.budget is None else f", budget {dollars(token.budget)}"
    return f"valid since {clock(token.issued_at, now)}{budget}"


def _token_json(token: "IssuedToken") -> dict[str, object]:
    return {
        "name": token.name,
        "valid": token.is_valid,
        "issued_at": token.issued_at,
        "revoked_at": token.revoked_at,
        "budget": token.budget,
    }


def _revoke(name: str) -> int:
    """Make the token of NAME invalid, at once; its calls in progress are finished."""
    _registry().revoke(name, time.time())
    click.echo(f"Revoked the token of {name}. A new one: agentos gateway token {name}")
    return 0


def _registry() -> "TokenRegistry":
    from agentos.config.settings import usable_home
    from agentos.gateway.token_registry import TokenRegistry
    from agentos.storage.home import Home

    return TokenRegistry(Home(usable_home()).open().gateway)


TOKEN_COMMANDS = {
    "token": click.Command(
        "token",
        callback=_issue,
        help=_issue.__doc__,
        params=[
            click.Argument(["name"]),
            click.Option(["--url"], type=BaseUrl(), help="The gateway's address, as its clients see it."),
            click.Option(
                ["--budget"],
                type=Dollars(),
                metavar="USD",
                help="Refuse calls with this token that would exceed this cost in all.",
            ),
            click.Option(
                ["--format"],
                type=click.Choice(["token", "env", "credentials"]),
                help="Output: the token alone, lines for a shell, or tables for credentials.toml "
                "(token; env with --url).",
            ),
        ],
        epilog="\b\nExamples:\n  agentos gateway token ci\n"
        "  agentos gateway token anna --url https://gateway.example:8484 --format credentials",
    ),
    "tokens": click.Command(
        "tokens",
        callback=_list,
        help=_list.__doc__,
        params=[json_option()],
        epilog="\b\nExample:\n  agentos gateway tokens",
    ),
    "revoke": click.Command(
        "revoke",
        callback=_revoke,
        help=_revoke.__doc__,
        params=[click.Argument(["name"])],
        epilog="\b\nExample:\n  agentos gateway revoke ci",
    ),
}
