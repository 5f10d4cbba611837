"""How many workers a run may have: the cap of the settings, and what fits into memory."""

import resource
from dataclasses import replace

import click

from agentos.config.settings import Settings
from agentos.core.constants import WORKER_MEMORY
from agentos.platform_support import platform

MEGABYTE = 1_000_000  # bytes
BASE_MEMORY = 150 * MEGABYTE  # bytes for coordinator, fork server and offline server
WORKER_DESCRIPTORS = 4  # channel, output, log file, audit file
BASE_DESCRIPTORS = 64


def limit_workers(settings: Settings, available: int | None = None) -> Settings:
    """Cap the number of workers, with a warning that says why; later requests are capped in the same way.

    `available` is the memory in bytes; by default what the machine has. `auto` stays `auto`, below the same cap.
    """
    workers = settings.parallel
    available = platform().available_memory() if available is None else available
    if workers > settings.max_parallel:
        from agentos.outputs.format import over_maximum

        click.echo(f"Warning: {over_maximum(workers, settings.max_parallel)}", err=True)
        workers = settings.max_parallel
    fitting = settings.max_parallel if available is None else workers_that_fit(available)
    if workers > fitting:
        click.echo(f"Warning: {_too_little_memory(workers, fitting, available or 0)}", err=True)
    _allow_descriptors(workers or min(settings.max_parallel, fitting))
    return replace(
        settings, parallel=min(workers, fitting), max_parallel=min(settings.max_parallel, max(fitting, 1))
    )


def workers_that_fit(available: int) -> int:
    """How many workers fit; at least one, because a run that does not fit at all fails with a better message later."""
    return max(1, (available - BASE_MEMORY) // WORKER_MEMORY)


def _too_little_memory(workers: int, fitting: int, available: int) -> str:
    needed = BASE_MEMORY + workers * WORKER_MEMORY
    return (
        f"{workers} workers need about {needed // MEGABYTE} MB of memory, and {available // MEGABYTE} MB are "
        f"available. Reducing to {fitting}."
    )


def _allow_descriptors(workers: int) -> None:
    """Raise the soft limit of open files to what these workers need, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = BASE_DESCRIPTORS + workers * WORKER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
