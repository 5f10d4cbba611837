"""What the flags of the offline server mean."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from agentos.models.offline import Behaviour, Fault, Key, Latency, Limits


class Words(TypedDict):
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


def keys_of(words: Words) -> "tuple[tuple[Key, ...], tuple[Key, ...]]":
    from agentos.models.offline import make_keys, parse_key

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


def behaviour_of(words: Words) -> "Behaviour":
    from agentos.models.offline import Behaviour, Hints

    limits = _limits(words)
    return Behaviour(
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


def _limits(words: Words) -> "Limits":
    from agentos.models.offline import Limits, Window

    return Limits(
        rate=words["rpm"],
        seconds=words["seconds"],
        window=Window(words["window"]),
        burst=words["burst"],
        concurrency=words["concurrency"],
        per_day=words["rpd"],
        tokens=words["tpm"],
        input_tokens=words["itpm"],
        output_tokens=words["otpm"],
        refused_count=words["refused_count"],
    )


def _special_limits(texts: tuple[str, ...], usual: "Limits") -> "dict[str, Limits]":
    from agentos.models.offline import parse_limits

    found = [parse_limits(text, usual) for text in texts]
    return {named.name: named.limits for named in found}


def check_limits(behaviour: "Behaviour", keys: "tuple[Key, ...]") -> None:
    """A limit under a name that nobody has would limit nobody, unnoticed."""
    alone = {key.name for key in keys} - set(behaviour.buckets)
    for name in behaviour.special_limits:
        if name in behaviour.buckets:
            raise ValueError(f"{name} shares the bucket {behaviour.buckets[name]}: give that one the limit")
        if name not in alone and name not in behaviour.buckets.values():
            raise ValueError(f"a limit is for a key or a bucket; there is none called {name}")


def _latency(text: str) -> "Latency":
    from agentos.models.offline import Latency

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


def _faults(words: Words) -> "tuple[Fault, ...]":
    from agentos.models.offline import parse_faults

    texts = [
        *words["fault"],
        *([words["faults"].read_text(encoding="utf-8")] if words["faults"] else []),
    ]
    return tuple(fault for text in texts for fault in parse_faults(text))
