"""Renders a forecast as text and as JSON."""

from typing import Any

from agentos.core.forecast.forecast import NO_CHANGE, Forecast, Unknown
from agentos.core.forecast.simulation import Bottleneck, WaitCause
from agentos.outputs.format import count, dollars, duration, tokens

MAX_NAMED_KEYS = 4


def forecast_lines(forecast: Forecast) -> list[str]:
    """The forecast lines of a dry run; `?` for unknown values."""
    calls = "?" if forecast.usage is None else f"{forecast.usage.calls:,}"
    used = "?" if forecast.usage is None else tokens(forecast.usage.tokens)
    cost = "?" if forecast.usage is None else dollars(forecast.cost)
    first = f"Forecast: calls {calls}, tokens {used}, cost {cost}, time {_time(forecast)}"
    if forecast.usage is None:
        return [f"{first} ({_why_unknown(forecast)})"]
    first += f" (based on {count(forecast.earlier_items, 'item')} of {count(forecast.earlier_runs, 'earlier run')})"
    if forecast.exit_code == 75:
        return [
            first,
            f"The run would stop for quota or budget (exit 75) after {forecast.items_ended} of "
            f"{count(forecast.items, 'item')}; the same command would resume it later",
        ]
    return [first, *_bottleneck(forecast.bottleneck), *_changes(forecast)]


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """The forecast as one JSON object; null for unknown values."""
    bottleneck, usage = forecast.bottleneck, forecast.usage
    return {
        "type": "forecast",
        "items": forecast.items,
        "calls": usage.calls if usage else None,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost": _rounded(forecast.cost, 6) if usage else None,
        "seconds": _rounded(forecast.seconds, 1),
        "items_ended": forecast.items_ended if usage else None,
        "exit_code": forecast.exit_code,
        "bottleneck": str(bottleneck.what) if bottleneck else None,
        "bottleneck_keys": bottleneck.keys if bottleneck else (),
        "waiting_share": _rounded(bottleneck.share, 3) if bottleneck else None,
        "seconds_with_one_more_worker": _rounded(forecast.seconds_with_one_more_worker, 1),
        "seconds_with_one_more_key": _rounded(forecast.seconds_with_one_more_key, 1),
        "earlier_items": forecast.earlier_items,
        "earlier_runs": forecast.earlier_runs,
    }


def _time(forecast: Forecast) -> str:
    if forecast.seconds is not None:
        return duration(forecast.seconds)
    return "?" if forecast.usage is None else "over 3 days"


def _why_unknown(forecast: Forecast) -> str:
    match forecast.unknown:
        case Unknown.NO_KEY:
            return "no API key; add one: agentos keys add"
        case Unknown.NO_START:
            return f"the run would not start: {forecast.start_problem}"
        case Unknown.NO_MATCHING_RUN:
            return "earlier runs used other models, or completed no item from start to finish"
        case _:
            return f"available after a first run of {forecast.run_kind} in this project"


def _bottleneck(bottleneck: Bottleneck | None) -> list[str]:
    if bottleneck is None:
        return []
    waits = f"workers spend {100 * bottleneck.share:.0f} % of their time waiting for it"
    match bottleneck.what:
        case "workers":
            return [
                f"Bottleneck: {count(int(bottleneck.amount), 'worker')}; keys and quotas have capacity left"
            ]
        case "items":
            return ["Bottleneck: the longest item; keys and quotas have capacity left"]
        case WaitCause.SLOTS:
            return [
                f"Bottleneck: {count(int(bottleneck.amount), 'key slot')}{_names(bottleneck.keys)}; {waits}"
            ]
        case WaitCause.COOLDOWN:
            return [f"Bottleneck: all keys are cooling down; {waits}"]
        case WaitCause.PACE:
            return [f"Bottleneck: the pace learnt for an unannounced limit; {waits}"]
        case dimension:
            return [
                f"Bottleneck: {dimension}, {bottleneck.amount:,.4g} per {duration(bottleneck.seconds)} across all keys; {waits}"
            ]


def _names(keys: tuple[str, ...]) -> str:
    shown = ", ".join(keys[:MAX_NAMED_KEYS]) + (" ..." if len(keys) > MAX_NAMED_KEYS else "")
    return f" ({shown})" if keys else ""


def _changes(forecast: Forecast) -> list[str]:
    parts = []
    if forecast.seconds_with_one_more_worker is not None:
        parts.append(f"One more worker: {_compared(forecast.seconds_with_one_more_worker, forecast.seconds)}")
    if forecast.seconds_with_one_more_key is not None:
        parts.append(
            f"one more key with its own quota: {_compared(forecast.seconds_with_one_more_key, forecast.seconds)}"
        )
    text = "; ".join(parts)
    return [text[0].upper() + text[1:]] if text else []


def _compared(seconds: float, before: float | None) -> str:
    if before is None:
        return duration(seconds)
    if abs(seconds - before) <= NO_CHANGE * before:
        return "no change"
    return f"{duration(seconds)} ({100 * (seconds - before) / before:+.0f} %)"


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)
