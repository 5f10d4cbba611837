"""A task of a graph that is cut short runs again: what it had written so far is not taken for all of its output."""

import asyncio
from pathlib import Path

from agentos.storage.checkpoints import open_checkpoint
from agentos.storage.task_writes import whole_output
from tests.storage.cut_short import stop_and_resume


def test_a_finished_task_keeps_all_its_writes() -> None:
    writes = [("draft", "text"), ("branch:to:review", None)]
    assert whole_output(writes) == writes


def test_a_task_that_was_cut_short_keeps_its_error_and_answers_alone() -> None:
    writes = [("draft", "text"), ("__resume__", ["yes"]), ("__error__", ValueError())]
    assert [channel for channel, _ in whole_output(writes)] == ["__resume__", "__error__"]


def test_a_graph_stopped_before_it_has_chosen_the_next_node_goes_on_with_that_node(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_checkpoint(tmp_path / "item.db") as checkpoint:
            assert await stop_and_resume(checkpoint.saver, "item") == {"first": "done", "second": "done"}

    asyncio.run(test())
