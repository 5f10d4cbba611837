"""The control socket: access rights, requests, misbehaving clients."""

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentos.control.client import NotListening, ask
from agentos.control.server import MAX_CONNECTIONS, SOCKET_NAME, ControlSocket, socket_path
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.core.protocol.codec import dumps, loads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A path too long for a socket address, as homes can be."""
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    deep.mkdir(parents=True, mode=0o700)
    assert len(str(deep)) > 150
    return deep


@pytest.fixture
def control(folder: Path) -> Iterator[ControlSocket]:
    control = ControlSocket(folder)
    yield control
    control.close()


def connect(folder: Path, content: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    with socket_path(folder) as path:
        connection.connect(path)
    connection.sendall(content)
    return connection


def read_reply(connection: socket.socket) -> list[object]:
    with connection, connection.makefile("rb") as file:
        return [loads(line) for line in file]


def test_only_the_owner_may_open_the_socket_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        control = ControlSocket(folder)
    finally:
        os.umask(before)
    state = (folder / SOCKET_NAME).stat()
    assert stat.S_ISSOCK(state.st_mode) and stat.S_IMODE(state.st_mode) == 0o600
    control.close()
    assert not (folder / SOCKET_NAME).exists()


def test_a_request_is_delivered_and_its_reply_sent_back(folder: Path, control: ControlSocket) -> None:
    connection = connect(folder, dumps(events.PauseRequested(now=True)).encode() + b"\n")
    assert control.receive() == []  # accepted; its data is read by the next call
    (pending,) = control.receive()
    assert pending.request == events.PauseRequested(now=True)
    pending.reply([events.RunPaused(now=True)])
    assert read_reply(connection) == [events.RunPaused(now=True)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello\n", "Expecting value"),
        (b'{"type": "Nothing"}\n', "unknown type"),
        (b'{"type": "run_ended", "exit_code": 0, "seconds": 1, "waited_seconds": 0}\n', "not a request"),
        (b'{"type": "worker_count_requested", "workers": "many"}\n', "expected int"),
    ],
)
def test_anything_but_a_request_is_declined(
    folder: Path, control: ControlSocket, line: bytes, reason: str
) -> None:
    connection = connect(folder, line)
    assert control.receive() + control.receive() == []
    (declined,) = read_reply(connection)
    assert isinstance(declined, events.RequestDeclined)
    assert reason in declined.reason and declined.exit_code == 2


def test_clients_that_send_nothing_or_too_much_or_disconnect_are_dropped(
    folder: Path, control: ControlSocket
) -> None:
    silent = [connect(folder, b"") for _ in range(MAX_CONNECTIONS)]
    for _ in silent:
        control.receive()
    endless = connect(folder, b"x" * 10_000)
    gone = connect(folder, b'{"type"')
    gone.close()
    for _ in range(10):
        assert control.receive() == []
    with pytest.raises(ConnectionResetError):
        endless.recv(1)
    connection = connect(folder, dumps(events.ResumeRequested()).encode() + b"\n")
    pending = [*control.receive(), *control.receive()]
    assert [request.request for request in pending] == [events.ResumeRequested()]
    pending[0].reply([])
    assert read_reply(connection) == []
    for connection in silent:
        connection.close()
    endless.close()


def test_the_client_reports_a_missing_run_and_a_silent_one(folder: Path, control: ControlSocket) -> None:
    with pytest.raises(NotListening):
        ask(folder.parent, events.ResumeRequested())
    with pytest.raises(UsageError, match=r"did not answer within 0 s"):
        ask(folder, events.ResumeRequested(), timeout=0.05)


def test_the_socket_of_a_killed_run_counts_as_not_listening(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left, socket_path(folder) as path:
        left.bind(path)
    with pytest.raises(NotListening):
        ask(folder, events.ResumeRequested())


def test_a_deep_folder_is_reached_even_if_the_temporary_folder_is_deep_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with (
        contextlib.closing(ControlSocket(deep)),
        socket_path(deep) as address,
        socket.socket(socket.AF_UNIX) as found,
    ):
        found.connect(address)
