"""Decides whether a 403 is about a key and a model, or about one call."""

MAX_SUSPECTS = 10_000  # keys and models; agents choose the names of models


class AccessDenials:
    """Remembers which models each key has served, and whose calls it was denied.

    Providers answer 403 both for a model that an account may not use and for something that one call asks for, such as
    another account's file. The first must not be tried again and again; the second must not take the model away from
    other agents. So a 403 concerns the key only if the key has never served the model and calls of two items were
    denied.
    """

    def __init__(self) -> None:
        self._served: set[tuple[str, str]] = set()
        self._suspects: dict[tuple[str, str], str] = {}
        """The first item that was denied, by key and model."""

    def record_success(self, key: str, model: str) -> None:
        self._served.add((key, model))

    def is_about_key(self, key: str, model: str, item: str) -> bool:
        """Record that a call of `item` got a 403; return whether the key may not use the model."""
        if (key, model) in self._served:
            return False
        if len(self._suspects) >= MAX_SUSPECTS:
            self._suspects.clear()
        return self._suspects.setdefault((key, model), item) != item
