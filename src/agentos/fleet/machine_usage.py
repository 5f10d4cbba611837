"""What an item has used, added up over all machines that it was on."""

from dataclasses import replace

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage


class UsageOverMachines:
    """A worker knows what an item has used on its own machine; here it is added up over all of them."""

    def __init__(self) -> None:
        self._usage: dict[str, Usage] = {}

    def handle(self, event: events.Event) -> events.Event:
        """The event, at the end of an item with everything that the item has used."""
        if isinstance(event, events.LeaseReleased):
            self._usage[event.item] = self._usage.get(event.item, Usage()) + event.usage
        if isinstance(event, events.ItemEnded):
            used = max(event.usage, self._usage.get(event.item, Usage()), key=lambda usage: usage.tokens)
            return replace(event, usage=used)
        return event
