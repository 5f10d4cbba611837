"""One call in a process of its own, waited for by a thread."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from agentos.engines.prctl import die_with_parent

LOOK_AGAIN = 0.1


class ProcessDied(Exception):
    """The process ended without an answer."""


def call_in_process(function: Callable[..., Any], arguments: tuple[Any, ...], cut: threading.Event) -> Any:
    """What the function gives or raises there; it is killed when `cut` is set."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(
        target=_answer, args=(sending, os.getpid(), function, arguments), daemon=True, name="agentos item"
    )
    process.start()
    sending.close()
    try:
        while not wait([receiving, process.sentinel], LOOK_AGAIN):
            if cut.is_set():
                raise ProcessDied("killed by shutdown")
        return _received(receiving, process)
    finally:
        process.kill()
        process.join()
        receiving.close()


def _received(receiving: "Connection[Any, Any]", process: Any) -> Any:
    try:
        succeeded, value = receiving.recv()
    except EOFError as error:
        process.join()
        raise ProcessDied(f"its process ended with {process.exitcode}") from error
    if not succeeded:
        raise ProcessDied(value)
    return value


def _answer(
    sending: "Connection[Any, Any]", parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    die_with_parent(parent)
    try:
        answer = (True, function(*arguments))
    except BaseException as error:  # also SystemExit: it is this item's failure alone
        answer = (False, error_text(error))
    sending.send(answer)


def error_text(error: BaseException) -> str:
    """An error as a result tells it: some have no text of their own."""
    return str(error) if isinstance(error, ProcessDied) else f"{type(error).__name__}: {error}".rstrip(": ")
