"""`--json`: one event per line, for programs."""

from collections.abc import Callable

from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.events import Event


class JsonLines:
    """A listener that passes every event to `write` as one JSON line."""

    def __init__(self, write: Callable[[str], None], encoder: EventEncoder) -> None:
        self._write = write
        self._encoder = encoder

    def on_event(self, event: Event, at: float) -> None:
        self._write(self._encoder.line(event, at))

    def close(self) -> None:
        pass
