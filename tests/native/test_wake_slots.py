from __future__ import annotations

import mmap
import os
import random
import threading
import time

import pytest

from statelog.errors import CorruptionError, UsageError
from statelog.kernels import (
    WAKE_ASLEEP,
    WAKE_FILE_SIZE_BYTES,
    WAKE_LOST,
    WAKE_SUBJECT_SIZE_BYTES_MAX,
    WAKE_WOKEN,
    WakeSlots,
)

SLOTS = 256
SLOT_AT, SLOT_SIZE_BYTES = 64, 512
STALE_MS = 1000


@pytest.fixture
def file():
    return mmap.mmap(-1, WAKE_FILE_SIZE_BYTES)


@pytest.fixture
def slots(file):
    return WakeSlots(file)


def enter(slots, mask=0, subject=b"", **options):
    return slots.enter(mask, subject, **{"stale_ms": STALE_MS, **options})


def doze(slots, place, timeout_s=0.0):
    return slots.sleep(place, timeout_s, stale_ms=STALE_MS)


def call(slots, *subjects):
    return slots.call_next(lambda subject: subject in subjects, stale_ms=STALE_MS)


def age(file, place, by_ms):
    at = SLOT_AT + SLOT_SIZE_BYTES * place.slot + 32
    heartbeat = int.from_bytes(file[at : at + 8], "little")
    file[at : at + 8] = (heartbeat - by_ms).to_bytes(8, "little")


def test_only_masks_that_overlap_are_notified(slots):
    one, other = enter(slots, 0b011), enter(slots, 0b100)
    slots.call_mask(0b010)
    assert [doze(slots, one), doze(slots, other)] == [WAKE_WOKEN, WAKE_ASLEEP]
    assert doze(slots, one) == WAKE_ASLEEP, "it is told once"


def test_a_waiter_with_a_subject_is_not_notified(slots):
    place = enter(slots, 1, b"turn")
    slots.call_mask(1)
    assert doze(slots, place) == WAKE_ASLEEP


def test_the_lowest_ticket_that_fits_is_called(slots):
    other, first, second = (enter(slots, subject=subject) for subject in (b"other", b"turn", b"turn"))
    assert call(slots, b"turn")
    assert [doze(slots, each) for each in (other, first, second)] == [WAKE_ASLEEP, WAKE_WOKEN, WAKE_ASLEEP]


def test_a_notified_waiter_is_skipped_until_it_wakes(slots):
    first, second = enter(slots, subject=b"turn"), enter(slots, subject=b"turn")
    assert [call(slots, b"turn") for _ in range(3)] == [True, True, False]
    assert [doze(slots, first), doze(slots, second)] == [WAKE_WOKEN, WAKE_WOKEN]
    assert call(slots, b"turn")
    assert [doze(slots, first), doze(slots, second)] == [WAKE_WOKEN, WAKE_ASLEEP]


def test_leaving_tells_of_a_call_that_nobody_woke_for(slots):
    woken, called, left = (enter(slots, subject=b"turn") for _ in range(3))
    assert call(slots, b"turn")
    assert doze(slots, woken) == WAKE_WOKEN
    assert slots.leave(woken) is False
    assert call(slots, b"turn")
    assert slots.leave(called) is True
    assert slots.leave(left) is False
    assert not call(slots, b"turn")


def test_tickets_ascend_and_can_be_kept(slots):
    first, second = enter(slots, subject=b"turn"), enter(slots, subject=b"turn")
    assert first.ticket < second.ticket
    slots.leave(first)
    again = enter(slots, subject=b"turn", ticket=first.ticket)
    assert again.ticket == first.ticket
    assert slots.is_first(again, stale_ms=STALE_MS)
    assert not slots.is_first(second, stale_ms=STALE_MS)
    assert enter(slots, ticket=1000).ticket < enter(slots).ticket


def test_there_are_256_slots_and_a_stale_one_is_taken_over(slots, file):
    places = [enter(slots, subject=b"turn") for _ in range(SLOTS)]
    assert len({place.slot for place in places}) == SLOTS
    assert enter(slots) is None
    age(file, places[7], 2 * STALE_MS)
    taken = enter(slots, 1)
    assert taken.slot == places[7].slot
    assert doze(slots, places[7]) == WAKE_LOST
    slots.leave(places[7])
    slots.call_mask(1)
    assert doze(slots, taken) == WAKE_WOKEN


def test_a_stale_waiter_is_neither_notified_nor_first(slots, file):
    first, second = enter(slots, subject=b"turn"), enter(slots, subject=b"turn")
    age(file, first, 2 * STALE_MS)
    assert slots.is_first(second, stale_ms=STALE_MS)
    assert call(slots, b"turn")
    assert doze(slots, second) == WAKE_WOKEN


def test_a_wake_up_of_a_dead_waiter_goes_to_the_next(slots, file):
    first, other, second = (enter(slots, subject=subject) for subject in (b"turn", b"other", b"turn"))
    assert call(slots, b"turn")
    assert doze(slots, second) == WAKE_ASLEEP
    age(file, first, 2 * STALE_MS)
    assert [doze(slots, each) for each in (other, second, second)] == [WAKE_ASLEEP, WAKE_WOKEN, WAKE_ASLEEP]
    assert doze(slots, first) == WAKE_WOKEN, "it was only stopped, and may wake for nothing"
    assert call(slots, b"turn")
    assert doze(slots, first) == WAKE_WOKEN


def test_a_call_rings_the_bell_of_its_slot(slots):
    bell, other = enter(slots), enter(slots)
    first, second = (enter(slots, subject=b"turn", bell=bell.slot + 1) for _ in range(2))
    assert call(slots, b"turn")
    assert [doze(slots, each) for each in (bell, first, second, other)] == [
        WAKE_WOKEN, WAKE_WOKEN, WAKE_ASLEEP, WAKE_ASLEEP
    ]  # fmt: skip
    first.bell = other.slot + 1
    slots.describe(first, mask=0, position=0)
    assert call(slots, b"turn")
    assert [doze(slots, each) for each in (bell, first, other)] == [WAKE_ASLEEP, WAKE_WOKEN, WAKE_WOKEN]


@pytest.mark.parametrize("bell", [SLOTS + 1, 2**32 - 1])
def test_a_bell_that_is_not_a_slot_is_not_rung(slots, bell):
    place = enter(slots, subject=b"turn", bell=bell)
    assert call(slots, b"turn")
    assert doze(slots, place) == WAKE_WOKEN


def test_a_ticket_can_be_drawn_and_set(slots):
    first, second = enter(slots, subject=b"turn"), enter(slots, subject=b"turn")
    drawn = slots.draw_ticket()
    assert drawn == second.ticket + 1
    first.ticket = drawn
    slots.describe(first, mask=0, position=0)
    assert slots.is_first(second, stale_ms=STALE_MS)
    assert not slots.is_first(first, stale_ms=STALE_MS)


def test_the_lowest_position_is_of_those_renewed_lately(slots, file):
    places = [enter(slots) for _ in range(3)]
    assert slots.lowest_position(within_ms=STALE_MS) is None
    for place, position in zip(places, (5, 3, 0), strict=True):
        slots.describe(place, mask=0, position=position)
    assert slots.lowest_position(within_ms=STALE_MS) == 3
    age(file, places[1], 5 * STALE_MS)
    assert slots.lowest_position(within_ms=STALE_MS) == 5
    assert slots.lowest_position(within_ms=10 * STALE_MS) == 3
    slots.leave(places[1])
    assert slots.lowest_position(within_ms=10 * STALE_MS) == 5


def test_records_are_noted(slots, file):
    slots.note(3)
    WakeSlots(file).note(4)
    assert slots.noted() == 7


def test_a_sleeper_is_woken_by_another_process(slots):
    place = enter(slots, 1)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if doze(slots, place, 30.0) == WAKE_WOKEN else 1)
    time.sleep(0.1)
    slots.call_mask(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_of_many_threads_each_call_wakes_one(slots):
    woken: list[int] = []

    def wait(place):
        while doze(slots, place, 30.0) != WAKE_WOKEN:
            pass
        slots.leave(place)  # before it is told: a call to one that has a slot still would be its own
        woken.append(place.ticket)

    places = [enter(slots, subject=b"turn") for _ in range(20)]
    threads = [threading.Thread(target=wait, args=(place,), daemon=True) for place in places]
    for thread in threads:
        thread.start()
    for count in range(1, 21):
        assert call(slots, b"turn")
        deadline = time.monotonic() + 30
        while len(woken) < count and time.monotonic() < deadline:
            time.sleep(0.0005)
        assert len(woken) == count
    assert woken == [place.ticket for place in places]


def test_another_file_is_refused(file):
    file[:4] = b"mine"
    with pytest.raises(CorruptionError):
        WakeSlots(file)


def test_arguments_are_checked(slots):
    with pytest.raises(UsageError):
        WakeSlots(mmap.mmap(-1, WAKE_FILE_SIZE_BYTES - 1))
    with pytest.raises(UsageError):
        WakeSlots(memoryview(mmap.mmap(-1, WAKE_FILE_SIZE_BYTES + 1))[1:])
    with pytest.raises(UsageError):
        enter(slots, subject=bytes(WAKE_SUBJECT_SIZE_BYTES_MAX + 1))
    assert enter(slots, subject=bytes(WAKE_SUBJECT_SIZE_BYTES_MAX)) is not None


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_are_survived(slots, file, seed):
    chance = random.Random(seed)
    for _ in range(50):
        places = [place for _ in range(3) if (place := enter(slots, 3, b"turn" * chance.randrange(2))) is not None]
        for _ in range(chance.randrange(4)):
            at = chance.randrange(8, WAKE_FILE_SIZE_BYTES - 5000)
            file[at : at + 5000] = chance.choice([bytes(5000), b"\xff" * 5000, chance.randbytes(5000)])
        slots.call_mask(2)
        slots.call_next(lambda subject: len(subject) > chance.randrange(400), stale_ms=STALE_MS)
        slots.lowest_position(within_ms=STALE_MS)
        for place in places:
            doze(slots, place, 0.0001)
            slots.is_first(place, stale_ms=STALE_MS)
            slots.describe(place, mask=0, position=1)
            slots.leave(place)
