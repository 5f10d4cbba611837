"""What every recorded run has, whatever its workers do: run folder, display, listeners, control socket."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentos.config.settings import Settings, current_folder, moved_home, terminal_info
from agentos.control.server import ControlSocket
from agentos.core.constants import AUTO_PARALLEL
from agentos.core.planning.plan import Plan
from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.ports import Clock, ControlRequest, Engine, Listener
from agentos.core.protocol.results import TakenItem
from agentos.core.text.secrets import Redactor
from agentos.outputs.audit import Audit, JsonLines
from agentos.outputs.display import open_display
from agentos.outputs.logfiles import LogFiles, SummaryFile, WarnOnce
from agentos.outputs.writer import LineWriter
from agentos.platform_support import host_clock
from agentos.run.api import RunOrigin
from agentos.run.done_hook import DoneHook
from agentos.run.event_loop import CredentialUpdate, ExternalInputs
from agentos.run.machine_meter import MachineMeter
from agentos.run.signals import Signals
from agentos.storage.files import Folder, private_file
from agentos.storage.home import Home
from agentos.storage.journal import Journal
from agentos.storage.runs import new_run

HOST_CLOCK = Clock(host_clock, time.time)


class RunSession:
    """Creates the run folder and opens everything that reports on the run or lets people control it.

    Whatever it opens is closed by `stack`, in reverse order.
    """

    def __init__(
        self, home: Home, origin: RunOrigin, redact: Redactor, signals: Signals, stack: contextlib.ExitStack
    ) -> None:
        # Opened first and closed last, so that everything else of the run is closed when the command starts.
        hook = DoneHook(origin.on_done, origin.echo, to_stderr=origin.json)
        stack.callback(hook.run)
        run = stack.enter_context(contextlib.closing(new_run(home.runs, time.time())))
        hook.folder = run.path
        self.run_id = run.id
        self.folder = run.path
        info = terminal_info() if origin.notify else terminal_info().without_notifications()
        self.display = open_display(
            origin.display, origin.text_fd, redact, info, keep_order=origin.keep_order
        )
        self.listeners: list[Listener] = []
        self._origin = origin
        self._redact = redact
        self._signals = signals
        self._stack = stack
        self._add_default_listeners()
        self.add_listener(hook)

    def add_listener(self, listener: Listener) -> None:
        self.listeners.append(listener)
        self._stack.callback(listener.close)

    def external_inputs(
        self,
        engine: Engine,
        credentials: Callable[[], CredentialUpdate] = lambda: None,
        decisions: Callable[[list[str]], list[events.ItemDecided]] = lambda parked: [],
        taken: Callable[[list[str]], list[TakenItem]] = lambda items: [],
        background: Callable[[], object] = lambda: None,
    ) -> ExternalInputs:
        """Connect signals and the control socket to `engine`, so that both end its waits."""
        self._signals.wake = engine.wake
        return ExternalInputs(
            self._signals.arrived,
            credentials,
            decisions,
            self._open_control_socket(engine),
            self._suspend,
            taken,
            background=background,
            machine=MachineMeter(),
        )

    def run_started(self, workflow: str, settings: Settings, plan: Plan) -> events.RunStarted:
        return events.RunStarted(
            run=self.run_id,
            workflow=workflow,
            project=str(settings.project),
            items=plan.ids,
            workers=settings.parallel,
            auto_workers=settings.parallel == AUTO_PARALLEL,
            keys=(),
            command=self._origin.command,
            cwd=current_folder(),
            home=moved_home(settings.home),
        )

    def _add_default_listeners(self) -> None:
        folder, encoder = self.folder, EventEncoder(self._redact)
        warn = WarnOnce(self.display.write)
        self.add_listener(Journal(folder, encoder, warn))
        self.add_listener(LogFiles(folder, private_file, warn))
        self.add_listener(Audit(folder, private_file, encoder, warn))
        self.add_listener(SummaryFile(_summary_writer(folder), self._redact, warn))
        self.add_listener(self.display)
        if self._origin.json:
            stdout = self._stack.enter_context(contextlib.closing(LineWriter(1)))
            self.add_listener(JsonLines(stdout.write, encoder))

    def _open_control_socket(self, engine: Engine) -> Callable[[], Sequence[ControlRequest]]:
        """Open the socket if possible. Without it, the run continues, but only signals control it."""
        try:
            control = ControlSocket(self.folder)
        except OSError as error:
            self._origin.echo(f"[COORDINATOR] Other terminals cannot control this run ({error.strerror}).")
            return lambda: ()
        engine.watch(self._stack.enter_context(contextlib.closing(control)).fileno())
        return control.receive

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back to the shell until this process is continued."""
        self.display.suspend()
        self._signals.suspend()
        self.display.resume()


def _summary_writer(folder: Path) -> Callable[[str], None]:
    documents = Folder(folder, file_mode=0o600, folder_mode=0o700)

    def write(text: str) -> None:
        # A file name that is not UTF-8 may be part of an error.
        documents.write("summary.json", text.encode("utf-8", "replace"))

    return write
