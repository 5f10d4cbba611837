"""Turns the flags of `agentos offline-server` into keys and a server configuration."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from agentos.offline.config import Latency, OfflineKey, ServerConfig
    from agentos.offline.faults import Fault
    from agentos.offline.rate_limits import OfflineLimits


class OfflineOptions(TypedDict):
    """The flags as click parsed them."""

    host: str
    port: int
    keys: int | None
    key: tuple[str, ...]
    keys_file: Path | None
    bucket: tuple[str, ...]
    any_key: bool
    latency: str
    review_latency: str | None
    seed: int
    rpm: int | None
    seconds: float
    window: str
    burst: int | None
    concurrency: int | None
    rpd: int | None
    tpm: int | None
    itpm: int | None
    otpm: int | None
    limit: tuple[str, ...]
    per_model: bool
    count_refused: bool
    no_hints: bool
    fault: tuple[str, ...]
    faults: Path | None
    ledger: Path | None
    die_with_parent: bool


class ServerKeys(NamedTuple):
    """All keys that the server accepts, and those among them that were not given to it."""

    generated: "tuple[OfflineKey, ...]"
    all: "tuple[OfflineKey, ...]"


def server_keys(options: OfflineOptions) -> ServerKeys:
    from agentos.offline.config import make_keys, parse_key

    file = options["keys_file"]
    lines = [*options["key"], *(file.read_text(encoding="utf-8").splitlines() if file else [])]
    given = tuple(parse_key(line) for line in lines if line.strip() and not line.startswith("#"))
    generated_count = options["keys"] if options["keys"] is not None else (0 if given else 4)
    generated = make_keys(generated_count)
    if len({key.name for key in (*given, *generated)}) < len(given) + len(generated):
        raise ValueError(
            "two keys have the same name: choose other names (key-1, key-2 and so on are those of generated keys)"
        )
    return ServerKeys(generated, (*given, *generated))


def server_config(options: OfflineOptions) -> "ServerConfig":
    from agentos.offline.config import Hints, ServerConfig
    from agentos.offline.rate_limits import parse_limits

    limits = _limits(options)
    special_limits = [parse_limits(text, limits) for text in options["limit"]]
    return ServerConfig(
        latency=_latency(options["latency"]),
        review_latency=_latency(options["review_latency"]) if options["review_latency"] else None,
        seed=options["seed"],
        limits=limits,
        buckets=dict(_parse_bucket(text) for text in options["bucket"]),
        special_limits={named.name: named.limits for named in special_limits},
        per_model=options["per_model"],
        hints=Hints.NONE if options["no_hints"] else Hints.VENDOR,
        any_key=options["any_key"],
        faults=_faults(options),
        ledger_file=options["ledger"],
    )


def _limits(options: OfflineOptions) -> "OfflineLimits":
    from agentos.offline.rate_limits import OfflineLimits
    from agentos.offline.rate_windows import WindowKind

    return OfflineLimits(
        rate=options["rpm"],
        seconds=options["seconds"],
        window=WindowKind(options["window"]),
        burst=options["burst"],
        concurrency=options["concurrency"],
        per_day=options["rpd"],
        tokens=options["tpm"],
        input_tokens=options["itpm"],
        output_tokens=options["otpm"],
        counts_refused=options["count_refused"],
    )


def check_limits(config: "ServerConfig", keys: "tuple[OfflineKey, ...]") -> None:
    """Reject a limit for a name that has none, because it would silently have no effect."""
    keys_without_bucket = {key.name for key in keys} - set(config.buckets)
    for name in config.special_limits:
        if name in config.buckets:
            raise ValueError(
                f"{name} shares the bucket {config.buckets[name]}: set the limit for that bucket"
            )
        if name not in keys_without_bucket and name not in config.buckets.values():
            raise ValueError(f"invalid --limit: no key or bucket is named {name}")


def _latency(text: str) -> "Latency":
    from agentos.offline.config import Latency

    low, _, high = text.partition(",")
    try:
        return Latency(float(low), float(high or low))
    except ValueError as error:
        raise ValueError(f"invalid latency {text!r}: expected MIN,MAX in seconds, such as 0.2,0.8") from error


def _parse_bucket(text: str) -> tuple[str, str]:
    name, equals, bucket = text.partition("=")
    if not equals:
        raise ValueError(f"invalid bucket {text!r}: expected KEY=BUCKET, such as key-1=project-a")
    return name, bucket


def _faults(options: OfflineOptions) -> "tuple[Fault, ...]":
    from agentos.offline.faults import parse_faults

    texts = [
        *options["fault"],
        *([options["faults"].read_text(encoding="utf-8")] if options["faults"] else []),
    ]
    return tuple(fault for text in texts for fault in parse_faults(text))
