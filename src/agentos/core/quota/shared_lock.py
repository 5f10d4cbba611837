"""Shared lock: lets the runs on one host grant leases on the same keys one after another."""

from collections.abc import Callable
from typing import TypeVar

from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.lease_manager import LeaseManager

T = TypeVar("T")


def with_shared_lock(lease_manager: LeaseManager, peers: PeerLog, decide: Callable[[], T]) -> tuple[T, bool]:
    """Make a decision under the lock that all runs on this host share.

    Within the lock, the notes of the other runs are applied before `decide` is called, and our own are
    appended after it, so that no two runs grant the same slot. If the lock cannot be taken, `decide` is
    called all the same, but the lease manager grants nothing.

    Return the decision, and whether our notes could be written.
    """
    with peers.lock_and_read() as notes:
        lease_manager.holds_shared_lock = notes is not None
        if notes is not None:
            for note in (*notes, *peers.gone(lease_manager.pool.peer_runs())):
                lease_manager.pool.apply_note(note)
        decision = decide()
        written = peers.append(lease_manager.drain_notes())
    return decision, written
