"""The health of a worker slot."""

from agentos.core.scheduling.queue import Slot

from .builders import steady


def test_a_slot_cools_down_after_three_consecutive_crashes() -> None:
    slot = Slot(1)
    assert [slot.record_crash(10.0, steady) for _ in range(3)] == [None, None, 1.0]
    assert not slot.free(10.9) and slot.free(11.0)


def test_a_success_resets_the_crash_count() -> None:
    slot = Slot(1)
    slot.record_crash(0.0, steady)
    slot.record_crash(0.0, steady)
    slot.record_success()
    assert slot.record_crash(0.0, steady) is None and slot.free(0.0)


def test_a_slot_cools_down_five_times_for_longer_each_time_and_is_then_retired() -> None:
    slot, cooldowns = Slot(1), []
    while not slot.retired:
        if (seconds := slot.record_crash(0.0, steady)) is not None:
            cooldowns.append(seconds)
    assert cooldowns[:5] == [1.0, 2.0, 4.0, 8.0, 16.0] and len(cooldowns) == 6
    assert not slot.free(1e9)


def test_a_slot_with_an_item_is_not_free() -> None:
    assert not Slot(1, item="LLD-1").free(0.0)
