"""Adds up what an item has used over all machines that ran it."""

from dataclasses import replace

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage


class UsageOverMachines:
    """A worker knows only what an item used on its own machine; this class adds up all machines."""

    def __init__(self) -> None:
        self._usage: dict[str, Usage] = {}

    def handle(self, event: events.Event) -> events.Event:
        """Return the event; if it ends an item, with the item's total usage."""
        if isinstance(event, events.LeaseReleased):
            self._usage[event.item] = self._usage.get(event.item, Usage()) + event.usage
        if isinstance(event, events.ItemEnded):
            used = max(event.usage, self._usage.get(event.item, Usage()), key=lambda usage: usage.tokens)
            return replace(event, usage=used)
        return event
