"""One run as a JSON object, the same in `agentos runs --json` and in the API of the page."""

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_stats import RunStats


def run_json(name: str, stats: RunStats, alive: bool) -> dict[str, object]:
    assert stats.started
    end = stats.ended
    results = {
        "approved": len(stats.with_verdict(Verdict.APPROVED)),
        "needs_revision": len(stats.with_verdict(Verdict.NEEDS_REVISION)),
        **{ending.value.replace(" ", "_"): len(stats.with_ending(ending)) for ending in Ending},
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
        "done": stats.over,
        "cost": stats.cost,
        "results": results,
    }


def unreadable_run_json(name: str) -> dict[str, object]:
    """A run of another version of agentos, with the same fields."""
    unknown = ("workflow", "project", "exit_code", "began", "seconds", "items", "done", "cost", "results")
    return {"run": name, "state": "other version", **dict.fromkeys(unknown)}
