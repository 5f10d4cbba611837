"""Builds the parts of a page that shows a fleet."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentos.config.settings import FleetAccess
from agentos.fleet.submission_journal import SharedReader
from agentos.page.fleet_control import FleetControl
from agentos.page.fleet_reviews import FleetReviews
from agentos.page.fleet_runs import FleetRuns
from agentos.storage.files import scratch_folder
from agentos.storage.home import Home
from agentos.storage.postgres.connecting import with_timeout
from agentos.storage.postgres.fleet_items import FleetDatabase
from agentos.storage.postgres.schema import check_tables
from agentos.storage.postgres.submissions import SubmissionReader

TIMEOUT = 4  # seconds


class FleetParts(NamedTuple):
    runs: FleetRuns
    reviews: FleetReviews
    control: FleetControl


@contextlib.contextmanager
def open_fleet_parts(home: Home, access: FleetAccess, folders: dict[str, Path]) -> Iterator[FleetParts]:
    """Raises PreflightError if Postgres cannot be used."""
    conninfo = with_timeout(access.postgres, TIMEOUT)
    with (
        contextlib.closing(FleetDatabase(conninfo)) as database,
        scratch_folder(home.path / "fleet", "page-") as scratch,
    ):
        check_tables(database.connection)
        shared = SharedReader(SubmissionReader(database))
        runs = FleetRuns(shared, database, scratch)
        reviews = FleetReviews(shared, database, home, scratch, dict(folders))
        yield FleetParts(runs, reviews, FleetControl(runs, database, access.gateway, access.token))
