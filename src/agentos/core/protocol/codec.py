"""The codec: events, commands and peer notes as JSON, and back with every field checked."""

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
# Built once, because it encodes every event.
one_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


WIRE_NAMES: dict[type, str] = {
    events.NodeStarted: "node_started",
    events.NodeFinished: "node_finished",
    events.LeaseRequested: "lease_requested",
    events.LeaseReleased: "lease_released",
    events.AnswerRecovered: "answer_recovered",
    events.CallProgress: "call_progress",
    events.DiskFull: "disk_full",
    events.DiskFreed: "disk_freed",
    events.ProgramEnded: "program_ended",
    events.WorkspaceSaved: "workspace_saved",
    events.KeyWaitStarted: "key_wait_started",
    events.KeyWaitEnded: "key_wait_ended",
    events.WorkerReported: "worker_reported",
    events.WorkerStarted: "worker_started",
    events.WorkerExited: "worker_exited",
    events.WorkerStartFailed: "worker_start_failed",
    events.LineWritten: "line_written",
    events.StopRequested: "stop_requested",
    events.PauseRequested: "pause_requested",
    events.ResumeRequested: "resume_requested",
    events.RetryRequested: "retry_requested",
    events.WorkerCountRequested: "worker_count_requested",
    events.RunSuspended: "run_suspended",
    events.RunContinued: "run_continued",
    events.CredentialsRejected: "credentials_rejected",
    events.ItemDecided: "item_decided",
    events.ItemJoined: "item_joined",
    events.ItemWithdrawn: "item_withdrawn",
    events.RunStarted: "run_started",
    events.KeysFewerThanWorkers: "keys_fewer_than_workers",
    events.ItemStarted: "item_started",
    events.ItemRetried: "item_retried",
    events.ItemEnded: "item_ended",
    events.ItemQuiet: "item_quiet",
    events.LeaseGranted: "lease_granted",
    events.CallCompleted: "call_completed",
    events.CallCut: "call_cut",
    events.KeyLimited: "key_limited",
    events.KeyExhausted: "key_exhausted",
    events.KeyQuarantined: "key_quarantined",
    events.ModelForbidden: "model_forbidden",
    events.KeyRecovered: "key_recovered",
    events.LimitLearned: "limit_learned",
    events.QuotaShared: "quota_shared",
    events.KeysChanged: "keys_changed",
    events.PoolLow: "pool_low",
    events.PoolExhausted: "pool_exhausted",
    events.PoolRestored: "pool_restored",
    events.AllKeysLimited: "all_keys_limited",
    events.KeysAvailable: "keys_available",
    events.CallsThrottled: "calls_throttled",
    events.BreakerOpened: "breaker_opened",
    events.BreakerClosed: "breaker_closed",
    events.DiskWaitStarted: "disk_wait_started",
    events.DiskWaitEnded: "disk_wait_ended",
    events.SlotCooldownStarted: "slot_cooldown_started",
    events.SlotRetired: "slot_retired",
    events.ShutdownStarted: "shutdown_started",
    events.RunPaused: "run_paused",
    events.RunResumed: "run_resumed",
    events.ItemSuspended: "item_suspended",
    events.ItemRequeued: "item_requeued",
    events.WorkerCountChanged: "worker_count_changed",
    events.RequestDeclined: "request_declined",
    events.GatewayExited: "gateway_exited",
    events.BudgetReached: "budget_reached",
    events.GatewayRestored: "gateway_restored",
    events.GatewayWarned: "gateway_warned",
    events.WorkersKilled: "workers_killed",
    events.Heartbeat: "heartbeat",
    events.RunEnded: "run_ended",
    commands.StartWorker: "start_worker",
    commands.StopWorker: "stop_worker",
    commands.KillWorker: "kill_worker",
    commands.FreezeWorker: "freeze_worker",
    commands.ThawWorker: "thaw_worker",
    commands.GrantLease: "grant_lease",
    peer_notes.CallStarted: "call_started",
    peer_notes.CallEnded: "call_ended",
    peer_notes.CooldownStarted: "cooldown_started",
    peer_notes.CooldownCleared: "cooldown_cleared",
    peer_notes.BucketLimitsLearned: "bucket_limits_learned",
    peer_notes.BucketLimitsForgotten: "bucket_limits_forgotten",
    peer_notes.QuotaSharingFound: "quota_sharing_found",
    peer_notes.BucketUsage: "bucket_usage",
    peer_notes.KeyRejected: "key_rejected",
    peer_notes.QuarantineLifted: "quarantine_lifted",
    peer_notes.ProviderFailed: "provider_failed",
    peer_notes.ProviderRecovered: "provider_recovered",
    peer_notes.RunGone: "run_gone",
}
"""The JSON `type` of every event, command and peer note. Renaming a class leaves its wire name as it is."""
_TYPES = {wire_name: kind for kind, wire_name in WIRE_NAMES.items()}


class CodecError(ValueError):
    """The input is not a valid message."""


def encode(message: object) -> dict[str, Any]:
    """The message as JSON types, its wire name under `type`."""
    return {"type": WIRE_NAMES[type(message)], **_pack_fields(message)}


def dumps(message: object) -> str:
    return one_line(encode(message))


class EventEncoder:
    """Encodes events as redacted JSON lines (`at`, `type`, fields), each event once.

    The event loop publishes one event to all listeners before the next. The encoder keeps the last line, so the
    journal, the audit and `--json` share it instead of encoding and redacting the same event three times.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._event: events.Event | None = None
        self._at = 0.0
        self._line = ""

    def line(self, event: events.Event, at: float) -> str:
        if event is not self._event or at != self._at:
            self._line = self._redact(one_line({"at": at, **encode(event)}))
            self._event, self._at = event, at
        return self._line


def type_marker(kind: type) -> bytes:
    """Bytes that identify a line of this type, as `dumps` writes it, without decoding it."""
    return f'"type":"{WIRE_NAMES[kind]}"'.encode()


def decode(record: object) -> Any:
    """Decode a message from a JSON object. Unknown fields are ignored. Raises CodecError."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise CodecError("expected a JSON object with a type")
    kind = _TYPES.get(record["type"])
    if kind is None:
        raise CodecError(f"unknown type {record['type'][:40]!r}")
    return unpack(kind, record)


def loads(line: str | bytes) -> Any:
    try:
        return decode(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise (error if isinstance(error, CodecError) else CodecError(str(error))) from error


def unpack(kind: type, record: object) -> Any:
    """Build a dataclass of this type from JSON types, checking each field. Raises CodecError."""
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
    """The function that reads a value of this type; cached, since journals are long."""
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
