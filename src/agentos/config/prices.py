"""The price list that comes with agentos."""

import tomllib
from importlib import resources

from agentos.core.quota.budget import Price, PriceList


def price_list(overrides: tuple[tuple[str, Price], ...] = ()) -> PriceList:
    """Ours, with what the project or the user says instead."""
    found = tomllib.loads((resources.files("agentos.config") / "prices.toml").read_text("utf-8"))
    ours = {name: Price(entry["input"], entry["output"]) for name, entry in found.items() if name != "date"}
    return PriceList(tuple({**ours, **dict(overrides)}.items()))
