"""The control socket: who may open it, what it understands, what it survives."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentos.control.address import NAME, address
from agentos.control.client import NotListening, ask
from agentos.control.server import MOST_CALLERS, ControlSocket
from agentos.core.errors import UsageError
from agentos.core.protocol import events
from agentos.core.protocol.codec import dumps, loads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Too deep for the name of a socket, as homes can be."""
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    deep.mkdir(parents=True, mode=0o700)
    assert len(str(deep)) > 150
    return deep


@pytest.fixture
def control(folder: Path) -> Iterator[ControlSocket]:
    control = ControlSocket(folder)
    yield control
    control.close()


def call(folder: Path, content: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    with address(folder) as path:
        connection.connect(path)
    connection.sendall(content)
    return connection


def heard(connection: socket.socket) -> list[object]:
    with connection, connection.makefile("rb") as file:
        return [loads(line) for line in file]


def test_only_the_owner_may_open_it_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        control = ControlSocket(folder)
    finally:
        os.umask(before)
    state = (folder / NAME).stat()
    assert stat.S_ISSOCK(state.st_mode) and stat.S_IMODE(state.st_mode) == 0o600
    control.close()
    assert not (folder / NAME).exists()


def test_a_request_comes_through_and_its_answer_goes_back(folder: Path, control: ControlSocket) -> None:
    connection = call(folder, dumps(events.PauseRequested(now=True)).encode() + b"\n")
    assert control.receive() == []  # it has called; what it says is read at the next look
    (asked,) = control.receive()
    assert asked.request == events.PauseRequested(now=True)
    asked.reply([events.RunPaused(now=True)])
    assert heard(connection) == [events.RunPaused(now=True)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello\n", "Expecting value"),
        (b'{"type": "Nothing"}\n', "unknown type"),
        (b'{"type": "run_ended", "exit_code": 0, "seconds": 1, "waited_seconds": 0}\n', "not a request"),
        (b'{"type": "worker_count_requested", "workers": "many"}\n', "expected int"),
    ],
)
def test_what_is_no_request_is_declined(
    folder: Path, control: ControlSocket, line: bytes, reason: str
) -> None:
    connection = call(folder, line)
    assert control.receive() + control.receive() == []
    (declined,) = heard(connection)
    assert isinstance(declined, events.RequestDeclined)
    assert reason in declined.reason and declined.exit_code == 2


def test_callers_that_say_nothing_too_much_or_leave_are_forgotten(
    folder: Path, control: ControlSocket
) -> None:
    silent = [call(folder, b"") for _ in range(MOST_CALLERS)]
    for _ in silent:
        control.receive()
    endless = call(folder, b"x" * 10_000)
    gone = call(folder, b'{"type"')
    gone.close()
    for _ in range(10):
        assert control.receive() == []
    with pytest.raises(ConnectionResetError):
        endless.recv(1)
    connection = call(folder, dumps(events.ResumeRequested()).encode() + b"\n")
    asked = [*control.receive(), *control.receive()]
    assert [one.request for one in asked] == [events.ResumeRequested()]
    asked[0].reply([])
    assert heard(connection) == []
    for one in silent:
        one.close()
    endless.close()


def test_without_a_run_the_client_says_so(folder: Path, control: ControlSocket) -> None:
    with pytest.raises(NotListening):
        ask(folder.parent, events.ResumeRequested())
    with pytest.raises(UsageError, match=r"did not answer within 0 s"):
        ask(folder, events.ResumeRequested(), patience=0.05)


def test_a_killed_run_leaves_a_socket_that_nobody_answers(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left, address(folder) as path:
        left.bind(path)
    with pytest.raises(NotListening):
        ask(folder, events.ResumeRequested())
