"""Too few connections to Postgres: doctor says so, and a worker waits for one and says it."""

import contextlib
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agentos.core.text.secrets import Secret
from agentos.storage.postgres.connecting import connect
from agentos.storage.postgres.connection_limits import connection_limits, worker_name
from tests.fleet.harness import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@contextlib.contextmanager
def limited_role(fleet: Fleet, limit: int) -> Iterator[str]:
    """Lets the fleet connect as a role with so many connections; yields its name."""
    role = f"role_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(fleet.database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {limit}".encode())
        admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
        admin.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}".encode())
        fleet.database = make_conninfo(fleet.database, user=role)
        yield role


def test_a_worker_without_a_connection_waits_and_its_items_say_why(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    with limited_role(fleet, 3) as role, psycopg.connect(fleet.database) as taken:
        others = [psycopg.connect(fleet.database) for _ in range(2)]
        worker = fleet.start("agentos", "worker", "--parallel", "2", home="worker-x")
        assert worker.stdout
        said = worker.stdout.readline()
        assert (
            "has no connection for this worker" in said and f'too many connections for role "{role}"' in said
        )
        for other in others:
            other.close()
        assert "items at a time" in worker.stdout.readline()
        worker.kill()
        worker.wait(10)
        taken.close()
        # One for the worker, one for its events, one for an item: the other item waits until that has ended.
        fleet.worker(2)
        fleet.database = make_conninfo(fleet.database, user="agentos")
        done = fleet.run("lld-workflow", "--all", "--fleet")
        assert done.returncode == 0, done.stdout + done.stderr
    assert "too many connections for role" in fleet.log(1).read_text()
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]


def test_doctor_counts_the_connections_that_the_workers_need(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.run("agentos", "init")
    ready = fleet.run("agentos", "doctor")
    assert "no worker is connected" in ready.stdout, ready.stdout + ready.stderr
    assert "reachable at 127.0.0.1" in ready.stdout and "has keys for" in ready.stdout
    with limited_role(fleet, 8):
        fleet.worker(3)
        enough = fleet.run("agentos", "doctor")
        assert "1 worker with 3 items at a time need 8" in enough.stdout, enough.stdout
        assert "raise max_connections" not in enough.stdout
        with connect(Secret(fleet.database), worker_name(1)) as second:
            assert connection_limits(second).needed == 11
            few = fleet.run("agentos", "doctor")
        assert (few.returncode, "raise max_connections" in few.stdout) == (3, True), few.stdout


def test_doctor_names_each_service_that_cannot_be_used(fleet: Fleet) -> None:
    fleet.issues(1)
    away = {
        "AGENTOS_POSTGRES": "postgresql://127.0.0.1:1/x",
        "TEMPORAL_ADDRESS": "127.0.0.1:1",
        "AGENTOS_GATEWAY_TOKEN": "agentos.x.y",
    }
    found = fleet.run("agentos", "doctor", variables=away)
    assert found.returncode == 3
    for said in (
        'Postgres cannot be used (connection to server at "127.0.0.1", port 1 failed: Connection refused): check',
        "Temporal cannot be used at 127.0.0.1:1 (Connection refused): check",
        "does not accept",
    ):
        assert said in found.stdout, found.stdout
    with psycopg.connect(fleet.database) as connection:
        connection.execute("UPDATE agentos_version SET version = version + 1")
    newer = fleet.run("agentos", "doctor")
    assert (newer.returncode, "made by a newer agentos" in newer.stdout) == (3, True), newer.stdout
