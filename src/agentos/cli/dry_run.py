"""What --dry-run says; loaded when it is wanted, since it loads what a run does."""

import json

import click

from agentos.app import plan_run
from agentos.core.plan import Entry
from agentos.outlook import look_ahead
from agentos.outputs.prospect import forecast_json, forecast_lines
from agentos.outputs.unplanned import explain_left_out, explain_nothing
from agentos.request import Request


def dry_run(request: Request) -> int:
    def say(text: str) -> None:
        click.echo(text, err=request.json)

    plan = plan_run(request, say)
    if not plan.entries:
        return explain_nothing(plan, request.selection, say)
    say(f"[COORDINATOR] Dry run mode - would process {len(plan.entries)} items:")
    width = max(len(entry.item.id) for entry in plan.entries)
    # In one piece each: they may be thousands.
    lines = [f"  - {entry.item.id:<{width}}  {entry.reason}: {entry.item.title}" for entry in plan.entries]
    say("\n".join(lines))
    if request.json:
        click.echo("\n".join(json.dumps(_planned(entry), ensure_ascii=False) for entry in plan.entries))
    explain_left_out(plan, say)
    found = look_ahead(plan, request.workflow, request.settings, offline=request.offline)
    if request.json:
        click.echo(json.dumps(forecast_json(found), ensure_ascii=False))
    for line in (*forecast_lines(found), "To start it, leave out --dry-run."):
        say(" ".join(("[COORDINATOR]", line)))
    return 0


def _planned(entry: Entry) -> dict[str, str]:
    return {"type": "Planned", "item": entry.item.id, "reason": entry.reason, "title": entry.item.title}
