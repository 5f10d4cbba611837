"""The proxy that cuts a machine off: it withholds what is sent, closes nothing, and delivers it late."""

import socket
import threading

from tests.fleet.chaos.proxy import PartitionProxy


def _echo(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)


def test_a_cut_withholds_what_is_sent_and_closes_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with (
            PartitionProxy([server.getsockname()[1]]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.ports[0]), 10) as wire,
        ):
            wire.sendall(b"before")
            assert wire.recv(100) == b"before"
            assert proxy.withheld == 0
            proxy.cut()
            wire.sendall(b"during")
            wire.settimeout(0.3)
            try:
                found = wire.recv(100)
            except TimeoutError:
                found = b"nothing"
            assert (found, proxy.withheld) == (b"nothing", len(b"during"))
            proxy.heal()
            wire.settimeout(10)
            assert wire.recv(100) == b"during"
        server.close()
