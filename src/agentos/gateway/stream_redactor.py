"""Hides a key in what passes."""

from agentos.http.connection import Headers


class StreamRedactor:
    """Whoever answers has seen the key; the agent must not. Nothing becomes longer or shorter by it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._stars = b"*" * len(self._secret)
        self._held = b""

    def redact(self, whole: bytes) -> bytes:
        return whole.replace(self._secret, self._stars)

    def redact_headers(self, headers: Headers) -> Headers:
        return tuple(
            (name, self.redact(value.encode("latin-1")).decode("latin-1")) for name, value in headers
        )

    def feed(self, piece: bytes) -> bytes:
        """The next piece of many; an end that may be the beginning of the key is held back for the one after."""
        seen = self.redact(self._held + piece)
        cut = len(seen) - self._begun(seen)
        self._held = seen[cut:]
        return seen[:cut]

    def flush(self) -> bytes:
        """What was held back, after the last piece."""
        held, self._held = self._held, b""
        return held

    def _begun(self, seen: bytes) -> int:
        longest = min(len(self._secret) - 1, len(seen))
        return next((size for size in range(longest, 0, -1) if seen.endswith(self._secret[:size])), 0)
