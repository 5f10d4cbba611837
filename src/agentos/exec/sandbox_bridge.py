"""Inside a sandbox: leads 127.0.0.1:PORT to the gateway's socket, and runs a program: `PORT SOCKET -- COMMAND...`.

It runs in the network namespace of the sandbox, which has no other way out, and imports nothing that is slow to load.
"""

import contextlib
import signal
import socket
import subprocess
import sys
import threading

CHUNK = 65536  # bytes


def main() -> int:
    port, path, _, *command = sys.argv[1:]
    server = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    threading.Thread(target=_serve, args=(server, path), daemon=True).start()
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        return 127
    # Signals reach the whole process group, so the program gets them too and decides when to end.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    status = process.wait()
    return 128 - status if status < 0 else status


def _serve(server: socket.socket, path: str) -> None:
    while True:
        client, _ = server.accept()
        with contextlib.suppress(OSError):
            gateway = socket.socket(socket.AF_UNIX)
            gateway.connect(path)
            for source, target in ((client, gateway), (gateway, client)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()
            continue
        client.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
