"""`agentos worker`: one machine of a fleet."""

from functools import partial
from typing import TYPE_CHECKING

import click

from agentos.cli.fleet import require_fleet
from agentos.cli.param_types import HostPort, ImpliedInt, Workers, log_option, require_traces, traces_option
from agentos.core.constants import AUTO_PARALLEL, DEFAULT_PARALLEL, MAX_PARALLEL

if TYPE_CHECKING:
    from agentos.config.settings import Settings
    from agentos.run.signals import Signals

EPILOG = """\b
Examples:
  agentos worker --parallel 10
  AGENTOS_GATEWAY=https://10.0.0.5:8484 AGENTOS_GATEWAY_TOKEN=... agentos worker

\b
Ctrl-C or SIGTERM stops its items at their next node and hands them to the other workers;
a second one kills them. Exit codes: 130, 143 stopped; 3 Postgres, Temporal or the gateway
cannot be used; 4 the gateway no longer accepts the token.
"""


def _run(parallel: int | None, metrics: tuple[str, int] | None, log: str, traces: bool) -> int:
    """Work for a fleet: take items from Temporal, keep them in Postgres, call models through the gateway."""
    require_fleet()
    require_traces(traces)
    from agentos.cli.worker_limit import limit_workers
    from agentos.config.settings import Flags, read_settings
    from agentos.core.errors import UsageError
    from agentos.run.api import RunOrigin, run_with_signals

    if parallel == AUTO_PARALLEL:
        raise UsageError(
            "invalid worker count auto: a worker of a fleet needs a number, such as agentos worker --parallel 10"
        )
    settings = limit_workers(read_settings(Flags(parallel=parallel or DEFAULT_PARALLEL)))
    as_json = log == "json"
    origin = RunOrigin("agentos worker", partial(click.echo, err=as_json), json=as_json)
    return run_with_signals(origin, partial(_work, settings, metrics, as_json, traces))


def _work(
    settings: "Settings", metrics: tuple[str, int] | None, log_json: bool, traces: bool, signals: "Signals"
) -> int:
    from agentos.config.settings import fleet_access
    from agentos.fleet.gateway_access import prestart_worker
    from agentos.fleet.machine import FleetWorker, WorkerParts

    access = fleet_access()
    with prestart_worker(settings, access) as prestarted:
        parts = WorkerParts(settings, prestarted, access.postgres, click.echo, metrics, log_json, traces)
        return FleetWorker(parts).run(signals)


command = click.Command(
    "worker",
    callback=_run,
    help=_run.__doc__,
    epilog=EPILOG,
    params=[
        click.Option(
            ["--parallel", "-j"],
            type=Workers(),
            metavar="N",
            is_flag=False,
            flag_value=ImpliedInt(DEFAULT_PARALLEL),
            help=f"Number of items at a time, at most {MAX_PARALLEL} (max_parallel). Default: {DEFAULT_PARALLEL}.",
        ),
        click.Option(
            ["--metrics"],
            type=HostPort(),
            help="Address for Prometheus, at /metrics, without TLS; numbers only. Also /healthz and /readyz.",
        ),
        log_option(),
        traces_option(),
    ],
)
