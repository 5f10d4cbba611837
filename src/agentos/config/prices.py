"""The price list that is shipped with agentos."""

import tomllib
from importlib import resources

from agentos.core.quota.budget import Price, PriceList


def price_list(overrides: tuple[tuple[str, Price], ...] = ()) -> PriceList:
    """The shipped prices; `overrides` from the settings take precedence."""
    table = tomllib.loads((resources.files("agentos.config") / "prices.toml").read_text("utf-8"))
    shipped = {
        name: Price(entry["input"], entry["output"]) for name, entry in table.items() if name != "date"
    }
    return PriceList(tuple({**shipped, **dict(overrides)}.items()))
