"""Why a request from another terminal changes nothing."""

from agentos.core.bounds import MAX_PARALLEL
from agentos.core.events import RequestDeclined
from agentos.core.work import Work

NOT_HERE, NOT_SO = 5, 2


def stopping_already() -> RequestDeclined:
    return RequestDeclined("the run is stopping: nothing can be asked of it any more", NOT_SO)


def paused_already() -> RequestDeclined:
    return RequestDeclined("it is paused already. Go on with: agentos resume")


def not_paused() -> RequestDeclined:
    return RequestDeclined("it is not paused, and goes on. Pause it with: agentos pause")


def no_workers(workers: int) -> RequestDeclined:
    if workers < 1:
        return RequestDeclined(f"{workers} workers cannot be; expected 1 to {MAX_PARALLEL}", NOT_SO)
    return RequestDeclined(f"it has {workers} already")


def no_retry(item: str, work: Work | None, items: tuple[str, ...]) -> RequestDeclined:
    """Only what ended without a verdict is tried again."""
    if work is None:
        known = ", ".join(items[:10]) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
        return RequestDeclined(f"{item} is not in this run; its items: {known}", NOT_HERE)
    if work.ended is None:
        return RequestDeclined(f"{item} has not ended: it is running, or still to come", NOT_SO)
    return RequestDeclined(
        f"{item} did not fail: it ended as {work.ended.verdict or work.ended.ending}", NOT_SO
    )
