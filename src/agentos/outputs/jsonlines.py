"""One JSON event a line."""

import json
from collections.abc import Callable

from agentos.core.protocol.codec import encode
from agentos.core.protocol.events import Event


class JsonLines:
    """A listener for programs; `write` takes one whole line."""

    def __init__(self, write: Callable[[str], None], redact: Callable[[str], str]) -> None:
        self._write = write
        self._redact = redact

    def on_event(self, event: Event, at: float) -> None:
        self._write(self._redact(json.dumps({"at": at, **encode(event)}, ensure_ascii=False)))

    def close(self) -> None:
        pass
