"""Sends responses whose body is known as a whole, including the gateway's own errors."""

import json

from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.request_parser import ProxyRequest
from agentos.http.connection import Connection, Headers

JSON = ("content-type", "application/json")


def send_response(connection: Connection, status: int, headers: Headers, body: bytes) -> None:
    connection.begin(status, [*headers, ("content-length", str(len(body)))])
    connection.put(body)
    connection.finish()


def send_error(
    connection: Connection,
    request: ProxyRequest,
    error: GatewayError,
    message: str,
    retry_after: float | None = None,
) -> None:
    """Sends an error in the format of the provider that the request was meant for."""
    body = request.dialect.error_body(error, _prefixed(message), retry_after)
    hint = () if retry_after is None else (("retry-after", str(max(1, round(retry_after)))),)
    send_response(connection, error.value, (JSON, *hint), json.dumps(body).encode())


def plain_error(connection: Connection, status: int, message: str) -> None:
    """Sends an error to a client whose expected format is unknown."""
    body = json.dumps({"error": {"message": _prefixed(message)}}).encode()
    send_response(connection, status, (JSON,), body)


def _prefixed(message: str) -> str:
    return f"agentos gateway: {message}"
