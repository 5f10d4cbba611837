"""Which errors of a graph are retried, and which of them depend on the model's answers."""

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


def is_tried_again(error: BaseException, retry_on: RetryOn | None) -> bool:
    """Whether another attempt may succeed. `retry_on` is the workflow's own answer."""
    if retry_on is None:
        from langgraph.errors import InvalidUpdateError

        return not isinstance(error, (*REPEATED_ERRORS, InvalidUpdateError))
    return isinstance(error, retry_on) if isinstance(retry_on, tuple) else bool(retry_on(error))
