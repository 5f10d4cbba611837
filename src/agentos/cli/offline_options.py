"""What the flags of the offline server mean."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from agentos.offline.config import Latency, OfflineKey, ServerConfig
    from agentos.offline.faults import Fault
    from agentos.offline.rate_limits import OfflineLimits


class OfflineOptions(TypedDict):
    """The flags as click gives them."""

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
    refused_count: bool
    no_hints: bool
    fault: tuple[str, ...]
    faults: Path | None
    ledger: Path | None
    die_with_parent: bool


def keys_of(words: OfflineOptions) -> "tuple[tuple[OfflineKey, ...], tuple[OfflineKey, ...]]":
    from agentos.offline.config import make_keys, parse_key

    lines = [*words["key"], *_lines(words["keys_file"])]
    given = tuple(parse_key(line) for line in lines if line.strip() and not line.startswith("#"))
    number = words["keys"] if words["keys"] is not None else (0 if given else 4)
    made = make_keys(number)
    if len({key.name for key in (*given, *made)}) < len(given) + len(made):
        raise ValueError(
            "two keys have one name; made keys are called key-1, key-2, ...: name yours otherwise"
        )
    return made, (*given, *made)


def _lines(file: Path | None) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file else []


def behaviour_of(words: OfflineOptions) -> "ServerConfig":
    from agentos.offline.config import Hints, ServerConfig

    limits = _limits(words)
    return ServerConfig(
        latency=_latency(words["latency"]),
        review_latency=_latency(words["review_latency"]) if words["review_latency"] else None,
        seed=words["seed"],
        limits=limits,
        buckets=dict(_pair(text) for text in words["bucket"]),
        special_limits=_special_limits(words["limit"], limits),
        per_model=words["per_model"],
        hints=Hints.NONE if words["no_hints"] else Hints.VENDOR,
        any_key=words["any_key"],
        faults=_faults(words),
        ledger_file=words["ledger"],
    )


def _limits(words: OfflineOptions) -> "OfflineLimits":
    from agentos.offline.rate_limits import OfflineLimits
    from agentos.offline.rate_windows import WindowKind

    return OfflineLimits(
        rate=words["rpm"],
        seconds=words["seconds"],
        window=WindowKind(words["window"]),
        burst=words["burst"],
        concurrency=words["concurrency"],
        per_day=words["rpd"],
        tokens=words["tpm"],
        input_tokens=words["itpm"],
        output_tokens=words["otpm"],
        refused_count=words["refused_count"],
    )


def _special_limits(texts: tuple[str, ...], usual: "OfflineLimits") -> "dict[str, OfflineLimits]":
    from agentos.offline.rate_limits import parse_limits

    found = [parse_limits(text, usual) for text in texts]
    return {named.name: named.limits for named in found}


def check_limits(config: "ServerConfig", keys: "tuple[OfflineKey, ...]") -> None:
    """A limit under a name that nobody has would limit nobody, unnoticed."""
    alone = {key.name for key in keys} - set(config.buckets)
    for name in config.special_limits:
        if name in config.buckets:
            raise ValueError(f"{name} shares the bucket {config.buckets[name]}: give that one the limit")
        if name not in alone and name not in config.buckets.values():
            raise ValueError(f"a limit is for a key or a bucket; there is none called {name}")


def _latency(text: str) -> "Latency":
    from agentos.offline.config import Latency

    low, _, high = text.partition(",")
    try:
        return Latency(float(low), float(high or low))
    except ValueError as error:
        raise ValueError(
            f"a latency is written MIN,MAX in seconds, such as 0.2,0.8; found: {text}"
        ) from error


def _pair(text: str) -> tuple[str, str]:
    name, sign, bucket = text.partition("=")
    if not sign:
        raise ValueError(f"a bucket is written KEY=BUCKET, such as key-1=project-a; found: {text}")
    return name, bucket


def _faults(words: OfflineOptions) -> "tuple[Fault, ...]":
    from agentos.offline.faults import parse_faults

    texts = [
        *words["fault"],
        *([words["faults"].read_text(encoding="utf-8")] if words["faults"] else []),
    ]
    return tuple(fault for text in texts for fault in parse_faults(text))
