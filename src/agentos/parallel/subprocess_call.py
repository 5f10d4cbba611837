"""Calls a function in a new process and waits for its result."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from agentos.platform_support import platform

POLL_INTERVAL = 0.1  # seconds between checks for cancellation


class ProcessDied(Exception):
    """The call raised an exception, or its process ended without a result."""


def call_in_process(
    function: Callable[..., Any], arguments: tuple[Any, ...], cancelled: threading.Event
) -> Any:
    """Returns what the function returns. Raises ProcessDied if it fails; kills the process when `cancelled` is set."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_run_and_send,
        args=(sender, os.getpid(), function, arguments),
        daemon=True,
        name="agentos item",
    )
    process.start()
    sender.close()
    try:
        while not wait([receiver, process.sentinel], POLL_INTERVAL):
            if cancelled.is_set():
                raise ProcessDied("killed by shutdown")
        return _receive(receiver, process)
    finally:
        process.kill()
        process.join()
        receiver.close()


def _receive(receiver: "Connection[Any, Any]", process: Any) -> Any:
    try:
        succeeded, value = receiver.recv()
    except EOFError as error:
        process.join()
        raise ProcessDied(f"its process ended with exit code {process.exitcode}") from error
    if not succeeded:
        raise ProcessDied(value)
    return value


def _run_and_send(
    sender: "Connection[Any, Any]", parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    platform().die_with_parent(parent)
    try:
        result = (True, function(*arguments))
    except BaseException as error:  # includes SystemExit: it fails this item only
        result = (False, error_text(error))
    sender.send(result)


def error_text(error: BaseException) -> str:
    """An exception as the text of a result: its type, and its message if it has one."""
    return str(error) if isinstance(error, ProcessDied) else f"{type(error).__name__}: {error}".rstrip(": ")
