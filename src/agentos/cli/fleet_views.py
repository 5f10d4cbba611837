"""`status`, `watch`, `logs`, `stop` and `retry` with `--fleet`: a project's items on the fleet, whoever submitted them."""

import time
from typing import TYPE_CHECKING

import click

from agentos.cli.fleet import open_fleet
from agentos.cli.json_output import print_json

if TYPE_CHECKING:
    from agentos.core.run_state.run_stats import RunStats
    from agentos.storage.postgres.fleet_items import FleetDatabase, FleetItem

MAX_HISTORY = 500  # items whose events are read for a status
NOTHING = "The fleet has no items of this project. Submit them with: lld-workflow --all --fleet"


def refuse_run(run: str | None) -> None:
    if run:
        raise click.UsageError("--fleet shows the project's items, whoever submitted them: drop the run")


def show_fleet(run: str | None, as_json: bool, failed: bool, verbose: bool) -> int:
    """`agentos status --fleet`: the project's items, as `agentos status` shows those of a run."""
    refuse_run(run)
    from agentos.config.settings import Flags, read_settings
    from agentos.core.protocol.codec import pack
    from agentos.core.protocol.results import Ending

    settings = read_settings(Flags())
    with open_fleet(settings) as database:
        items = list(database.items().values())
        if failed:
            items = [item for item in items if item.outcome and item.outcome.ending is Ending.FAILED]
        if as_json:
            print_json({"items": [pack(item) for item in items]})
            return 0
        if not items:
            click.echo("  No item failed." if failed else NOTHING)
            return 0
        stats = _stats(database, items, settings.fleet.project, str(settings.project))
    _show_items(items, stats, verbose=verbose or failed)
    return 0


def _stats(database: "FleetDatabase", items: "list[FleetItem]", project: str, folder: str) -> "RunStats":
    from agentos.fleet.replay import as_run, load_stats

    recent = sorted(items, key=lambda item: (not item.is_live, -item.submission))[:MAX_HISTORY]
    return load_stats(database, as_run(database, project, folder, recent), recent)


def _show_items(items: "list[FleetItem]", stats: "RunStats", *, verbose: bool) -> None:
    from collections import Counter

    from agentos.outputs.colour import painter
    from agentos.outputs.format import duration, tokens
    from agentos.outputs.item_list import MANY

    now, paint = time.time(), painter()
    # As on one machine: items that need attention come first, and most of the others are only counted.
    listed = items if verbose or len(items) <= MANY else [item for item in items if _needs_attention(item)]
    if len(listed) < len(items):
        counts = Counter(item.text for item in items if item not in listed)
        text = ", ".join(f"{number} {name}" for name, number in counts.items())
        click.echo(paint(f"  {text} (list them: agentos status --fleet -v)"), color=True)
    width = max((len(item.item) for item in listed), default=0)
    for item in listed:
        row = stats.rows.get(item.item)
        used = ""
        if row and (row.usage.calls or row.running):
            used = f" {duration(row.age(now) if item.state == 'running' else row.seconds):>7} {tokens(row.usage.tokens):>6} tokens"
        where = f" at {row.node}" if row and row.node and item.state == "running" else ""
        click.echo(paint(f"  {item.item:<{width}}  {item.text + where:<31}{used}".rstrip()), color=True)
    click.echo(_next_step(items))


def _needs_attention(item: "FleetItem") -> bool:
    from agentos.core.protocol.results import Ending

    return item.is_live or (item.outcome is not None and item.outcome.ending is not Ending.FINISHED)


def _next_step(items: "list[FleetItem]") -> str:
    from agentos.core.protocol.results import Ending

    if any(item.state in ("submitted", "running") for item in items):
        return "Watch it: agentos watch --fleet; follow one item: agentos logs --fleet -f ITEM; stop it: agentos stop --fleet"
    if any(item.state == "parked" for item in items):
        return "Decide with: agentos review --fleet"
    if any(item.outcome and item.outcome.ending is Ending.FAILED for item in items):
        return "Read why: agentos logs --fleet ITEM; try again: agentos retry --fleet ITEM"
    if any(item.outcome and item.outcome.ending is Ending.INTERRUPTED for item in items):
        return "Continue the stopped items: run the command that submitted them again"
    return "Write what is done into the project: agentos collect"


def watch_fleet(run: str | None, display: str) -> int:
    """`agentos watch --fleet`: the live display of what is under way, and its documents collected."""
    refuse_run(run)
    import threading
    from functools import partial

    from agentos.config.settings import Flags, read_settings, terminal_info
    from agentos.outputs.display import open_display
    from agentos.run.signals import Signals
    from agentos.storage.home import Home

    settings = read_settings(Flags())
    with open_fleet(settings) as database:
        from agentos.fleet.collect import Collector
        from agentos.fleet.fleet_run import report_conflicts
        from agentos.fleet.watch import under_way, watch

        collector = Collector(database, settings.project, Home(settings.home).open())
        collector.collect_all(lambda text: click.echo(f"[COORDINATOR] {text}"))
        if not under_way(database):
            items = list(database.items().values())
            left = _next_step(items) if any(map(_needs_attention, items)) else ""
            text = f"Nothing of this project is under way on the fleet. {left}".rstrip()
            click.echo(text if items else NOTHING)
            return report_conflicts(collector, partial(click.echo, err=True))
        quit_requested = threading.Event()
        with Signals().caught() as signals:
            shown = open_display(display, 1, str, terminal_info(), quit_requested.set)
            try:
                shown.write(
                    f"[COORDINATOR] Watching {settings.fleet.project} on the fleet. q or Ctrl-C quits; its items continue."
                )
                code = watch(database, settings.fleet.project, collector, shown, signals, quit_requested)
            finally:
                shown.close()
    if quit_requested.is_set():
        click.echo("The items continue. Watch them again with: agentos watch --fleet")
        return 0
    return code


def show_fleet_log(run: str | None, item: str, follow: bool) -> int:
    """`agentos logs --fleet ITEM`."""
    refuse_run(run)
    from agentos.config.settings import Flags, read_settings

    with open_fleet(read_settings(Flags())) as database:
        from agentos.fleet.watch import log_lines

        for line in log_lines(database, _named(database, item), follow):
            click.echo(line)
    return 0


def _named(database: "FleetDatabase", word: str) -> "FleetItem":
    """The project's item of this name. Raises NothingMatches."""
    from agentos.core.errors import NothingMatches
    from agentos.core.planning.items import is_safe_id, resolve_item

    if not is_safe_id(word):
        raise click.UsageError(f"invalid item {word!r}: expected an id such as LLD-42")
    items = database.items()
    if (name := resolve_item(word, items)) is None:
        known = ", ".join(list(items)[:10]) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
        raise NothingMatches(f"the fleet has no item {word!r} of this project; its items: {known or 'none'}")
    return items[name]


def retry_on_fleet(run: str | None, item: str) -> int:
    """`agentos retry --fleet ITEM`: submits a failed item again as it was."""
    refuse_run(run)
    import asyncio
    from functools import partial

    from agentos.config.settings import Flags, read_settings
    from agentos.core.errors import UsageError

    settings = read_settings(Flags())
    with open_fleet(settings) as database:
        from agentos.fleet.retry import is_under_way, retry_item
        from agentos.storage.postgres.resubmission import resubmit_failed

        row, project = _named(database, item), settings.fleet.project
        has_begun = row.state == "running"
        if has_begun or (row.state == "submitted" and asyncio.run(is_under_way(project, row.item))):
            raise UsageError(f"{row.item} has not ended: it is {row.text}")
        resubmit = partial(resubmit_failed, database, project, row.item, round(time.time(), 3))
        if asyncio.run(retry_item(resubmit, project, row.item)) is None:
            raise UsageError(f"{row.item} did not fail: {row.text}")
    click.echo(
        f"{row.item} is queued again and continues from its checkpoint. Follow it with: agentos logs --fleet -f {row.item}"
    )
    return 0


def stop_fleet(run: str | None) -> int:
    """`agentos stop --fleet`: cancels every item of the project that is under way."""
    refuse_run(run)
    import asyncio

    from agentos.config.settings import Flags, read_settings
    from agentos.outputs.format import count

    settings = read_settings(Flags())
    with open_fleet(settings) as database:
        from agentos.fleet.temporal import cancel_items, connect_temporal

        live = [item.item for item in database.items().values() if item.is_live]

        async def cancel() -> int:
            return await cancel_items(await connect_temporal(), settings.fleet.project, live)

        number = asyncio.run(cancel()) if live else 0
        database.end_unstarted(live)
    click.echo(
        f"Stopping {count(number, 'item')}, checkpointed. To continue them, run the command that submitted them again."
        if number
        else "Nothing of this project is under way on the fleet."
    )
    return 0
