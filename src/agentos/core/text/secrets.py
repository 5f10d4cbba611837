"""Secrets that cannot be printed by accident, and the redactor that removes them from text."""

import base64
import json
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field

MASK = "[secret]"
_MIN_LENGTH = 6  # characters; shorter forms would mask ordinary text


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key: `repr`, `str` and logs show a mask, only `reveal` returns the value."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__


class Redactor:
    """Masks every known secret in a text, be it plain, JSON-escaped, URL-quoted or Base64-encoded."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._forms: list[str] = []
        self.add(secrets)

    def add(self, secrets: Iterable[Secret]) -> None:
        forms = set(self._forms)
        for secret in secrets:
            forms.update(form for form in encoded_forms(secret.reveal()) if len(form) >= _MIN_LENGTH)
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def find_open_secret(self, text: str) -> int:
        """Where a secret may start that is incomplete at the end of the text; the text's length if none may."""
        return len(text) - max((_overlap(text, form) for form in self._forms), default=0)


def _overlap(text: str, form: str) -> int:
    """The length of the longest prefix of `form` that the text ends with."""
    longest = min(len(form) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(form[:size])), 0)


def encoded_forms(value: str) -> list[str]:
    """The secret as it is and in the encodings that servers use, the longest first.

    Short forms are left out, unless the secret itself is short.
    """
    forms = {value, json.dumps(value)[1:-1], urllib.parse.quote(value, safe="")}
    # Base64 encodes groups of three bytes, so the secret looks different at each offset in a group.
    forms.update(_base64_core(value, offset) for offset in range(3))
    found = {form for form in forms if len(form) >= _MIN_LENGTH} or {value}
    return sorted(found, key=lambda form: (-len(form), form))


def _base64_core(value: str, offset: int) -> str:
    """Return the part of the encoding that does not depend on the bytes around the secret."""
    encoded = base64.b64encode(b"\0" * offset + value.encode()).decode().rstrip("=")
    return encoded[(0, 2, 3)[offset] : len(encoded) - 1]
