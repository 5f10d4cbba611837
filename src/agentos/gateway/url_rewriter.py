"""Rewrites absolute URLs in a provider's responses so that they lead back through the gateway."""

from dataclasses import dataclass, field

from agentos.http.connection import Headers

# The client sends the next part of a file there, without its key.
_UPLOAD_HEADER = "x-goog-upload-url"
_URL_HEADERS = ("location", "content-location", _UPLOAD_HEADER)


@dataclass(slots=True)
class UrlRewriter:
    """Replaces the provider's base URL with the gateway's, even across chunks.

    Not used for model output, which is passed on unchanged.
    """

    upstream: str
    gateway: str
    token: str = field(repr=False)
    _held: bytes = b""

    def headers(self, headers: Headers) -> Headers:
        return tuple((name, self._header(name, value)) for name, value in headers)

    def _header(self, name: str, value: str) -> str:
        if name not in _URL_HEADERS or not value.startswith(self.upstream):
            return value
        url = self.gateway + value.removeprefix(self.upstream)
        if name != _UPLOAD_HEADER:
            return url
        return f"{url}{'&' if '?' in url else '?'}key={self.token}"

    def feed(self, chunk: bytes) -> bytes:
        """Returns the next bytes to send; a tail that may be the start of a URL is held back."""
        old = self.upstream.encode()
        text = (self._held + chunk).replace(old, self.gateway.encode())
        longest = min(len(old) - 1, len(text))
        held = next((size for size in range(longest, 0, -1) if text.endswith(old[:size])), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> bytes:
        held, self._held = self._held, b""
        return held
