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

ROLES = {Role.WORKER: 70, Role.TEMPLATE: 12, Role.COORDINATOR: 18}
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
        """One kill or freeze among these and what is below them; a miss if it ended just before."""
        action = self.dice.choices(tuple(Action), ACTION_WEIGHTS)[0]
        targets = [(family, member) for family in map(family_of, coordinators) for member in family.members]
        present = {role: weight for role, weight in ROLES.items() if role in {one.role for _, one in targets}}
        if not present:
            return
        role = self.dice.choices(tuple(present), tuple(present.values()))[0]
        if self._hit(action, *self.dice.choice([target for target in targets if target[1].role is role])):
            self.hits[action, role] += 1
        else:
            self.misses += 1

    def thaw(self, now: float) -> None:
        """Lets go on whoever has been frozen long enough."""
        for frozen in [frozen for frozen in self._frozen if frozen.until <= now]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(frozen.handle, signal.SIGCONT)
            os.close(frozen.handle)
            self._frozen.remove(frozen)

    def _hit(self, action: Action, family: Family, victim: Member) -> bool:
        """False if the victim was gone before the signal came."""
        with contextlib.ExitStack() as stack, contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(victim.mark.pid)
            stack.callback(os.close, handle)
            if not victim.mark.alive:
                return False
            if action is Action.FREEZE:
                self._freeze(handle)
                stack.pop_all()
            else:
                self._kill(handle, family.dies_with(victim))
            return True
        return False

    def _freeze(self, handle: int) -> None:
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        seconds = self.dice.uniform(SHORTEST_FREEZE, LONGEST_FREEZE)
        self._frozen.append(_Frozen(handle, time.monotonic() + seconds))

    def _kill(self, handle: int, doomed: list[Member]) -> None:
        held = lock_holders(self.project)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        self.deaths.update(held[member.mark.pid] for member in doomed if member.mark.pid in held)
