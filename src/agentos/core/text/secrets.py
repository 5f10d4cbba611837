"""Secrets that cannot be printed by accident."""

import base64
import json
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field

MASK = "[secret]"
_SHORTEST = 6


@dataclass(frozen=True, slots=True)
class Secret:
    """Holds a key; only `reveal` shows it."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__


class Redactor:
    """Replaces every known secret, in the forms it may be written in, by a mask."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._forms: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[Secret]) -> None:
        forms = set(self._forms)
        for secret in secrets:
            forms.update(_forms(secret.reveal()))
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text


def _forms(value: str) -> set[str]:
    forms = {value, json.dumps(value)[1:-1], urllib.parse.quote(value, safe="")}
    # Base64 groups three bytes: what stands before the secret shifts it, so each shift is a form.
    forms.update(_base64_core(value, shift) for shift in range(3))
    return {form for form in forms if len(form) >= _SHORTEST}


def _base64_core(value: str, shift: int) -> str:
    encoded = base64.b64encode(b"\0" * shift + value.encode()).decode().rstrip("=")
    return encoded[(0, 2, 3)[shift] : len(encoded) - 1]
