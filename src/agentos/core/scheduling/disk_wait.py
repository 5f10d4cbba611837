"""Who waits for space on a disk, as one episode."""

from agentos.core.protocol.events import DiskFreed, DiskFull, DiskWaitEnded, DiskWaitStarted, News


class DiskWait:
    """A full disk is told by each worker; people hear of it once until everybody goes on."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._since = 0.0

    def __bool__(self) -> bool:
        return not self._waiting

    def handle(self, event: DiskFull | DiskFreed, now: float) -> list[News]:
        if isinstance(event, DiskFreed):
            return self.drop_item(event.item, now)
        if not self._waiting:
            self._since = now
        news: list[News] = [] if self._waiting else [DiskWaitStarted(event.path)]
        self._waiting.add(event.item)
        return news

    def drop_item(self, item: str, now: float) -> list[News]:
        """An item that waits no more, whatever the reason."""
        if item not in self._waiting:
            return []
        self._waiting.remove(item)
        return [] if self._waiting else [DiskWaitEnded(now - self._since)]
