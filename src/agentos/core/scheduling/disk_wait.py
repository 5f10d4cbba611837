"""Items that wait for disk space, reported to people as one incident."""

from agentos.core.protocol.events import DiskFreed, DiskFull, DiskWaitEnded, DiskWaitStarted, News


class DiskWait:
    """Every worker reports a full disk; news come with the first item that waits and after the last."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._since = 0.0

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def handle(self, event: DiskFull | DiskFreed, now: float) -> list[News]:
        if isinstance(event, DiskFreed):
            return self.drop_item(event.item, now)
        if not self._waiting:
            self._since = now
        news: list[News] = [] if self._waiting else [DiskWaitStarted(event.path)]
        self._waiting.add(event.item)
        return news

    def drop_item(self, item: str, now: float) -> list[News]:
        """The item no longer waits, for whatever reason."""
        if item not in self._waiting:
            return []
        self._waiting.remove(item)
        return [] if self._waiting else [DiskWaitEnded(now - self._since)]
