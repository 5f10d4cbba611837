"""Kills and freezes processes at random, and records which ones were really hit."""

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

from tests.chaos.processes import Member, ProcessTree, Role, lock_holders, process_tree

ROLES = {Role.WORKER: 70, Role.FORK_SERVER: 12, Role.COORDINATOR: 18}
SHORTEST_FREEZE, LONGEST_FREEZE = 0.1, 1.5  # seconds


class Action(StrEnum):
    KILL = "kill"
    FREEZE = "freeze"
    KILL_UNDER_FROZEN = "kill below a frozen fork server"


ACTION_WEIGHTS = (70, 30, 0)
MIXED_WEIGHTS = (60, 25, 15)


@dataclass(frozen=True, slots=True)
class _Frozen:
    handle: int
    until: float


@dataclass(slots=True)
class Injector:
    """Signals processes through pidfds, so that a reused pid is never hit."""

    rng: random.Random
    project: Path
    weights: tuple[int, ...] = ACTION_WEIGHTS
    hits: Counter[tuple[Action, Role]] = field(default_factory=Counter)
    misses: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    """Workers killed while they held their item's lock, by item."""
    _frozen: list[_Frozen] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.hits.total()

    def inject(self, coordinators: Sequence[int]) -> None:
        """Kill or freeze one process of these runs; a miss if it has just exited."""
        action = self.rng.choices(tuple(Action), self.weights)[0]
        targets = [(tree, member) for tree in map(process_tree, coordinators) for member in tree.members]
        present = {
            role: weight for role, weight in ROLES.items() if role in {member.role for _, member in targets}
        }
        if not present:
            return
        if action is Action.KILL_UNDER_FROZEN:
            if Role.WORKER not in present:
                return
            present = {Role.WORKER: 1}
        role = self.rng.choices(tuple(present), tuple(present.values()))[0]
        if self._hit(action, *self.rng.choice([target for target in targets if target[1].role is role])):
            self.hits[action, role] += 1
        else:
            self.misses += 1

    def thaw(self, now: float) -> None:
        """Resume processes that have been frozen long enough."""
        for frozen in [frozen for frozen in self._frozen if frozen.until <= now]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(frozen.handle, signal.SIGCONT)
            os.close(frozen.handle)
            self._frozen.remove(frozen)

    def _hit(self, action: Action, tree: ProcessTree, victim: Member) -> bool:
        """False if the victim exited before the signal."""
        with contextlib.ExitStack() as stack, contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(victim.process.pid)
            stack.callback(os.close, handle)
            if not victim.process.alive:
                return False
            if action is Action.FREEZE:
                self._freeze(handle)
                stack.pop_all()
            elif action is Action.KILL_UNDER_FROZEN:
                # The fork server cannot reap the worker, nor end what it has started.
                parent = os.pidfd_open(victim.parent)
                self._freeze(parent)
                self._kill(handle, tree.dies_with(victim))
            else:
                self._kill(handle, tree.dies_with(victim))
            return True
        return False

    def _freeze(self, handle: int) -> None:
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        seconds = self.rng.uniform(SHORTEST_FREEZE, LONGEST_FREEZE)
        self._frozen.append(_Frozen(handle, time.monotonic() + seconds))

    def _kill(self, handle: int, doomed: list[Member]) -> None:
        held = lock_holders(self.project)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        self.deaths.update(held[member.process.pid] for member in doomed if member.process.pid in held)
