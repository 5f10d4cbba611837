"""Turns, in which the runs of one host give out the keys that they share."""

from collections.abc import Callable
from typing import TypeVar

from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.lease_manager import LeaseManager

T = TypeVar("T")


def with_shared_lock(lease_manager: LeaseManager, peers: PeerLog, decide: Callable[[], T]) -> tuple[T, bool]:
    """What the others did is known before the decision, what we do is told within the turn.

    With the decision: whether the others could be told. Out of turn, everything but keys is decided.
    """
    with peers.lock_and_read() as notes:
        lease_manager.holds_shared_lock = notes is not None
        if notes is not None:
            for note in (*notes, *peers.gone(lease_manager.pool.peer_runs())):
                lease_manager.pool.apply_note(note)
        decision = decide()
        told = peers.append(lease_manager.drain_notes())
    return decision, told
