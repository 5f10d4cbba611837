"""A stalled reader loses lines, and is told how many."""

import os
import re
import threading
from collections.abc import Callable

import pytest

from agentos.outputs.writer import MAX_QUEUED_LINES, LineWriter
from tests.scenarios.harness import wait_until

MORE_THAN_A_PIPE_HOLDS = 20_000
NOTE = re.compile(r"\[COORDINATOR\] (\d+) lines dropped \(the log files have them\)")


class Reader:
    """Reads nothing until it is woken, and then everything."""

    def __init__(self, descriptor: int) -> None:
        self.read = b""
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._read_all)

    def wake(self) -> None:
        self._thread.start()

    def lines(self) -> list[str]:
        self._thread.join(30)
        return self.read.decode().splitlines()

    def _read_all(self) -> None:
        with open(self._descriptor, "rb", 0) as file:
            while chunk := file.read(65536):
                self.read += chunk


def write_late_line(writer: LineWriter, reader: Reader) -> list[str]:
    wait_until(lambda: len(reader.read) > 100_000)
    writer.write("a late line")
    return ["a late line"]


@pytest.mark.parametrize(
    "afterwards", [lambda *_: [], write_late_line], ids=["at the end", "before a late line"]
)
def test_lines_dropped_for_a_stalled_reader_are_counted(
    afterwards: Callable[[LineWriter, Reader], list[str]],
) -> None:
    reading, writing = os.pipe()
    writer, reader = LineWriter(writing), Reader(reading)
    total = MAX_QUEUED_LINES + MORE_THAN_A_PIPE_HOLDS
    for number in range(total):
        writer.write(f"line {number}")
    reader.wake()
    after = afterwards(writer, reader)
    writer.close(30)
    os.close(writing)
    lines = reader.lines()
    number = kept = 0
    for line in lines[: len(lines) - len(after)]:
        if note := NOTE.fullmatch(line):
            number += int(note[1])
        else:
            assert line == f"line {number}"
            number, kept = number + 1, kept + 1
    assert number == total and MAX_QUEUED_LINES <= kept < total and lines[len(lines) - len(after) :] == after
