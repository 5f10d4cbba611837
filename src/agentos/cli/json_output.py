"""`--json` of the commands that print a list or a state: one JSON object on one line of stdout.

The reference of the command line describes the shapes: fields may be added, but not renamed or removed.
"""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentos.core.run_state.run_stats import RunStats
    from agentos.diagnostics.key_admin import KeyRow
    from agentos.review.queue import PendingReview


def print_json(value: Mapping[str, object]) -> None:
    click.echo(json.dumps(value))


def json_option() -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")


def check_json_position(ctx: click.Context, as_json: bool) -> None:
    """Refuse `agentos keys --json list`, which would print text: the flag belongs to the subcommand."""
    if as_json and ctx.invoked_subcommand:
        command = f"{ctx.command_path} {ctx.invoked_subcommand}"
        raise click.UsageError(f"--json belongs after {ctx.invoked_subcommand}: {command} --json")


def run_json(name: str, stats: "RunStats", alive: bool) -> dict[str, object]:
    from agentos.core.protocol.results import Ending, Verdict

    assert stats.started
    end = stats.ended
    results = {
        "approved": len(stats.verdicts(Verdict.APPROVED)),
        "needs_revision": len(stats.verdicts(Verdict.NEEDS_REVISION)),
        **{ending.value.replace(" ", "_"): len(stats.ending(ending)) for ending in Ending},
    }
    return {
        "run": name,
        "workflow": stats.started.workflow,
        "project": stats.started.project,
        "state": "ended" if end else "running" if alive else "killed",
        "exit_code": end.exit_code if end else None,
        "began": stats.began,
        "seconds": round(end.seconds if end else stats.last - stats.began, 3),
        "items": len(stats.rows),
        "results": results,
    }


def unreadable_run_json(name: str) -> dict[str, object]:
    """A run of another version of agentos, with the fields of the others."""
    unknown = ("workflow", "project", "exit_code", "began", "seconds", "items", "results")
    return {"run": name, "state": "other version", **dict.fromkeys(unknown)}


def key_json(row: "KeyRow") -> dict[str, object]:
    key = row.credential
    now = time.time()
    return {
        "name": key.name,
        "provider": key.provider,
        "model": key.model,
        "base_url": key.base_url,
        "bucket": key.bucket or None,
        "concurrency": key.concurrency,
        "states": [
            {
                "state": status.state.value,
                "models": list(status.models),
                "until": round(now + status.seconds, 3) if status.seconds else None,
            }
            for status in row.statuses
        ],
        "limits": [{"limit": name, "used": used, "of": limit} for name, used, limit in row.used],
        "last_refusal": row.reason or None,
    }


def review_json(pending: "PendingReview") -> dict[str, object]:
    parked, request, decision = pending.parked_item, pending.request, pending.state.decision
    return {
        "item": parked.item,
        "workflow": parked.workflow,
        "title": parked.title,
        "run": parked.run,
        "node": parked.node,
        "waiting_since": parked.at,
        "round": request.round,
        "draft": request.draft,
        "verdict": request.verdict or None,
        "approved": request.approved if request.verdict else None,
        "edited": pending.state.edited is not None,
        "decision": decision.action.value if decision else None,
    }


def setting_json(value: object) -> object:
    """A setting's value: lists as lists, paths as text, a model with its price as one object."""
    from agentos.core.quota.budget import Price

    match value:
        case None | bool() | int() | float() | str():
            return value
        case (str() as model, Price() as price):
            return {"model": model, "input": price.input, "output": price.output}
        case tuple():
            return [setting_json(part) for part in value]
        case _:
            return str(value)
