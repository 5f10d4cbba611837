"""Redacts a key in a response while it is streamed to the agent."""

from agentos.http.connection import Headers


class StreamRedactor:
    """Replaces every occurrence of one secret with asterisks, even if it is split between chunks.

    The provider has seen the key and may echo it; the agent must never see it. The length stays the same, so
    that a Content-Length header remains valid.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._mask = b"*" * len(self._secret)
        self._held = b""

    def redact(self, body: bytes) -> bytes:
        return body.replace(self._secret, self._mask)

    def redact_headers(self, headers: Headers) -> Headers:
        return tuple(
            (name, self.redact(value.encode("latin-1")).decode("latin-1")) for name, value in headers
        )

    def feed(self, chunk: bytes) -> bytes:
        """Returns the next bytes to send; a tail that may be the start of the secret is held back."""
        redacted = self.redact(self._held + chunk)
        longest = min(len(self._secret) - 1, len(redacted))
        held = next((size for size in range(longest, 0, -1) if redacted.endswith(self._secret[:size])), 0)
        cut = len(redacted) - held
        self._held = redacted[cut:]
        return redacted[:cut]

    def flush(self) -> bytes:
        """Returns what was held back, after the last chunk."""
        held, self._held = self._held, b""
        return held
