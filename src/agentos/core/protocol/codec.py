"""The one JSON form of events, commands and what they are made of."""

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable
from typing import Any

from agentos.core.protocol import commands, events, peer_notes
from agentos.core.text.secrets import Secret

Reader = Callable[[object], Any]
_PLAIN = frozenset((type(None), bool, int, float, str))
# Made once: it writes a line for every event.
one_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class CodecError(ValueError):
    """A line that is not one of ours."""


def encode(message: object) -> dict[str, Any]:
    """The message as JSON types, its class under `type`."""
    return {"type": type(message).__name__, **_pack_fields(message)}


def dumps(message: object) -> str:
    return one_line(encode(message))


def decode(record: object) -> Any:
    """The event or command that a record stands for; unknown fields are left out."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise CodecError("expected a JSON object with a type")
    kind = _KINDS.get(record["type"])
    if kind is None:
        raise CodecError(f"unknown type {record['type'][:40]!r}")
    return unpack(kind, record)


def loads(line: str | bytes) -> Any:
    try:
        return decode(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise (error if isinstance(error, CodecError) else CodecError(str(error))) from error


def unpack(kind: type, record: object) -> Any:
    """A dataclass of this kind from JSON types; each field is checked."""
    if not isinstance(record, dict):
        raise CodecError(f"expected an object for {kind.__name__}")
    values = {name: read(record[name]) for name, read in _readers(kind).items() if name in record}
    try:
        return kind(**values)
    except TypeError as error:
        raise CodecError(f"{kind.__name__}: {error}") from error


def pack(value: object) -> Any:
    """The value as JSON types."""
    if type(value) in _PLAIN:
        return value
    match value:
        case Secret():
            return value.reveal()
        case enum.Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [pack(part) for part in value]
        case _ if dataclasses.is_dataclass(value):
            return _pack_fields(value)
    raise CodecError(f"cannot write a {type(value).__name__}")


def _pack_fields(message: object) -> dict[str, Any]:
    fields = {name: getattr(message, name) for name in _hints(typing.cast(type, type(message)))}
    return {name: value if type(value) in _PLAIN else pack(value) for name, value in fields.items()}


@functools.cache
def _reader(hint: Any) -> Reader:
    """How a value of this type is read; found out once a type, since journals are long."""
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = _reader(next(part for part in typing.get_args(hint) if part is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_reader(_reader(typing.get_args(hint)[0]))
    if dataclasses.is_dataclass(hint) and hint is not Secret:
        return functools.partial(unpack, typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return functools.partial(_read_enum, hint)
    return functools.partial(_read_plain, hint)


def _tuple_reader(inner: Reader) -> Reader:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise CodecError(f"expected a list, found {type(value).__name__}")
        return tuple([inner(part) for part in value])

    return read


def _read_enum(hint: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return hint(value)
    except ValueError as error:
        raise CodecError(str(error)) from error


def _read_plain(hint: Any, value: object) -> Any:
    if type(value) is hint:
        return value
    if hint is Secret and isinstance(value, str):
        return Secret(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return _float(value)
    raise CodecError(f"expected {getattr(hint, '__name__', hint)}, found {type(value).__name__}")


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise CodecError(str(error)) from error


@functools.cache
def _readers(kind: type) -> dict[str, Reader]:
    return {name: _reader(hint) for name, hint in _hints(kind).items()}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for union in (events.Event, commands.Command, peer_notes.Note)
    for kind in typing.get_args(union)
}
