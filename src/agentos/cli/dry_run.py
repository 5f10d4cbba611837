"""What --dry-run says; loaded when it is wanted, since it loads what a run does."""

import json

import click

from agentos.core.planning.plan import PlanEntry
from agentos.outputs.forecast_text import forecast_json, forecast_lines
from agentos.outputs.plan_text import explain_empty_plan, explain_skipped
from agentos.run.api import plan_run
from agentos.run.forecast_inputs import forecast_plan
from agentos.run.request import RunRequest


def dry_run(request: RunRequest) -> int:
    def say(text: str) -> None:
        click.echo(text, err=request.json)

    plan = plan_run(request, say)
    if not plan.entries:
        return explain_empty_plan(plan, request.selection, say)
    say(f"[COORDINATOR] Dry run mode - would process {len(plan.entries)} items:")
    width = max(len(entry.item.id) for entry in plan.entries)
    # In one piece each: they may be thousands.
    lines = [f"  - {entry.item.id:<{width}}  {entry.reason}: {entry.item.title}" for entry in plan.entries]
    say("\n".join(lines))
    if request.json:
        click.echo("\n".join(json.dumps(_planned(entry), ensure_ascii=False) for entry in plan.entries))
    explain_skipped(plan, say)
    found = forecast_plan(plan, request.workflow, request.settings, offline=request.offline)
    if request.json:
        click.echo(json.dumps(forecast_json(found), ensure_ascii=False))
    for line in (*forecast_lines(found), "To start it, leave out --dry-run."):
        say(" ".join(("[COORDINATOR]", line)))
    return 0


def _planned(entry: PlanEntry) -> dict[str, str]:
    return {"type": "item_planned", "item": entry.item.id, "reason": entry.reason, "title": entry.item.title}
