"""Which errors of a graph are retried, and which of them depend on the model's answers."""

from collections.abc import Iterator

from agentos.core.errors import BrokenWorkflow
from agentos.core.text.values import error_location
from agentos.workflows.base import RetryOn

REPEATED_ERRORS = (
    *(
        ArithmeticError,
        AssertionError,
        AttributeError,
        ImportError,
        LookupError,
        NameError,
        NotImplementedError,
    ),
    *(RecursionError, SyntaxError, TypeError, ValueError),
)
"""Raised by the code itself: another attempt with the same stored answers would raise them again."""


def deciding_error(error: BaseException, retry_on: RetryOn | None) -> BaseException:
    """The error itself, or of a group, such as asyncio.TaskGroup raises: one that is not tried again, else the first."""
    first, *others = _leaves(error)
    return next((each for each in (first, *others) if others and not is_tried_again(each, retry_on)), first)


def is_tried_again(error: BaseException, retry_on: RetryOn | None) -> bool:
    """Whether another attempt may succeed. `retry_on` is the workflow's own answer; raises BrokenWorkflow if it raises."""
    if retry_on is None:
        from langgraph.errors import InvalidUpdateError

        return not isinstance(error, (*REPEATED_ERRORS, InvalidUpdateError))
    try:
        return isinstance(error, retry_on) if isinstance(retry_on, tuple) else bool(retry_on(error))
    except Exception as problem:
        raise BrokenWorkflow(f"retry_on raised {error_location(problem)}") from problem


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
