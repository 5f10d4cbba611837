"""The codec: messages survive a round trip, and invalid input is refused."""

import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import RoleModel, WorkerTask
from agentos.core.protocol import commands, events, peer_notes
from agentos.core.protocol.codec import (
    WIRE_NAMES,
    CodecError,
    EventEncoder,
    decode,
    dumps,
    encode,
    loads,
    pack,
    type_marker,
    unpack,
)
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret

MESSAGE_TYPES: list[type] = [
    kind for union in (events.Event, commands.Command, peer_notes.Note) for kind in typing.get_args(union)
]
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(Secret, st.text().map(Secret))
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


GOLDEN_NAMES = [
    "all_keys_limited",
    "answer_recovered",
    "breaker_closed",
    "breaker_opened",
    "bucket_limits_forgotten",
    "bucket_limits_learned",
    "bucket_usage",
    "budget_reached",
    "call_completed",
    "call_cut",
    "call_ended",
    "call_progress",
    "call_started",
    "calls_throttled",
    "cooldown_cleared",
    "cooldown_started",
    "credentials_rejected",
    "disk_freed",
    "disk_full",
    "disk_wait_ended",
    "disk_wait_started",
    "freeze_worker",
    "gateway_exited",
    "gateway_restored",
    "gateway_warned",
    "grant_lease",
    "heartbeat",
    "item_decided",
    "item_ended",
    "item_joined",
    "item_quiet",
    "item_requeued",
    "item_retried",
    "item_started",
    "item_suspended",
    "item_withdrawn",
    "key_exhausted",
    "key_limited",
    "key_quarantined",
    "key_recovered",
    "key_rejected",
    "key_wait_ended",
    "key_wait_started",
    "keys_available",
    "keys_changed",
    "keys_fewer_than_workers",
    "kill_worker",
    "lease_granted",
    "lease_released",
    "lease_requested",
    "limit_learned",
    "line_written",
    "model_forbidden",
    "node_finished",
    "node_started",
    "pause_requested",
    "pool_exhausted",
    "pool_low",
    "pool_restored",
    "program_ended",
    "provider_failed",
    "provider_recovered",
    "quarantine_lifted",
    "quota_shared",
    "quota_sharing_found",
    "request_declined",
    "resume_requested",
    "retry_requested",
    "run_continued",
    "run_ended",
    "run_gone",
    "run_paused",
    "run_resumed",
    "run_started",
    "run_suspended",
    "shutdown_started",
    "slot_cooldown_started",
    "slot_retired",
    "start_worker",
    "stop_requested",
    "stop_worker",
    "thaw_worker",
    "worker_count_changed",
    "worker_count_requested",
    "worker_exited",
    "worker_reported",
    "worker_start_failed",
    "worker_started",
    "workers_killed",
    "workspace_saved",
]


def test_every_message_type_has_exactly_one_wire_name() -> None:
    assert set(WIRE_NAMES) == set(MESSAGE_TYPES) and len(MESSAGE_TYPES) == len(set(MESSAGE_TYPES))
    assert len(set(WIRE_NAMES.values())) == len(WIRE_NAMES)


def test_no_wire_name_changes_unnoticed() -> None:
    assert sorted(WIRE_NAMES.values()) == GOLDEN_NAMES, (
        "journals and scripts depend on these: raise FORMAT too"
    )


def test_a_line_is_found_by_its_type_marker() -> None:
    message = events.NodeStarted("LLD-1", "N1", 1)
    assert type_marker(events.NodeStarted) in dumps(message).encode()
    assert type_marker(events.NodeFinished) not in dumps(message).encode()


@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_event_and_command_survives_a_round_trip(kind: type, data: st.DataObject) -> None:
    message = data.draw(st.from_type(kind))
    line = dumps(message)
    assert "\n" not in line
    assert loads(line) == message
    assert decode(json.loads(json.dumps(encode(message)))) == message


def test_a_worker_task_survives_a_round_trip() -> None:
    item = Item("LLD-42", "lld", 42, "Dark mode", "issues/42.md", labels=("ui",))
    order = WorkerTask(
        "run", 1, "/p", "lld", item, "/h/42.db", 5, (RoleModel("draft", ("gemini",), ("pro",)),)
    )
    assert unpack(WorkerTask, json.loads(json.dumps(pack(order)))) == order


def test_an_unknown_field_of_a_newer_version_is_ignored() -> None:
    record = encode(events.NodeStarted("LLD-1", "N1", 1)) | {"colour": "blue"}
    assert decode(record) == events.NodeStarted("LLD-1", "N1", 1)


def test_a_field_with_a_default_may_be_missing() -> None:
    assert loads('{"type":"lease_released","item":"LLD-1","lease":"lease-1","seconds":2}') == (
        events.LeaseReleased("LLD-1", "lease-1", 2.0)
    )


NODE = '{"type":"node_finished","item":"LLD-1","node":"N1","seconds":%s}'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "3",
        "null",
        "[]",
        "{}",
        '{"type":3}',
        '{"type":"Secret","_value":"x"}',
        '{"type":"node_finished"}',
        NODE % '"1"',
        NODE % "true",
        NODE % "null",
        NODE % "[]",
        NODE % "{}",
        NODE % ("1" * 400),
        NODE % ("1" * 5000),
        NODE.replace('"LLD-1"', "7") % "1",
        '{"type":"lease_requested","item":"a","call":"b","providers":"gemini"}',
        '{"type":"lease_requested","item":"a","call":"b","providers":[1]}',
        '{"type":"worker_reported","item":"a","outcome":{"ending":"gone"}}',
        '{"type":"worker_reported","item":"a","outcome":{"ending":[]}}',
        '{"type":"worker_reported","item":"a","outcome":[]}',
        "[" * 100_000,
        '{"type":"node_finished"',
    ],
)
def test_a_line_in_another_format_is_refused(line: str) -> None:
    with pytest.raises(CodecError):
        loads(line)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_no_line_raises_anything_but_a_wire_error(line: bytes | str) -> None:
    with pytest.raises(CodecError):
        loads(line)


@given(st.sampled_from(MESSAGE_TYPES), st.data())
def test_no_fields_raise_anything_but_a_wire_error(kind: type, data: st.DataObject) -> None:
    names = list(typing.get_type_hints(kind))
    record: dict[str, Any] = {name: data.draw(garbage) for name in names}
    try:
        found = decode({**record, "type": WIRE_NAMES[kind]})
    except CodecError:
        return
    assert type(found) is kind


@given(st.integers(10**400, 10**401))
def test_a_number_too_large_for_a_float_is_refused(number: int) -> None:
    with pytest.raises(CodecError):
        decode({"type": "heartbeat", "seconds": number})


def test_what_is_not_plain_data_cannot_be_written() -> None:
    with pytest.raises(CodecError, match="cannot write a object"):
        pack(object())


def test_nested_events_keep_their_types() -> None:
    refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429", None, 5.0)
    back = loads(dumps(events.LeaseReleased("LLD-1", "lease-1", 1.0, Usage(1, 2, 3), refusal)))
    assert back.refusal == refusal and back.refusal.kind is RefusalKind.DAY_EXHAUSTED
    decoded = loads(dumps(events.WorkerReported("LLD-1", Outcome(Ending.PARKED, details=("a", "b")))))
    assert decoded.outcome.details == ("a", "b") and decoded.outcome.ending is Ending.PARKED


def test_listeners_share_one_encoding_of_an_event() -> None:
    redacted: list[str] = []

    def redact(line: str) -> str:
        redacted.append(line)
        return line

    encoder, event = EventEncoder(redact), events.Heartbeat(60.0)
    lines = {encoder.line(event, 1.5) for _listener in range(3)}
    assert lines == {'{"at":1.5,"type":"heartbeat","seconds":60.0}'} and len(redacted) == 1
    assert encoder.line(event, 2.5) != encoder.line(events.RunSuspended(), 2.5)
    assert len(redacted) == 3
