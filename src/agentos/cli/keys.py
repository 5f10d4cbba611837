"""`agentos keys`: shows the state of the API keys, and adds, checks, enables, disables, forgets and removes them."""

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from agentos.cli.json_output import check_json_position, json_option, print_json
from agentos.cli.param_types import BaseUrl, Duration

if TYPE_CHECKING:
    from agentos.core.quota.credentials import Credential
    from agentos.core.quota.key_status import KeyStatus
    from agentos.outputs.key_rows import LearnedRow, SharedRow

PROVIDERS = ("gemini", "anthropic", "openai")
MAX_LIMIT = 10**12  # the largest that credentials.toml may have


def _list(as_json: bool = False) -> int:
    from agentos.config.settings import usable_home
    from agentos.diagnostics.key_admin import view_keys
    from agentos.outputs.colour import painter
    from agentos.outputs.key_rows import key_json
    from agentos.storage.home import Home
    from agentos.storage.peer_log_views import other_version_warning

    if warning := other_version_warning(Home(usable_home()).quota):
        click.echo(warning, err=True)
    rows = view_keys()
    if as_json:
        print_json({"keys": [key_json(row) for row in rows]})
        return 0
    if not rows:
        click.echo("No keys. Set GEMINI_API_KEY_1 or run: agentos keys add")
        return 0
    width, paint = max(len(row.credential.name) for row in rows), painter()
    for row in rows:
        states = paint("; ".join(_status_text(status) for status in row.statuses))
        parts = [f"{row.credential.name:<{width}}  {row.credential.provider:<9} {states}"]
        if row.credential.bucket:
            parts.append(f"bucket {row.credential.bucket}")
        parts += [_learned_text(learned) for learned in row.learned]
        parts += [_shared_text(shared) for shared in row.shares]
        parts += [f"{used:,.0f} of {limit:,.0f} {name}" for name, used, limit in row.used]
        if row.reason:
            parts.append(f"last refusal: {row.reason}")
        click.echo(", ".join(parts), color=True)
    return 0


def _learned_text(learned: "LearnedRow") -> str:
    """`learned for gemini-2.5-pro: 10 requests in any 60 s (explains 3 refusals, since 12:04:10)`."""
    from agentos.outputs.format import clock

    model = f" for {learned.model}" if learned.model else ""
    since = clock(learned.since, time.time())
    return f"learned{model}: {learned.limits} ({learned.certainty}, since {since})"


def _shared_text(shared: "SharedRow") -> str:
    """`seems to share a quota with key-2 (4 refusals show it, since 12:04:10): set the same bucket for both`."""
    from agentos.outputs.format import clock

    since = clock(shared.since, time.time())
    evidence = f"{shared.refusals} refusals show it, since {since}"
    return f"seems to share a quota with {shared.key} ({evidence}): set the same bucket for both"


def _status_text(status: "KeyStatus") -> str:
    """`exhausted for the day for gemini-2.5-flash, until 2026-11-17 08:00:00 (in 20h 58m)`."""
    from agentos.outputs.format import clock, duration

    now = time.time()
    models = f" for {', '.join(status.models)}" if status.models else ""
    seconds = status.seconds
    until = f", until {clock(now + seconds, now)} (in {duration(seconds)})" if seconds else ""
    return f"{status.state}{models}{until}"


@click.pass_context
def _add(
    ctx: click.Context,
    /,
    provider: str | None,
    name: str | None,
    base_url: str | None,
    no_check: bool,
    **limits: Any,
) -> int:
    from agentos.config.project import path_from_here
    from agentos.config.settings import home_folder
    from agentos.diagnostics.key_admin import KEY_AS_ARGUMENT, add_key, check_new_key
    from agentos.storage.credentials.editor import NewCredential
    from agentos.storage.home import Home

    if ctx.args:
        raise click.UsageError(f"expected no argument; nothing was written. {KEY_AS_ARGUMENT}")
    typed = click.prompt("Key", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    key = re.sub(
        r"""^(["'])(.*)\1$""", r"\2", typed.strip()
    )  # pasted with the quotes or the name of a shell or settings file
    check_new_key(key, name, provider)
    chosen = _provider(key, provider, base_url)
    added = add_key(NewCredential(chosen, key, name, base_url, **limits), check=not no_check)
    credential = added.credential
    file = path_from_here(Home(home_folder()).credentials)
    checked = "" if no_check or added.unchecked or added.install else " It works."
    click.echo(f"Added {_description(credential)} to {file}.{checked}")
    if added.install:
        click.echo(
            f"Warning: runs do not use it yet, because the SDK of {chosen} is not installed: type {added.install}",
            err=True,
        )
    elif added.unchecked:
        click.echo(
            f"Warning: it could not be checked: {added.unchecked}. Try again: agentos keys check {credential.name}",
            err=True,
        )
    if added.install:
        click.echo("List keys: agentos keys")
    else:
        click.echo("Runs in progress pick it up automatically. List keys: agentos keys")
    return 0


def _provider(key: str, given: str | None, base_url: str | None) -> str:
    """The provider given by flag, recognised by the form of the key, or chosen by the user."""
    from agentos.core.quota.credentials import provider_of

    recognised = provider_of(key)
    # A custom server may accept keys of any form.
    if given and recognised not in (None, given) and base_url is None:
        raise click.UsageError(
            f"this looks like a key for {recognised}, not for {given}; nothing was written. Type: agentos keys add "
            f"--provider {recognised}, or name the server that takes it with --base-url URL"
        )
    if found := given or recognised:
        return found
    if not sys.stdin.isatty():
        raise click.UsageError(
            "the key does not look like one of a known provider; nothing was written. "
            f"Name its provider: agentos keys add --provider {'|'.join(PROVIDERS)}"
        )
    answer: str = click.prompt("Provider", type=click.Choice(PROVIDERS))
    return answer


def _description(credential: "Credential") -> str:
    """`spare (gemini, 150 requests/60s, bucket work)`."""
    parts = [credential.provider]
    parts += [
        f"{rate.amount:,.0f} {dimension.value}/{rate.seconds:g}s" for dimension, rate in credential.rates
    ]
    if credential.concurrency > 1:
        parts.append(f"{credential.concurrency} calls at a time")
    if credential.bucket:
        parts.append(f"bucket {credential.bucket}")
    if credential.base_url:
        parts.append(f"at {credential.base_url}")
    return f"{credential.name} ({', '.join(parts)})"


def _remove(name: str) -> int:
    from agentos.diagnostics.key_admin import remove_key

    left = remove_key(name)
    click.echo(f"Removed {name}. Runs in progress stop using it.")
    if left:
        click.echo(f"A variable still holds this key, now named {left.name}: unset it as well.", err=True)
    return 0


def _check(names: tuple[str, ...]) -> int:
    from agentos.diagnostics.key_admin import check_keys

    findings = check_keys(names)
    for name, problem in findings.items():
        click.echo(f"{name}: {problem or 'works'}")
    return 4 if all(findings.values()) else 0


def _cooldown(name: str, seconds: float) -> int:
    from agentos.diagnostics.key_admin import cool_down_key
    from agentos.outputs.format import duration

    cool_down_key(name, seconds)
    click.echo(f"No run on this machine uses {name} for {duration(seconds)}. List keys: agentos keys")
    return 0


def _forget(name: str) -> int:
    from agentos.diagnostics.key_admin import forget_key

    if forget_key(name):
        click.echo(f"Forgot what was learned about {name}. Runs learn its limits again.")
    else:
        click.echo(f"Nothing was learned about {name}.")
    return 0


def _switch_command(verb: str) -> click.Command:

    def run(name: str) -> int:
        from agentos.diagnostics.key_admin import set_key_enabled

        set_key_enabled(name, enabled=verb == "enable")
        click.echo(f"{name} is {verb}d. Runs in progress pick it up automatically.")
        return 0

    return click.Command(
        verb,
        help=f"{verb.capitalize()} a key of credentials.toml; runs in progress pick it up automatically.",
        params=[click.Argument(["name"])],
        callback=run,
        epilog=f"\b\nExample:\n  agentos keys {verb} key-2",
    )


def _cooldown_command(name: str, hidden: bool = False) -> click.Command:
    return click.Command(
        name,
        help="Do not use a key for a while, in any run on this machine.",
        callback=_cooldown,
        params=[
            click.Argument(["name"]),
            click.Option(["--for", "seconds"], type=Duration(), default="10m", help="How long (10m)."),
        ],
        epilog="\b\nExample:\n  agentos keys cooldown key-2 --for 30m",
        hidden=hidden,
    )


def _limit(flag: str, help: str) -> click.Option:
    return click.Option([flag], type=click.IntRange(1, MAX_LIMIT), metavar="N", help=help)


@click.pass_context
def _default(ctx: click.Context, as_json: bool) -> int:
    check_json_position(ctx, as_json)
    return _list(as_json) if ctx.invoked_subcommand is None else 0


command = click.Group(
    "keys",
    help="Manage API keys and show their state; secrets are never shown.",
    invoke_without_command=True,
    params=[json_option()],
    callback=_default,
    commands={
        "list": click.Command(
            "list",
            help="List every key with its state, usage against known limits and last refusal.",
            callback=_list,
            params=[json_option()],
            epilog="\b\nExample:\n  agentos keys list",
        ),
        "add": click.Command(
            "add",
            help="Add a key to credentials.toml; prompts without echo, or reads one line from stdin. The provider is "
            "recognised by the key's form, and one cheap call checks the key.",
            callback=_add,
            context_settings={"allow_extra_args": True},  # click's own error would print the key
            params=[
                click.Option(
                    ["--provider"],
                    type=click.Choice(PROVIDERS),
                    help="Provider of the key (recognised by its form, else asked for).",
                ),
                click.Option(["--name"], help="Name of the key (key-1, key-2, ...)."),
                click.Option(
                    ["--base-url"], type=BaseUrl(), help="Server to send its calls to (the provider's)."
                ),
                click.Option(["--model"], help="Model to use with this key (the one of each role)."),
                _limit("--rpm", "Requests per minute that the key allows."),
                _limit("--tpm", "Tokens per minute that the key allows."),
                _limit("--rpd", "Requests per day that the key allows."),
                _limit("--concurrency", "Calls at a time (1)."),
                click.Option(
                    ["--bucket"], help="Quota that it shares with the other keys of the same bucket."
                ),
                click.Option(["--no-check"], is_flag=True, help="Store the key without a call."),
            ],
            epilog="\b\nExamples:\n  agentos keys add\n  pass show gemini | agentos keys add --name work --rpm 150\n"
            "  agentos keys add --provider openai --base-url http://127.0.0.1:8000/v1 --no-check",
        ),
        "remove": click.Command(
            "remove",
            help="Remove a key from credentials.toml; runs in progress stop using it.",
            callback=_remove,
            params=[click.Argument(["name"])],
            epilog="\b\nExample:\n  agentos keys remove spare",
        ),
        "check": click.Command(
            "check",
            help="Make one cheap call with each key to see whether it works.",
            callback=_check,
            params=[click.Argument(["names"], nargs=-1)],
            epilog="\b\nExamples:\n  agentos keys check\n  agentos keys check key-2",
        ),
        "cooldown": _cooldown_command("cooldown"),
        "forget": click.Command(
            "forget",
            help="Drop what was learned about the limits of a key; runs learn them again.",
            callback=_forget,
            params=[click.Argument(["name"])],
            epilog="\b\nExample:\n  agentos keys forget key-2",
        ),
        "rest": _cooldown_command("rest", hidden=True),  # its former name
        "enable": _switch_command("enable"),
        "disable": _switch_command("disable"),
    },
)
