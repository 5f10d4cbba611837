"""A reader that stalls: lines are lost on the console alone, and how many is said."""

import os
import re
import threading
from collections.abc import Callable

import pytest

from agentos.outputs.writer import MOST_LINES, LineWriter
from tests.scenarios.harness import wait_until

MORE_THAN_A_PIPE_TAKES = 20_000
NOTE = re.compile(r"\[COORDINATOR\] (\d+) lines dropped \(the log files have them\)")


class Reader:
    """Takes nothing until it is told to, and then everything."""

    def __init__(self, descriptor: int) -> None:
        self.read = b""
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._work)

    def wake(self) -> None:
        self._thread.start()

    def lines(self) -> list[str]:
        self._thread.join(30)
        return self.read.decode().splitlines()

    def _work(self) -> None:
        with open(self._descriptor, "rb", 0) as file:
            while chunk := file.read(65536):
                self.read += chunk


def late_word(writer: LineWriter, reader: Reader) -> list[str]:
    wait_until(lambda: len(reader.read) > 100_000)
    writer.write("a late word")
    return ["a late word"]


@pytest.mark.parametrize("afterwards", [lambda *_: [], late_word], ids=["at the end", "before a late word"])
def test_what_a_stalled_reader_has_missed_is_counted(
    afterwards: Callable[[LineWriter, Reader], list[str]],
) -> None:
    reading, writing = os.pipe()
    writer, reader = LineWriter(writing), Reader(reading)
    total = MOST_LINES + MORE_THAN_A_PIPE_TAKES
    for number in range(total):
        writer.write(f"line {number}")
    reader.wake()
    after = afterwards(writer, reader)
    writer.close(30)
    os.close(writing)
    lines = reader.lines()
    kept = lines[: -1 - len(after)]
    note = NOTE.fullmatch(lines[len(kept)])
    assert note and lines[len(kept) + 1 :] == after
    assert kept == [f"line {number}" for number in range(len(kept))]
    assert len(kept) >= MOST_LINES and len(kept) + int(note[1]) == total
