"""Keys stay at the gateway, and texts out of Temporal: everything that both databases keep is searched for them."""

import asyncio
import contextlib

import psycopg
import pytest
from temporalio.client import Client

from agentos.offline.child import start_offline_server
from tests.fleet.harness import Fleet
from tests.fleet.secret_scan import found_in_postgres, found_in_temporal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CALLS_PER_ITEM = 6
CANARY = "zanzibar quokka paragraph"


def test_no_key_and_no_issue_text_reaches_temporal_and_no_key_reaches_postgres(fleet: Fleet) -> None:
    fleet.issues(1)
    issue = fleet.project / "issues/1-thing.md"
    issue.write_text(issue.read_text() + f"\n{CANARY}\n")
    with contextlib.closing(start_offline_server(fleet.environment("models"))) as models:
        keys = models.credentials()
        fleet.gateway.stop()
        fleet.gateway.variables = {
            f"GEMINI_API_KEY_{n}": key.secret.reveal() for n, key in enumerate(keys, 1)
        }
        fleet.gateway.variables |= {
            f"GEMINI_BASE_URL_{n}": key.base_url or "" for n, key in enumerate(keys, 1)
        }
        fleet.gateway.start(fleet.environment("gateway"))
        fleet.worker()
        done = fleet.run("lld-workflow", "--all", "--fleet")
        assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.calls() == CALLS_PER_ITEM
    assert "agentos_documents" in found_in_postgres(fleet.postgres, fleet.database, CANARY)
    assert found_in_temporal(fleet.temporal, fleet.name)
    assert found_in_temporal(fleet.temporal, CANARY) == []
    for secret in (fleet.gateway.token, *(key.secret.reveal() for key in keys)):
        assert found_in_temporal(fleet.temporal, secret) == []
        assert found_in_postgres(fleet.postgres, fleet.database, secret) == []


def test_the_search_would_find_a_secret_wherever_it_is(fleet: Fleet) -> None:
    """Also inside a value that is so long that Postgres compresses it, and in the input of a workflow."""
    secrets = {name: f"leaked-{name}-5d1c" for name in ("short", "compressed", "bytes", "workflow")}
    long = "All work and no play makes the text compressible. " * 4000
    with psycopg.connect(fleet.database) as connection:
        connection.execute("CREATE TABLE leak (text text, content bytea)")
        rows = [
            (secrets["short"], b""),
            (f"{long}{secrets['compressed']}{long}", b""),
            ("", f"{long}{secrets['bytes']}{long}".encode()),
        ]
        connection.cursor().executemany("INSERT INTO leak VALUES (%s, %s)", rows)
    for name in ("short", "compressed", "bytes"):
        assert "leak" in found_in_postgres(fleet.postgres, fleet.database, secrets[name]), name
    assert "a file" in found_in_postgres(fleet.postgres, fleet.database, secrets["short"])

    async def leak() -> None:
        client = await Client.connect(fleet.temporal.address)
        await client.start_workflow("nobody", long + secrets["workflow"], id=fleet.name, task_queue="nobody")

    asyncio.run(leak())
    assert found_in_temporal(fleet.temporal, secrets["workflow"])
