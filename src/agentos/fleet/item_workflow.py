"""The Temporal workflow of one item. Only ids and numbers travel through Temporal, which stores them in clear."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

WORKFLOW, ACTIVITY, DECIDED = "agentos-item", "run-item", "decided"
HEARTBEAT_TIMEOUT = timedelta(seconds=30)
ATTEMPTS = 10  # of one turn, each after its machine has died or lost the item; then the item is given up
LONGEST_TURN = timedelta(days=30)

FINISHED, RETRY, DRAINED, PARKED = "finished", "retry", "drained", "parked"


@dataclass(frozen=True)
class ItemStart:
    """The input of the workflow."""

    project: str
    item: str
    submission: int
    retries: int
    queue: str


@dataclass(frozen=True)
class Turn:
    """The input of the activity. Temporal may need several attempts at a turn; `tries` turns have failed before it."""

    project: str
    item: str
    submission: int
    turn: int
    tries: int
    retries: int


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended: FINISHED (or failed for good), RETRY after `seconds`, DRAINED, or PARKED for a person."""

    kind: str
    seconds: float = 0.0


@workflow.defn(name=WORKFLOW, sandboxed=False)
class ItemWorkflow:
    """Gives an item to a machine, again after each failure that may pass, and waits for people at gates."""

    def __init__(self) -> None:
        self._decisions = 0

    @workflow.signal(name=DECIDED)
    def decided(self) -> None:
        self._decisions += 1

    @workflow.run
    async def run(self, start: ItemStart) -> str:
        turn = tries = 0
        while True:
            turn += 1
            seen = self._decisions
            result: TurnResult = await workflow.execute_activity(
                ACTIVITY,
                Turn(start.project, start.item, start.submission, turn, tries, start.retries),
                result_type=TurnResult,
                task_queue=start.queue,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                start_to_close_timeout=LONGEST_TURN,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=1),
                    backoff_coefficient=1.0,
                    maximum_attempts=ATTEMPTS,
                ),
            )
            if result.kind == RETRY:
                tries += 1
                await workflow.sleep(result.seconds)
            elif result.kind == PARKED:
                await workflow.wait_condition(lambda seen=seen: self._decisions > seen)  # type: ignore[misc]
                tries = 0
            elif result.kind != DRAINED:
                return result.kind
