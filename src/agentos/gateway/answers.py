"""Answers that are whole before their first word is sent."""

import json

from agentos.gateway.asking import Asked
from agentos.gateway.dialects.dialect import Trouble
from agentos.http.connection import Connection, Headers

JSON = ("content-type", "application/json")


def answer(out: Connection, status: int, headers: Headers, body: bytes) -> None:
    out.begin(status, [*headers, ("content-length", str(len(body)))])
    out.put(body)
    out.finish()


def refuse(
    out: Connection, asked: Asked, trouble: Trouble, message: str, seconds: float | None = None
) -> None:
    """In the words of the vendor whose format was spoken."""
    words = asked.dialect.words(trouble, _ours(message), seconds)
    hint = () if seconds is None else (("retry-after", str(max(1, round(seconds)))),)
    answer(out, trouble.value, (JSON, *hint), json.dumps(words).encode())


def refuse_stranger(out: Connection, status: int, message: str) -> None:
    """In no vendor's words: it is not known whose were expected."""
    answer(out, status, (JSON,), json.dumps({"error": {"message": _ours(message)}}).encode())


def _ours(message: str) -> str:
    return f"agentos gateway: {message}"
