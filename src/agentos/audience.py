"""Who hears the events of a run: its records, people, programs."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from agentos.core.ports import Listener
from agentos.outputs.audit import Audit
from agentos.outputs.console import Console
from agentos.outputs.jsonlines import JsonLines
from agentos.outputs.logfiles import LogFiles
from agentos.outputs.records import SummaryFile
from agentos.outputs.writer import LineWriter
from agentos.storage.files import Folder, private_file
from agentos.storage.journal import Journal

Redact = Callable[[str], str]


def people_listen(
    folder: Path, redact: Redact, descriptor: int, stack: contextlib.ExitStack
) -> tuple[LineWriter, list[Listener]]:
    """The screen at this descriptor; and it with the records in the run's folder, as listeners."""
    people = stack.enter_context(contextlib.closing(LineWriter(descriptor)))
    listeners: list[Listener] = [
        Journal(folder, redact),
        LogFiles(folder, private_file, people.write),
        Audit(folder, private_file, redact),
        SummaryFile(_summary_writer(folder), redact),
        Console(people.write, redact),
    ]
    return people, _until_the_end(listeners, stack)


def programs_listen(redact: Redact, stack: contextlib.ExitStack) -> list[Listener]:
    """One JSON event a line on stdout."""
    programs = stack.enter_context(contextlib.closing(LineWriter(1)))
    return _until_the_end([JsonLines(programs.write, redact)], stack)


def _until_the_end(listeners: list[Listener], stack: contextlib.ExitStack) -> list[Listener]:
    for listener in listeners:
        stack.callback(listener.close)
    return listeners


def _summary_writer(folder: Path) -> Callable[[str], None]:
    place = Folder(folder, file_mode=0o600, folder_mode=0o700)
    return lambda text: (place.write("summary.json", text.encode()), None)[1]
