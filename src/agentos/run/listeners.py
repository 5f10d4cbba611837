"""Who hears the events of a run, and who may ask it for something: people, programs, records."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from agentos.config.settings import terminal_settings
from agentos.control.server import ControlSocket
from agentos.core.protocol.ports import ControlRequest, Engine, Listener
from agentos.outputs.audit import Audit
from agentos.outputs.display import Display, TerminalInfo, open_display
from agentos.outputs.jsonlines import JsonLines
from agentos.outputs.log_warning import WarnOnce
from agentos.outputs.logfiles import LogFiles
from agentos.outputs.summary_file import SummaryFile
from agentos.outputs.writer import LineWriter
from agentos.storage.files import Folder, private_file
from agentos.storage.journal import Journal

Redact = Callable[[str], str]


def open_screen(kind: str, descriptor: int, redact: Redact) -> Display:
    """The display of this kind at this descriptor, as the surroundings want it."""
    around = terminal_settings()
    return open_display(kind, descriptor, redact, TerminalInfo(around.colours, around.simple, around.rewraps))


def human_listeners(
    folder: Path, redact: Redact, people: Display, stack: contextlib.ExitStack
) -> list[Listener]:
    """The screen with the records in the run's folder."""
    warn = WarnOnce(people.write)
    listeners: list[Listener] = [
        Journal(folder, redact, warn),
        LogFiles(folder, private_file, warn),
        Audit(folder, private_file, redact, warn),
        SummaryFile(_summary_writer(folder), redact, warn),
        people,
    ]
    return _until_the_end(listeners, stack)


def json_listener(redact: Redact, stack: contextlib.ExitStack) -> list[Listener]:
    """One JSON event a line on stdout."""
    programs = stack.enter_context(contextlib.closing(LineWriter(1)))
    return _until_the_end([JsonLines(programs.write, redact)], stack)


def open_control_socket(
    folder: Path, engine: Engine, stack: contextlib.ExitStack, say: Callable[[str], None]
) -> Callable[[], Sequence[ControlRequest]]:
    """Other terminals reach the run here; without it the run goes on all the same."""
    try:
        control = ControlSocket(folder)
    except OSError as error:
        say(f"[COORDINATOR] Other terminals cannot control this run ({error.strerror}).")
        return lambda: ()
    engine.watch(stack.enter_context(contextlib.closing(control)).fileno())
    return control.receive


def _until_the_end(listeners: list[Listener], stack: contextlib.ExitStack) -> list[Listener]:
    for listener in listeners:
        stack.callback(listener.close)
    return listeners


def _summary_writer(folder: Path) -> Callable[[str], None]:
    place = Folder(folder, file_mode=0o600, folder_mode=0o700)
    return lambda text: (place.write("summary.json", text.encode()), None)[1]
