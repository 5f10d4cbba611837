"""What the plain display says of a run."""

import pytest

from agentos.core.protocol import events
from agentos.outputs.console import Console

BACK: list[events.Event] = [
    events.PoolRestored(2.0),
    events.KeysAvailable(2.0),
    events.BreakerClosed("gemini", 2.0),
    events.DiskWaitEnded(2.0),
]


@pytest.mark.parametrize("back", BACK, ids=lambda event: type(event).__name__)
def test_what_is_back_resumes_no_run_that_a_person_has_paused(back: events.Event) -> None:
    said = list[str]()
    console = Console(said.append, str, said.append)
    console.on_event(events.RunPaused(), 100.0)
    console.on_event(back, 101.0)
    console.on_event(events.RunResumed(2.0), 102.0)
    console.on_event(back, 103.0)
    assert said[1].endswith("after 2.0s. Still paused. Go on with: agentos resume")
    assert said[3].endswith("after 2.0s. Resuming workflows...")
