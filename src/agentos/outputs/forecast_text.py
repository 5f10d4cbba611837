"""A forecast in words and as data."""

from typing import Any

from agentos.core.forecast.forecast import Forecast, Unknown
from agentos.core.forecast.simulation import Bottleneck, WaitCause
from agentos.outputs.format import count, dollars, duration, tokens

SAME = 0.02


def forecast_lines(found: Forecast) -> list[str]:
    """What a dry run says below its list; `?` where nothing is known."""
    calls = "?" if found.usage is None else f"{found.usage.calls:,}"
    used = "?" if found.usage is None else tokens(found.usage.tokens)
    cost = "?" if found.usage is None else dollars(found.cost)
    first = f"Forecast: calls {calls}, tokens {used}, cost {cost}, time {_time(found)}"
    if found.usage is None:
        return [f"{first} ({_unknown(found)})"]
    told = f"{first} (as {count(found.lives, 'item')} of {count(found.runs, 'earlier run')} went)"
    if stop := _stop(found):
        # What stops it is what holds it up.
        return [told, *stop]
    return [told, *_bottleneck(found.bottleneck), *_changes(found)]


def forecast_json(found: Forecast) -> dict[str, Any]:
    """The same for programs; null where nothing is known."""
    narrow, usage = found.bottleneck, found.usage
    return {
        "type": "forecast",
        "items": found.items,
        "calls": usage.calls if usage else None,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost": _rounded(found.cost, 6) if usage else None,
        "seconds": _rounded(found.seconds, 1),
        "items_ended": found.ended if usage else None,
        "exit_code": found.exit_code,
        "bottleneck": str(narrow.what) if narrow else None,
        "waiting_share": _rounded(narrow.share, 3) if narrow else None,
        "seconds_with_one_more_worker": _rounded(found.one_more_worker, 1),
        "seconds_with_one_more_key": _rounded(found.one_more_key, 1),
        "earlier_items": found.lives,
        "earlier_runs": found.runs,
    }


def _time(found: Forecast) -> str:
    if found.seconds is not None:
        return duration(found.seconds)
    return "?" if found.usage is None else "over 3 days"


def _unknown(found: Forecast) -> str:
    match found.unknown:
        case Unknown.NO_KEY:
            return "there is no key to ask with: agentos keys add"
        case Unknown.NO_START:
            return f"a run would not begin: {found.trouble}"
        case Unknown.OTHERS:
            return "earlier runs asked other models, or finished no item from its beginning"
        case _:
            return f"known after a first run of {found.like} on this project"


def _stop(found: Forecast) -> list[str]:
    if found.exit_code == 75:
        return [
            f"It would stop for quota or budget (exit 75) with {found.ended} of {count(found.items, 'item')} "
            "ended; the same command would go on later"
        ]
    return []


def _bottleneck(narrow: Bottleneck | None) -> list[str]:
    if narrow is None:
        return []
    waits = f"calls wait for it {100 * narrow.share:.0f} % of the workers' time"
    match narrow.what:
        case "workers":
            return [f"Bottleneck: {count(int(narrow.amount), 'worker')}; keys and quotas have room"]
        case "items":
            return ["Bottleneck: the longest item; every item has a worker, keys and quotas have room"]
        case WaitCause.SLOTS:
            return [f"Bottleneck: {count(int(narrow.amount), 'key slot')}; {waits}"]
        case WaitCause.COOLDOWN:
            return [f"Bottleneck: every key rests; {waits}"]
        case WaitCause.PACE:
            return [f"Bottleneck: the pace of an untold limit; {waits}"]
        case dimension:
            return [
                f"Bottleneck: {dimension}, {narrow.amount:,.4g} in {duration(narrow.seconds)} over all keys; {waits}"
            ]


def _changes(found: Forecast) -> list[str]:
    parts = []
    if found.one_more_worker is not None:
        parts.append(f"One more worker: {_against(found.one_more_worker, found.seconds)}")
    if found.one_more_key is not None:
        parts.append(f"one more key with a quota of its own: {_against(found.one_more_key, found.seconds)}")
    text = "; ".join(parts)
    return [text[0].upper() + text[1:]] if text else []


def _against(seconds: float, before: float | None) -> str:
    if before is None:
        return duration(seconds)
    if abs(seconds - before) <= SAME * before:
        return "no change"
    return f"{duration(seconds)} ({100 * (seconds - before) / before:+.0f} %)"


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)
