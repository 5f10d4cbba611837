"""The Temporal workflow of one item. Only ids and numbers pass through Temporal, which stores them unencrypted."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from agentos.fleet.turns import ItemTurns, NextStep, Turn, TurnResult

WORKFLOW, ACTIVITY, DECIDED = "agentos-item", "run-item", "decided"
HEARTBEAT_TIMEOUT = timedelta(seconds=30)
ATTEMPTS = 10  # of one turn, one per machine that died or lost the item; after the last, the item fails
ATTEMPT_INTERVAL = timedelta(seconds=1)
LONGEST_TURN = timedelta(days=30)


@dataclass(frozen=True)
class ItemStart:
    """The input of the workflow."""

    project: str
    item: str
    submission: int
    retries: int
    queue: str


@workflow.defn(name=WORKFLOW, sandboxed=False)
class ItemWorkflow:
    """Assigns an item to a machine, again after each transient failure, and waits for people at gates."""

    def __init__(self) -> None:
        self._decisions = 0

    @workflow.signal(name=DECIDED)
    def decided(self) -> None:
        self._decisions += 1

    @workflow.run
    async def run(self, start: ItemStart) -> str:
        turns = ItemTurns()
        while True:
            turns.begin()
            seen = self._decisions
            result: TurnResult = await workflow.execute_activity(
                ACTIVITY,
                Turn(start.project, start.item, start.submission, turns.turn, turns.tries, start.retries),
                result_type=TurnResult,
                task_queue=start.queue,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                start_to_close_timeout=LONGEST_TURN,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                retry_policy=RetryPolicy(
                    initial_interval=ATTEMPT_INTERVAL,
                    backoff_coefficient=1.0,
                    maximum_attempts=ATTEMPTS,
                ),
            )
            match turns.after(result):
                case NextStep.SLEEP:
                    await workflow.sleep(result.seconds)
                case NextStep.AWAIT_DECISION:
                    await workflow.wait_condition(lambda seen=seen: self._decisions > seen)  # type: ignore[misc]
                case NextStep.END:
                    return result.kind
