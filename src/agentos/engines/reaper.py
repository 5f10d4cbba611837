"""The reaper: a small process that kills workers whose parents are gone, on systems where the kernel does not.

It watches pipes. An end of file means that a process has ended, however that happened:

- the pipe of a worker: kill its process group, and with it the program that the worker ran;
- the socket of the fork server: kill the groups of all its workers;
- the lifeline of the coordinator: kill the fork server's group too, even if the fork server is suspended.

The fork server forks the reaper before its first worker and shares almost all memory with it.
"""

import contextlib
import os
import select
import signal
import socket

CHUNK = 4096  # bytes
MAX_DESCRIPTORS = 16  # per read
EXIT_GRACE = 1000  # milliseconds that the fork server gets to end its workers by itself


class Reaper:
    """The fork server's end of the reaper."""

    def __init__(self, lifeline: int, not_for_it: tuple[int, ...]) -> None:
        """Start it. `lifeline` closes with the coordinator. The reaper closes its copies of `not_for_it` at once."""
        self._socket, theirs = socket.socketpair()
        fork_server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            self._socket.close()
            theirs.close()
            raise
        if pid == 0:
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self._socket.close()
                for descriptor in not_for_it:
                    os.close(descriptor)
                _ReaperProcess(fork_server, theirs, lifeline).serve()
            finally:
                os._exit(0)
        theirs.close()
        os.close(lifeline)

    def open_pipe(self) -> tuple[int, int]:
        """A pipe for the next worker: the worker keeps the write end, `watch` gets the read end."""
        return os.pipe()

    def watch(self, worker: int, reading: int) -> None:
        """Kill the worker's group when the last write end of this pipe is closed; closes `reading` here."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._socket, [f"{worker}\n".encode()], [reading])
        os.close(reading)

    def close(self) -> None:
        """Close a worker's copy of the socket; the fork server keeps its own."""
        self._socket.close()


class _ReaperProcess:
    def __init__(self, fork_server: int, messages: socket.socket, lifeline: int) -> None:
        self._fork_server = fork_server
        self._messages = messages
        self._lifeline = lifeline
        self._workers: dict[int, int] = {}
        self._poll = select.poll()
        for descriptor in (messages.fileno(), lifeline):
            self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._lifeline:
                    return self._end_fork_server()
                if descriptor != self._messages.fileno():
                    self._end_worker(descriptor)
                elif not self._accept_worker():
                    return self._end_workers()

    def _accept_worker(self) -> bool:
        chunk, descriptors, _, _ = socket.recv_fds(self._messages, CHUNK, MAX_DESCRIPTORS)
        for worker, descriptor in zip(chunk.split(), descriptors, strict=False):
            self._workers[descriptor] = int(worker)
            self._poll.register(descriptor, select.POLLIN)
        return bool(chunk)

    def _end_worker(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _kill_group(self._workers.pop(descriptor))

    def _end_workers(self) -> None:
        for worker in self._workers.values():
            _kill_group(worker)

    def _end_fork_server(self) -> None:
        """The fork server ends by itself unless it is suspended."""
        only_messages = select.poll()
        only_messages.register(self._messages, select.POLLIN)
        while only_messages.poll(EXIT_GRACE):
            if not self._accept_worker():
                return self._end_workers()
        self._end_workers()
        _kill_group(self._fork_server)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
