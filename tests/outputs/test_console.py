"""The coordinator's lines for a run."""

import pytest

from agentos.core.protocol import events
from agentos.outputs.console import Console

RECOVERIES: list[events.Event] = [
    events.PoolRestored(2.0),
    events.KeysAvailable(2.0),
    events.BreakerClosed("gemini", 2.0),
    events.DiskWaitEnded(2.0),
]


@pytest.mark.parametrize("recovery", RECOVERIES, ids=lambda event: type(event).__name__)
def test_recovery_does_not_resume_a_run_that_a_user_paused(recovery: events.Event) -> None:
    lines = list[str]()
    console = Console(lines.append, str, lines.append)
    console.on_event(events.RunPaused(), 100.0)
    console.on_event(recovery, 101.0)
    console.on_event(events.RunResumed(2.0), 102.0)
    console.on_event(recovery, 103.0)
    assert lines[1].endswith("after 2.0s. Still paused. Resume with: agentos resume")
    assert lines[3].endswith("after 2.0s. Resuming workflows...")
