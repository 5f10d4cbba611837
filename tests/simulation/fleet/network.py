"""The imagined network: every host's way to a service can be cut, and services can be away."""

import asyncio
from collections import defaultdict
from random import Random

from .virtual_time import VirtualProcess, pause

TCP_TIMEOUT = 30.0  # seconds after which a connection that passes no bytes is given up
LATENCY = (0.0003, 0.003)  # seconds, one way


class Unreachable(Exception):
    """Refused, or no byte came through for too long."""


class Service:
    """Something with an address: it is up or away."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True


class Machine:
    """A host of the fleet: the process that runs on it, and the services that it cannot reach for now."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.random = random
        self.process = VirtualProcess(name)
        self._cut: defaultdict[str, bool] = defaultdict(bool)
        self._healed: list[asyncio.Future[None]] = []
        self.silent_since = float("inf")  # frozen or cut off
        self.trouble_until = 0.0  # the last moment of a fault of this machine

    def in_trouble_since(self, since: float, service: str) -> bool:
        """Whether it has been dead, frozen or cut off from a service since then, or still is."""
        return self.process.is_frozen or self._cut[service] or self.trouble_until >= since

    def freeze(self) -> None:
        self.silent_since = asyncio.get_running_loop().time()
        self.process.freeze()

    def thaw(self) -> None:
        self.trouble_until = asyncio.get_running_loop().time()
        self.process.thaw()

    def kill(self) -> None:
        self.trouble_until = float("inf")
        self.process.kill()

    def leave(self, *, in_trouble: bool) -> None:
        """The process exits by itself; if the machine or a service was in trouble, it may have left things undone."""
        if in_trouble:
            self.trouble_until = float("inf")
        self.process.kill()

    def cut(self, *services: str) -> None:
        self.silent_since = asyncio.get_running_loop().time()
        for service in services:
            self._cut[service] = True

    def heal(self) -> None:
        self.trouble_until = asyncio.get_running_loop().time()
        self._cut.clear()
        waiting, self._healed = self._healed, []
        for healed in waiting:
            if not healed.done():
                healed.set_result(None)

    def is_cut_from(self, service: str) -> bool:
        return self._cut[service]

    async def send(self, service: Service) -> None:
        """One message, one way. Bytes that do not come through are sent again until the connection is given up."""
        await pause(self.random.uniform(*LATENCY))
        if self._cut[service.name]:
            healed = asyncio.get_running_loop().create_future()
            self._healed.append(healed)
            try:
                await asyncio.wait_for(healed, TCP_TIMEOUT)
            except TimeoutError:
                raise Unreachable(f"{service.name} does not answer") from None
        if not service.is_up:
            raise Unreachable(f"{service.name} refuses connections")
