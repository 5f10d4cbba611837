"""`agentos page --fleet` for a test: the real command, beside a fleet of real servers."""

import contextlib
import subprocess
from collections.abc import Iterator

from agentos.offline.child import start_offline_server
from tests.fleet.harness import PROGRAMS, Fleet
from tests.page.served import ServedPage
from tests.scenarios.harness import RunningCommand


@contextlib.contextmanager
def served_fleet(fleet: Fleet, *flags: str, **variables: str) -> Iterator[ServedPage]:
    """A page with a home of its own, whose client is logged in; it ends with this block."""
    out, err = fleet.folder / "page.out", fleet.folder / "page.err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            [PROGRAMS / "agentos", "page", "--fleet", *flags],
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            cwd=fleet.project,
            env={**fleet.environment("page"), **variables},
        )
    try:
        page = ServedPage(RunningCommand(process, out, err))
        page.log_in()
        yield page
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def slow_models(fleet: Fleet, latency: str = "0.4,0.5") -> Iterator[None]:
    """Restart the gateway with keys of a model server that takes its time."""
    words, environment = ("--latency", latency), fleet.environment("models")
    with contextlib.closing(start_offline_server(environment, words)) as models:
        fleet.gateway.stop()
        for number, key in enumerate(models.credentials(), 1):
            fleet.gateway.variables[f"GEMINI_API_KEY_{number}"] = key.secret.reveal()
            fleet.gateway.variables[f"GEMINI_BASE_URL_{number}"] = key.base_url or ""
        fleet.gateway.start(fleet.environment("gateway"))
        yield
