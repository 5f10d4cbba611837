"""Decides which writes of a graph's task are kept if the task was cut short."""

from collections.abc import Sequence
from typing import Any

_ERROR = "__error__"
_CONTROL = (_ERROR, "__error_source_node__", "__interrupt__", "__resume__")
"""LangGraph's writes that say what happened to a task, as opposed to what it produced."""


def whole_output(writes: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """The writes of one task, without its output if the task failed or was cancelled.

    LangGraph stores what such a task had written so far next to its error, and treats a task with any output as finished.
    A stop between a node's state and the choice of the next node would then end the graph early, without an error.
    """
    if not any(channel == _ERROR for channel, _ in writes):
        return writes
    return [(channel, value) for channel, value in writes if channel in _CONTROL]
