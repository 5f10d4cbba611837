"""A machine that was taken for dead comes back."""

import asyncio
import os
import signal

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError

from agentos.fleet.temporal import connect_temporal
from tests.fleet.chaos.steps import everything
from tests.fleet.harness import Fleet, processes_below
from tests.fleet.servers import TemporalServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_machine_that_thaws_after_its_item_was_taken_over_writes_nothing(fleet: Fleet) -> None:
    fleet.issues(1)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    frozen = [first.pid, *processes_below(first.pid)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    fleet.worker()
    # Temporal may hand the next attempts to the frozen machine too, whose requests for items are still open.
    output, _ = follower.communicate(timeout=200)
    assert follower.returncode == 0, output
    before = everything(fleet.database)
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    # Whichever it notices first: that Temporal has cancelled the turn, or that its claim is outranked.
    ends = ("has taken it over", "Interrupted at")
    fleet.wait_until(lambda: any(end in fleet.log(1).read_text() for end in ends), "the end of its item")
    assert first.poll() is None
    assert "Traceback" not in fleet.log(1).read_text()
    assert everything(fleet.database) == before


def test_the_sdk_writes_nothing_between_the_lines_of_a_worker(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(temporal: TemporalServer) -> None:
        client = await connect_temporal()
        temporal.stop(signal.SIGKILL)
        # It retries for some seconds, and would say so.
        request = DescribeNamespaceRequest(namespace="default")
        with pytest.raises(RPCError):
            await client.workflow_service.describe_namespace(request, retry=True)

    temporal = TemporalServer()
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.address)
    try:
        temporal.start()
        asyncio.run(test(temporal))
    finally:
        temporal.close()
    assert capfd.readouterr() == ("", "")
