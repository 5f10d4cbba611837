"""Answers of a bounded size, in a bounded time, whatever a server sends."""

from typing import Any

MAX_BYTES = 32 * 1024 * 1024
MAX_SECONDS = 600.0
"""Seconds for a whole call: a body may come so slowly that no pause in it is too long."""


class TooLarge(ValueError):
    """Nothing that a model writes is so large."""


async def read_bounded(response: Any) -> None:
    """A hook for the SDKs' HTTP clients, of whichever library: the body is read here, up to a limit.

    What is counted has been unpacked, so that a small body cannot grow without end.
    """
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_BYTES:
            await response.aclose()
            raise TooLarge(f"an answer of more than {MAX_BYTES:,} bytes")
        chunks.append(chunk)
    # Read once, it is not read again: this is where the libraries keep what they have read.
    response._content = b"".join(chunks)


RESPONSE_HOOKS: dict[str, Any] = {"response": [read_bounded]}
"""For a client's `event_hooks`."""
