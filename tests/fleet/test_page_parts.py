"""The parts of a fleet's page beside each other: one connection to Postgres, and a Temporal that does not answer."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentos.config.settings import FleetAccess
from agentos.core.planning.gates import Gate, GateRequest, ParkedItem
from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.protocol.codec import pack
from agentos.core.protocol.results import failed
from agentos.core.text.secrets import Secret
from agentos.fleet.machines import gateway_keys
from agentos.page.fleet_parts import FleetParts, open_fleet_parts
from agentos.page.reviews import ReviewQueue
from agentos.storage.home import Home
from agentos.storage.postgres.fleet_items import FleetDatabase
from tests.fleet.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PROJECTS = ("shop", "blog", "wiki")


def submit(database: str, project: str, state: str) -> None:
    """An item in this state, as its worker has left it."""
    item = Item("LLD-1", "lld", 1, "Title", "issues/1.md", digest="d1")
    with contextlib.closing(FleetDatabase(Secret(database), project)) as found:
        number = found.submit(SharedTask(project, "lld", 5, 2, 1800.0, (), (), ()), [ItemTask(item)], None)
        connection = found.connection
        connection.execute(
            "UPDATE agentos_items SET claim = %s, state = %s, outcome = %s WHERE project = %s",
            (
                [number, 1, 1],
                state,
                json.dumps(pack(failed("broken"))) if state == "ended" else None,
                project,
            ),
        )
        connection.execute("SELECT set_config('agentos.claim', %s, false)", (f"{{{number},1,1}}",))
        request = GateRequest(1, Gate.DRAFT, 1, "docs/lineage/active/1-lld/002-draft.md")
        parked = ParkedItem("LLD-1", "lld", "Title", "N2_human_edit", "", "S1", 1.0, request)
        connection.execute(
            "INSERT INTO agentos_notes VALUES (%s, 'parking', %s)",
            (f"{project}/LLD-1", json.dumps(pack(parked))),
        )


@pytest.fixture
def parts(database: str, tmp_path: Path) -> Iterator[FleetParts]:
    with open_fleet_parts(Home(tmp_path).open(), FleetAccess(Secret(database), "", None), {}) as found:
        yield found


@contextlib.contextmanager
def silent_temporal(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
        yield listener


def test_the_page_has_one_connection_however_many_projects_wait_for_a_person(
    database: str, parts: FleetParts
) -> None:
    for project in PROJECTS:
        submit(database, project, "parked")
    overview = ReviewQueue(parts.reviews).overview()
    assert overview["waiting"] == len(PROJECTS)
    with contextlib.closing(FleetDatabase(Secret(database), name="counting")) as other:
        row = other.connection.execute(
            "SELECT count(*) AS number FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name <> 'counting'"
        ).fetchone()
    assert row == {"number": 1}


def ask_for_reviews(parts: FleetParts) -> None:
    ReviewQueue(parts.reviews).overview()


def retry(parts: FleetParts) -> None:
    view = parts.runs.find("S1")
    assert view
    with contextlib.suppress(Exception):
        parts.control.request(view, {"type": "retry_requested", "item": "LLD-1"})


@pytest.mark.parametrize(("state", "request_"), [("parked", ask_for_reviews), ("ended", retry)])
def test_while_temporal_is_silent_everybody_else_is_served(
    database: str,
    parts: FleetParts,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    request_: Callable[[FleetParts], None],
) -> None:
    submit(database, "shop", state)
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{free_port()}")
    for waiting in parts.reviews.waiting(with_documents=False):
        assert "could not be notified" in parts.reviews.notify_run(waiting)
    with silent_temporal(monkeypatch) as temporal:
        asking = threading.Thread(target=request_, args=(parts,), daemon=True)
        asking.start()
        connection, _ = temporal.accept()
        is_free = parts.runs.shared.lock.acquire(timeout=3)  # Temporal is given up after ten seconds
        if is_free:
            parts.runs.shared.lock.release()
        connection.close()
    asking.join(60)
    assert is_free


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://10.255.255.1:8484", "has no TLS, and is not on this machine"),
        ("https://[bad", "invalid gateway address"),
        ("nonsense", "invalid gateway address"),
    ],
)
def test_the_token_is_sent_to_no_address_that_a_worker_would_refuse(
    parts: FleetParts, url: str, problem: str
) -> None:
    parts.control.gateway, parts.control.token = url, Secret("token-123")
    assert problem in str(parts.control.keys_json()["problem"])


def test_a_proxy_never_sees_the_token_of_a_gateway_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request reaches the gateway itself, and none the proxy."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with (
        socket.create_server(("127.0.0.1", 0)) as gateway,
        socket.create_server(("127.0.0.1", 0)) as proxy,
    ):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        proxy.setblocking(False)
        gateway.settimeout(20)
        url = f"http://127.0.0.1:{gateway.getsockname()[1]}"

        def ask() -> None:
            with contextlib.suppress(Exception):
                gateway_keys(url, Secret("token-123"))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        connection, _ = gateway.accept()
        connection.close()
        asking.join(20)
        with pytest.raises(BlockingIOError):
            proxy.accept()
