"""Kills and freezes processes at random, and remembers what it really hit."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.chaos.processes import Family, Member, Role, family_of, lock_holders

ROLES = (Role.WORKER, Role.TEMPLATE, Role.COORDINATOR)
ROLE_WEIGHTS = (70, 12, 18)
SHORTEST_FREEZE, LONGEST_FREEZE = 0.1, 1.5


class Action(StrEnum):
    KILL = "kill"
    FREEZE = "freeze"


ACTION_WEIGHTS = (70, 30)


@dataclass(frozen=True, slots=True)
class _Frozen:
    handle: int
    until: float


@dataclass(slots=True)
class Injector:
    """Processes are held by handle, so that a number that was given away again is never hit."""

    dice: random.Random
    project: Path
    hits: Counter[tuple[Action, Role]] = field(default_factory=Counter)
    misses: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    """Item -> how many of its workers were killed while they held its lock."""
    _frozen: list[_Frozen] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.hits.total()

    def strike(self, coordinators: Sequence[int]) -> None:
        """One kill or freeze of somebody below one of these, or a miss."""
        action = self.dice.choices(tuple(Action), ACTION_WEIGHTS)[0]
        role = self.dice.choices(ROLES, ROLE_WEIGHTS)[0]
        families = [family_of(pid) for pid in coordinators]
        targets = [(family, member) for family in families for member in family.of(role)]
        if not targets or not self._hit(action, *self.dice.choice(targets)):
            self.misses += 1
            return
        self.hits[action, role] += 1

    def thaw(self, now: float) -> None:
        """Lets go on whoever has been frozen long enough."""
        for frozen in [frozen for frozen in self._frozen if frozen.until <= now]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(frozen.handle, signal.SIGCONT)
            os.close(frozen.handle)
            self._frozen.remove(frozen)

    def _hit(self, action: Action, family: Family, victim: Member) -> bool:
        try:
            handle = os.pidfd_open(victim.mark.pid)
        except ProcessLookupError:
            return False
        if not victim.mark.alive:
            os.close(handle)
            return False
        if action is Action.FREEZE:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
            seconds = self.dice.uniform(SHORTEST_FREEZE, LONGEST_FREEZE)
            self._frozen.append(_Frozen(handle, time.monotonic() + seconds))
            return True
        held = lock_holders(self.project)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        doomed = [held.get(member.mark.pid) for member in family.dies_with(victim)]
        self.deaths.update(item for item in doomed if item)
        return True
