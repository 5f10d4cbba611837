"""The journal: written events can be read, whatever happened to its end."""

import json
import os
import stat
from pathlib import Path

import pytest

from agentos.core.errors import UnsupportedFormat
from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.text.secrets import MASK, Redactor, Secret
from agentos.storage.journal import (
    NAME,
    Follower,
    Journal,
    check_format,
    lines_with,
    read_first_record,
    read_journal,
)

STARTED = events.ItemStarted("LLD-1", 1, 1)
ENDED = events.ItemEnded("LLD-1", Outcome(Ending.PARKED), 2.0, Usage(), 1)


def write(folder: Path, *run_events: events.Event) -> None:
    journal = Journal(folder, EventEncoder(Redactor([Secret("canary-123456")])), print)
    for at, event in enumerate(run_events):
        journal.on_event(event, at + 0.5)
    journal.close()


def test_every_event_comes_back_in_order_with_its_time(tmp_path: Path) -> None:
    write(tmp_path, STARTED, ENDED)
    assert [(entry.at, entry.event) for entry in read_journal(tmp_path)] == [(0.5, STARTED), (1.5, ENDED)]


def test_worker_output_goes_to_the_logs_and_not_to_the_journal(tmp_path: Path) -> None:
    write(tmp_path, events.LineWritten("LLD-1", "hello"), STARTED)
    assert [entry.event for entry in read_journal(tmp_path)] == [STARTED]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_an_incomplete_last_line_is_skipped(tmp_path: Path, cut: int) -> None:
    write(tmp_path, STARTED, ENDED)
    os.truncate(tmp_path / NAME, (tmp_path / NAME).stat().st_size - cut)
    read = [entry.event for entry in read_journal(tmp_path)]
    assert read == ([STARTED, ENDED] if cut == 1 else [STARTED])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"3",
        b"[]",
        b'"at"',
        b"{}",
        b'{"at": null, "type": "item_started"}',
        b'{"at": 1, "type": "Unknown"}',
        b'{"at": 1, "type": "heartbeat", "seconds": ' + b"1" * 400 + b"}",
        b'{"at": ' + b"1" * 400 + b', "type": "heartbeat", "seconds": 1}',
        b"[" * 100_000,
        b"\0" * 4096,
    ],
)
def test_garbage_in_the_middle_costs_only_that_line(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, STARTED)
    with open(tmp_path / NAME, "ab") as file:
        file.write(line + b"\n")
    write(tmp_path, ENDED)
    assert [entry.event for entry in read_journal(tmp_path)] == [STARTED, ENDED]


def test_a_secret_is_masked_on_its_way_to_the_disk(tmp_path: Path) -> None:
    write(tmp_path, events.ShutdownStarted("quota", "key canary-123456"))
    assert b"canary" not in (tmp_path / NAME).read_bytes()
    assert [entry.event for entry in read_journal(tmp_path)] == [
        events.ShutdownStarted("quota", f"key {MASK}")
    ]


def test_a_name_that_is_not_utf8_can_be_written_and_read(tmp_path: Path) -> None:
    odd = events.ShutdownStarted("no key", os.fsdecode(b"/home/\xff/agentos"))
    write(tmp_path, odd, ENDED)
    assert [entry.event for entry in read_journal(tmp_path)] == [odd, ENDED]


def test_a_journal_is_private_and_has_one_json_object_per_line(tmp_path: Path) -> None:
    write(tmp_path, STARTED, ENDED)
    lines = (tmp_path / NAME).read_text("utf-8").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["item_started", "item_ended"]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_a_run_that_wrote_nothing_has_no_journal(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(read_journal(tmp_path))


def test_lines_are_found_by_their_content(tmp_path: Path) -> None:
    write(tmp_path, STARTED, ENDED, STARTED, ENDED)
    with open(tmp_path / NAME, "ab") as file:
        file.write(b'{"at":9,"type":"item_ended","it')
    found = list(lines_with(tmp_path, b'"type":"item_ended"'))
    assert [json.loads(line)["item"] for line in found[:2]] == ["LLD-1", "LLD-1"]
    assert found[2:] == [b'{"at":9,"type":"item_ended","it']
    (tmp_path / NAME).write_bytes(b"")
    assert list(lines_with(tmp_path, b"item_ended")) == []


OLD_JOURNAL = b'{"at":1.0,"type":"RunStarted","run":"r","workflow":"lld","project":"/p"}\n'
NEWER_JOURNAL = b'{"at":1.0,"type":"run_started","format":%d,"run":"r"}\n' % (FORMAT + 1)


@pytest.mark.parametrize(("content", "found"), [(OLD_JOURNAL, 1), (NEWER_JOURNAL, FORMAT + 1)])
def test_a_journal_of_another_version_is_refused_in_one_line(
    tmp_path: Path, content: bytes, found: int
) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=f"format {found}, this version reads {FORMAT}") as error:
        list(read_journal(tmp_path))
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    with pytest.raises(UnsupportedFormat):
        Follower(tmp_path)


def test_a_run_states_the_format_of_its_journal(tmp_path: Path) -> None:
    write(tmp_path, events.RunStarted("r", "lld", "/p", (), 1, ()))
    check_format(tmp_path)
    assert read_first_record(tmp_path)["format"] == FORMAT
