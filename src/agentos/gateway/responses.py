"""Answers that are whole before their first word is sent."""

import json

from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.request_parser import ProxyRequest
from agentos.http.connection import Connection, Headers

JSON = ("content-type", "application/json")


def send_response(out: Connection, status: int, headers: Headers, body: bytes) -> None:
    out.begin(status, [*headers, ("content-length", str(len(body)))])
    out.put(body)
    out.finish()


def send_error(
    out: Connection, asked: ProxyRequest, trouble: GatewayError, message: str, seconds: float | None = None
) -> None:
    """In the words of the vendor whose format was spoken."""
    words = asked.dialect.error_body(trouble, _ours(message), seconds)
    hint = () if seconds is None else (("retry-after", str(max(1, round(seconds)))),)
    send_response(out, trouble.value, (JSON, *hint), json.dumps(words).encode())


def plain_error(out: Connection, status: int, message: str) -> None:
    """In no vendor's words: it is not known whose were expected."""
    send_response(out, status, (JSON,), json.dumps({"error": {"message": _ours(message)}}).encode())


def _ours(message: str) -> str:
    return f"agentos gateway: {message}"
