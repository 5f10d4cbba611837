"""`agentos keys`: the credentials, and where they stand."""

import sys
import time
from typing import TYPE_CHECKING

import click

from agentos.cli.param_types import Duration

if TYPE_CHECKING:
    from agentos.core.quota.key_status import KeyStatus


def _list() -> int:
    from agentos.config.settings import usable_home
    from agentos.diagnostics.key_admin import view_keys
    from agentos.storage.home import Home
    from agentos.storage.peer_log_views import other_version_warning

    if warning := other_version_warning(Home(usable_home()).quota):
        click.echo(warning, err=True)
    rows = view_keys()
    if not rows:
        click.echo("No keys. Set GEMINI_API_KEY_1, or type: agentos keys add")
        return 0
    width = max(len(row.credential.name) for row in rows)
    for row in rows:
        stands = "; ".join(_standing(one) for one in row.statuses)
        parts = [f"{row.credential.name:<{width}}  {row.credential.provider:<9} {stands}"]
        if row.credential.bucket:
            parts.append(f"bucket {row.credential.bucket}")
        parts += [f"{used:,.0f} of {limit:,.0f} {name}" for name, used, limit in row.used]
        if row.reason:
            parts.append(f"last refusal: {row.reason}")
        click.echo(", ".join(parts))
    return 0


def _standing(one: "KeyStatus") -> str:
    """`exhausted for the day for gemini-2.5-flash, until 2026-11-17 08:00:00 (in 20h 58m)`."""
    from agentos.outputs.format import clock, duration

    now = time.time()
    models = f" for {', '.join(one.models)}" if one.models else ""
    until = f", until {clock(now + one.seconds, now)} (in {duration(one.seconds)})" if one.seconds else ""
    return f"{one.state}{models}{until}"


def _add(provider: str, name: str | None) -> int:
    from agentos.config.settings import environment, home_folder
    from agentos.storage.credentials.editor import append_credential
    from agentos.storage.credentials.reader import CredentialSource
    from agentos.storage.home import Home

    key = click.prompt("Key", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    home = Home(home_folder()).open()
    append_credential(CredentialSource(home.credentials, environment()), provider, key.strip(), name)
    click.echo(
        f"Kept in {home.credentials}. Runs that are under way take it up by themselves. See: agentos keys"
    )
    return 0


def _check(names: tuple[str, ...]) -> int:
    from agentos.diagnostics.key_admin import check_keys

    findings = check_keys(names)
    for name, trouble in findings.items():
        click.echo(f"{name}: {trouble or 'answers'}")
    return 4 if all(findings.values()) else 0


def _rest(name: str, seconds: float) -> int:
    from agentos.diagnostics.key_admin import cool_down_key
    from agentos.outputs.format import duration

    cool_down_key(name, seconds)
    click.echo(f"{name} rests for {duration(seconds)}, in every run on this machine. See: agentos keys")
    return 0


def _switch(enabled: str) -> click.Command:
    word = {"true": "enable", "false": "disable"}[enabled]

    def run(name: str) -> int:
        from agentos.diagnostics.key_admin import set_key_enabled

        set_key_enabled(name, enabled)
        click.echo(f"{name} is {word}d. Runs that are under way take it up by themselves.")
        return 0

    return click.Command(
        word,
        help=f"{word.capitalize()} a key of credentials.toml; runs take it up by themselves.",
        params=[click.Argument(["name"])],
        callback=run,
        epilog=f"\b\nExample:\n  agentos keys {word} key-2",
    )


@click.pass_context
def _default(ctx: click.Context) -> int:
    return _list() if ctx.invoked_subcommand is None else 0


command = click.Group(
    "keys",
    help="The credentials, and where they stand; secrets are never shown.",
    invoke_without_command=True,
    callback=_default,
    commands={
        "list": click.Command(
            "list",
            help="Every key: state, until when, used of what limit, last refusal.",
            callback=_list,
            epilog="\b\nExample:\n  agentos keys list",
        ),
        "add": click.Command(
            "add",
            help="Keep a key in credentials.toml; asks without echo, or reads one line from stdin.",
            callback=_add,
            params=[
                click.Option(
                    ["--provider"],
                    type=click.Choice(["gemini", "anthropic", "openai"]),
                    default="gemini",
                    help="Whose key it is (gemini).",
                ),
                click.Option(["--name"], help="What it is called; without it key-1, key-2, ..."),
            ],
            epilog="\b\nExamples:\n  agentos keys add\n  pass show gemini | agentos keys add --name work",
        ),
        "check": click.Command(
            "check",
            help="One cheap call with each key: does it answer?",
            callback=_check,
            params=[click.Argument(["names"], nargs=-1)],
            epilog="\b\nExamples:\n  agentos keys check\n  agentos keys check key-2",
        ),
        "rest": click.Command(
            "rest",
            help="Leave a key alone for a time, in every run on this machine.",
            callback=_rest,
            params=[
                click.Argument(["name"]),
                click.Option(["--for", "seconds"], type=Duration(), default="10m", help="How long (10m)."),
            ],
            epilog="\b\nExample:\n  agentos keys rest key-2 --for 30m",
        ),
        "enable": _switch("true"),
        "disable": _switch("false"),
    },
)
