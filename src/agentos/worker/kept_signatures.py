"""Signatures that libraries look up for every item, determined once for all workers."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any


@contextlib.contextmanager
def keep_signatures() -> Iterator[None]:
    """Store the signatures that are looked up in this block where `inspect` finds them again: on the functions.

    LangGraph and the SDKs look up the same thirty for every item. Only for the fork server, where no code of a user's
    has been loaded yet.
    """
    look_up = inspect.signature

    def signature(function: Callable[..., Any], **options: Any) -> inspect.Signature:
        found = look_up(function, **options)
        if not options:
            _keep(function, look_up)
        return found

    inspect.signature = signature  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.signature = look_up


def _keep(looked_up: Callable[..., Any], look_up: Callable[..., inspect.Signature]) -> None:
    # Not on a class, where subclasses would inherit it.
    is_class = isinstance(looked_up, type)
    functions = [getattr(looked_up, name) for name in ("__init__", "__new__")] if is_class else [looked_up]
    for each in functions:
        function = getattr(each, "__func__", each)
        if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
            function.__signature__ = look_up(function)  # type: ignore[attr-defined]
