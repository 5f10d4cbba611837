"""Detects calls to model providers that bypass the key pool, and reports them once per host."""

import sys
from collections.abc import Callable
from urllib.parse import urlsplit

from agentos.core.protocol.commands import Command, GrantLease
from agentos.core.protocol.events import WorkerEvent
from agentos.core.protocol.ports import Channel

OWN_HOSTS = {
    "gemini": "generativelanguage.googleapis.com",
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
}
OTHER_HOSTS = (
    *("api.mistral.ai", "api.groq.com", "api.deepseek.com", "api.x.ai", "api.cohere.com"),
    *("api.together.xyz", "api.fireworks.ai", "openrouter.ai", "aiplatform.googleapis.com"),
)
SUFFIXES = (".openai.azure.com", "-aiplatform.googleapis.com")


class RawCalls:
    """Watches which hosts this process looks up.

    If no lease refers to a provider's host, a node calls it with a key from elsewhere. Calls to a host that leases also
    refer to cannot be told apart.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known: set[str] = set()

    def start(self) -> None:
        """Start watching, for the rest of this process: an audit hook cannot be removed."""
        sys.addaudithook(self._on_audit_event)

    def allow(self, lease: GrantLease) -> None:
        host = urlsplit(lease.base_url).hostname if lease.base_url else OWN_HOSTS.get(lease.provider)
        self._known.add(host or "")

    def _on_audit_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "socket.getaddrinfo":
            return
        host = arguments[0].decode("ascii", "replace") if isinstance(arguments[0], bytes) else arguments[0]
        if not isinstance(host, str) or host in self._known or not is_provider(host):
            return
        self._known.add(host)
        self._say(
            f"Warning: calls to {host} go past the key pool: they are not paced, not counted and not in the "
            "budget. Create the model without a key: it then finds the run's gateway"
        )


class WatchedChannel:
    """A worker's channel that reports each lease to `RawCalls`."""

    def __init__(self, channel: Channel, raw_calls: RawCalls) -> None:
        self._channel = channel
        self._raw_calls = raw_calls

    def send(self, event: WorkerEvent) -> None:
        self._channel.send(event)

    async def next(self) -> Command | None:
        command = await self._channel.next()
        if isinstance(command, GrantLease):
            self._raw_calls.allow(command)
        return command


def is_provider(host: str) -> bool:
    is_bedrock = host.startswith("bedrock-runtime.") and host.endswith(".amazonaws.com")
    return is_bedrock or host in OWN_HOSTS.values() or host in OTHER_HOSTS or host.endswith(SUFFIXES)
