"""The one JSON form: what goes in comes out, and garbage is refused."""

import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import RoleModel, WorkerTask
from agentos.core.protocol import commands, events
from agentos.core.protocol.codec import CodecError, decode, dumps, encode, loads, pack, unpack
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret

KINDS: list[type] = [kind for union in (events.Event, commands.Command) for kind in typing.get_args(union)]
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(Secret, st.text().map(Secret))
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_there_is_something_to_carry() -> None:
    assert len(KINDS) == len({kind.__name__ for kind in KINDS}) > 30


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_event_and_command_comes_back_as_it_went(kind: type, data: st.DataObject) -> None:
    message = data.draw(st.from_type(kind))
    line = dumps(message)
    assert "\n" not in line
    assert loads(line) == message
    assert decode(json.loads(json.dumps(encode(message)))) == message


def test_an_order_comes_back_as_it_went() -> None:
    item = Item("LLD-42", "lld", 42, "Dark mode", "issues/42.md", labels=("ui",))
    order = WorkerTask(
        "run", 1, "/p", "lld", item, "/h/42.db", 5, (RoleModel("draft", ("gemini",), ("pro",)),)
    )
    assert unpack(WorkerTask, json.loads(json.dumps(pack(order)))) == order


def test_a_field_of_a_newer_version_is_left_out() -> None:
    record = encode(events.NodeStarted("LLD-1", "N1", 1)) | {"colour": "blue"}
    assert decode(record) == events.NodeStarted("LLD-1", "N1", 1)


def test_a_field_with_a_default_may_be_missing() -> None:
    assert loads('{"type":"LeaseReleased","item":"LLD-1","lease":"lease-1","seconds":2}') == (
        events.LeaseReleased("LLD-1", "lease-1", 2.0)
    )


NODE = '{"type":"NodeFinished","item":"LLD-1","node":"N1","seconds":%s}'


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
        '{"type":"NodeFinished"}',
        NODE % '"1"',
        NODE % "true",
        NODE % "null",
        NODE % "[]",
        NODE % "{}",
        NODE % ("1" * 400),
        NODE % ("1" * 5000),
        NODE.replace('"LLD-1"', "7") % "1",
        '{"type":"LeaseRequested","item":"a","call":"b","providers":"gemini"}',
        '{"type":"LeaseRequested","item":"a","call":"b","providers":[1]}',
        '{"type":"WorkerReported","item":"a","outcome":{"ending":"gone"}}',
        '{"type":"WorkerReported","item":"a","outcome":{"ending":[]}}',
        '{"type":"WorkerReported","item":"a","outcome":[]}',
        "[" * 100_000,
        '{"type":"NodeFinished"',
    ],
)
def test_a_line_that_is_not_ours_is_refused_as_such(line: str) -> None:
    with pytest.raises(CodecError):
        loads(line)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_no_line_raises_anything_but_a_wire_error(line: bytes | str) -> None:
    with pytest.raises(CodecError):
        loads(line)


@given(st.sampled_from(KINDS), st.data())
def test_no_fields_raise_anything_but_a_wire_error(kind: type, data: st.DataObject) -> None:
    names = list(typing.get_type_hints(kind))
    record: dict[str, Any] = {name: data.draw(garbage) for name in names}
    try:
        found = decode({**record, "type": kind.__name__})
    except CodecError:
        return
    assert type(found) is kind


@given(st.integers(10**400, 10**401))
def test_a_number_too_large_for_a_float_is_refused(number: int) -> None:
    with pytest.raises(CodecError):
        decode({"type": "Heartbeat", "seconds": number})


def test_what_is_not_plain_data_cannot_be_written() -> None:
    with pytest.raises(CodecError, match="cannot write a object"):
        pack(object())


def test_nested_facts_keep_their_kinds() -> None:
    refusal = Refusal(RefusalKind.DAY_EXHAUSTED, "429", None, 5.0)
    back = loads(dumps(events.LeaseReleased("LLD-1", "lease-1", 1.0, Usage(1, 2, 3), refusal)))
    assert back.refusal == refusal and back.refusal.kind is RefusalKind.DAY_EXHAUSTED
    told = loads(dumps(events.WorkerReported("LLD-1", Outcome(Ending.PARKED, details=("a", "b")))))
    assert told.outcome.details == ("a", "b") and told.outcome.ending is Ending.PARKED
