"""Queues, with limits on the number and the rate of their runs. A limit holds for all workers of a queue together.

To drive a run of a queue with a limit, a thread of a worker claims *slots*: entries `durable/slots/QUEUE/N`, one for
each run that may be driven at once. After a run, the thread keeps its slots for the next one.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog.durable.clock import clock, now
from statelog.durable.keys import run_key
from statelog.durable.owners import me
from statelog.durable.runs import FAR_S, board_of
from statelog.durable.task_claims import is_held, start_renewing, stop_renewing
from statelog.durable.workflows import check_number
from statelog.errors import AlreadyExistsError, ConflictError, LeaseLostError, StatelogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_FULL_S: Final = 2.0
"""The time after which a worker checks a full queue again, even if no slot was released."""
_BUSY_S: Final = 0.05
"""The interval at which a worker checks again while a `per_worker` limit is reached."""
_TURN_S: Final = 1.0
"""The time after which a thread releases its slots between two runs, so that other workers get a turn."""
_RATE_COUNT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """The limits of a queue. Suspended runs do not count.

    The limits hold for all workers of a store together, if all workers are given the same ones. Runs that `run` and
    `resume_all` drive do not count, and neither do children that their parents drive.

    Args:
        concurrency: the maximum number of the queue's runs that all workers drive at once.
        per_worker: the maximum number of runs that each worker drives at once.
        per_partition: the maximum number of runs of each partition that all workers drive at once. It does not apply to
            runs without a partition.
        rate: (count, seconds): at most `count` runs begin within any period of this length. A run that continues does
            not count, but also waits while the rate is used up.

    Raises:
        UsageError: an argument is not valid.
    """

    concurrency: int | None = None
    per_worker: int | None = None
    per_partition: int | None = None
    rate: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "per_worker", "per_partition"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} must be a positive int, not {value!r}", argument=name, value=value)
        if self.rate is None:
            return
        rate: Any = self.rate
        if not isinstance(rate, tuple) or len(rate) != 2 or type(rate[0]) is not int:
            raise UsageError(f"rate must be a pair (count, seconds), not {rate!r}", argument="rate", value=rate)
        if not 1 <= rate[0] <= _RATE_COUNT_MAX:
            message = f"count of a rate must be an int from 1 to {_RATE_COUNT_MAX}, not {rate[0]!r}"
            raise UsageError(message, argument="rate", value=rate)
        check_number("rate", rate[1], least=0, is_least_allowed=False)


_NO_LIMITS: Final = Queue()


class ClaimAdjustment(NamedTuple):
    """How the limits change what a worker may claim next."""

    patterns: list[str]
    """Additional patterns, which match the slots of full queues."""
    unless: list[str]
    """Prefixes of the tasks that may not be claimed now."""
    wait_s: float
    """The time after which more tasks may be claimable, even if nothing is written."""


@dataclass(slots=True, eq=False)
class QueueSlot:
    """A slot that this process has claimed."""

    pool: str
    """`QUEUE` or `QUEUE@PARTITION`."""
    claim: Claim
    since_s: float
    checked_s: float
    """The time at which the claim was last known to be held."""


@dataclass(slots=True, eq=False)
class HeldSlots:
    """The slots that a thread holds. The thread keeps them from one run to the next."""

    queue: str = ""
    """The queue whose `per_worker` limit counts this thread; empty if none does."""
    slots: list[QueueSlot] = field(default_factory=list)


class QueueLimits:
    """The limits of a worker's queues. The threads of the worker share this object; each has its own `HeldSlots`."""

    def __init__(self, store: Store, queues: Mapping[str, Queue], lease_s: float) -> None:
        self._board, self._queues, self._lease_s = board_of(store, me()), queues, lease_s
        self._lock = threading.Lock()
        self._at_work: Counter[str] = Counter()
        self._full: dict[str, float] = {}
        """Pools (see `QueueSlot`) without a free slot, with the times at which to check them again."""
        self._used_up: dict[str, float] = {}
        """Queues whose rate is used up, with the times at which the next run may begin."""

    # --- what a worker may claim ------------------------------------------------------------

    def claim_adjustment(self, held: HeldSlots) -> ClaimAdjustment:
        """Return what a thread may claim now. From a full queue, it may claim the next free slot, but no task."""
        now_s, held_pools = monotonic(), {slot.pool for slot in held.slots}
        with self._lock:
            self._full = {pool: at_s for pool, at_s in self._full.items() if at_s > now_s}
            self._used_up = {queue: at_s for queue, at_s in self._used_up.items() if at_s > now_s}
            busy = [name for name in self._queues if name != held.queue and not self._has_room(name)]
            full, used_up = [pool for pool in self._full if pool not in held_pools], dict(self._used_up)
        shut = {*busy, *used_up}
        waits = [at_s - now_s for at_s in used_up.values()] + ([_BUSY_S] if busy else [])
        unless = [f"durable/tasks/{each}/" for each in (*shut, *full)]
        unless += [f"durable/tasks/{each}@" for each in (*shut, *full) if "@" not in each]
        patterns = [f"durable/slots/{pool}/*" for pool in full if pool.partition("@")[0] not in shut]
        return ClaimAdjustment(patterns, unless, min(waits, default=_FULL_S))

    def admit(self, claim: Claim, held: HeldSlots) -> bool:
        """Claim the slots that a claimed run needs. Other slots that the thread holds are released.

        Returns:
            False if a limit does not allow the run now. Then the run and all slots of the thread are released.
        """
        segment = claim.key.split("/")[2]
        name, _at, partition = segment.partition("@")
        queue = self._queues.get(name, _NO_LIMITS)
        pools = {name: queue.concurrency, segment: queue.per_partition if partition else queue.concurrency}
        try:
            self._drop(held, [slot for slot in held.slots if slot.pool not in pools or not self._is_ours(slot)])
            is_allowed = self._join(held, name)
            for pool, size in pools.items():
                if is_allowed and size is not None and all(slot.pool != pool for slot in held.slots):
                    is_allowed = self._take(held, pool, size)
            is_allowed = is_allowed and self._may_begin(name, queue, claim)
        except BaseException:
            self.give_back(held)
            raise
        if not is_allowed:
            self.give_back(held)
            with suppress(StatelogError):
                claim.release(counts=False)
        return is_allowed

    def add_slot(self, claim: Claim, held: HeldSlots) -> None:
        """Add a claimed slot to the slots of a thread. If the limit was reduced in the meantime, remove it instead."""
        pool = claim.key.split("/")[2]
        if not self._is_extra(claim, pool):
            start_renewing(claim, self._lease_s)
            now_s = monotonic()
            held.slots.append(QueueSlot(pool, claim, now_s, now_s))

    def release_old_slots(self, held: HeldSlots) -> None:
        """Release the slots that a thread has held for longer than `_TURN_S`. Called between two runs."""
        until_s = monotonic() - _TURN_S
        self._drop(held, [slot for slot in held.slots if slot.since_s <= until_s])

    def give_back(self, held: HeldSlots, *, is_idle: bool = False) -> bool:
        """Release all slots of a thread. Return True if there were any.

        `is_idle` means that there was no task for the slots, so their queues do not count as full.
        """
        with self._lock:
            if held.queue:
                self._at_work[held.queue] -= 1
            for slot in held.slots if is_idle else ():
                self._full.pop(slot.pool, None)
        held.queue = ""
        return self._drop(held, list(held.slots))

    # --- slots ----------------------------------------------------------------------------------

    def _has_room(self, name: str) -> bool:
        most = self._queues[name].per_worker
        return most is None or self._at_work[name] < most

    def _join(self, held: HeldSlots, name: str) -> bool:
        """Count a thread for the `per_worker` limit of a queue. Return False if the limit is reached."""
        if held.queue == name:
            return True
        with self._lock:
            if held.queue:
                self._at_work[held.queue] -= 1
            held.queue = ""
            if name not in self._queues:
                return True
            if not self._has_room(name):
                return False
            self._at_work[name] += 1
            held.queue = name
        return True

    def _is_ours(self, slot: QueueSlot) -> bool:
        """Return True if this process still holds a slot. It may have lost the slot while it was paused."""
        if not is_held(slot.claim):
            return False
        now_s = monotonic()
        if now_s - slot.checked_s > self._lease_s / 2:
            try:
                slot.claim.renew()
            except LeaseLostError:
                return False
            slot.checked_s = now_s
        return True

    def _take(self, held: HeldSlots, pool: str, size: int) -> bool:
        """Claim a slot of a pool. Return False if none is free."""
        while True:
            claim = self._board.claim(f"durable/slots/{pool}/*", lease_s=self._lease_s)
            if claim is not None:
                self.add_slot(claim, held)
                if any(slot.pool == pool for slot in held.slots):
                    return True
            elif not self._make(pool, size):
                with self._lock:
                    self._full[pool] = monotonic() + _FULL_S
                return False

    def _make(self, pool: str, size: int) -> bool:
        """Create a missing slot of a pool. Return False if all `size` slots exist."""
        there = {entry.key for entry in self._board.list(f"durable/slots/{pool}/*")}
        keys = (f"durable/slots/{pool}/{number}" for number in range(size))
        missing = next((key for key in keys if key not in there), None)
        if missing is not None:
            with suppress(AlreadyExistsError):
                self._board.create(missing, {})
        return missing is not None

    def _is_extra(self, claim: Claim, pool: str) -> bool:
        """Remove a claimed slot if its number exceeds the limit, which may have been reduced. Return True if so."""
        name, _at, partition = pool.partition("@")
        size = self._queues[name].per_partition if partition else self._queues[name].concurrency
        if size is not None and int(claim.key.rpartition("/")[2]) < size:
            return False
        with suppress(LeaseLostError):
            claim.complete()
        return True

    def _drop(self, held: HeldSlots, slots: list[QueueSlot]) -> bool:
        """Release slots. Return True if there were any."""
        for slot in slots:
            held.slots.remove(slot)
            stop_renewing(slot.claim)
            with suppress(StatelogError):  # The claim expires by itself.
                slot.claim.release()
                if "@" in slot.pool and not self._board.children(f"durable/tasks/{slot.pool}/"):
                    self._clear(slot.pool)
        return bool(slots)

    def _clear(self, pool: str) -> None:
        """Remove the free slots of a partition without tasks."""
        for entry in self._board.list(f"durable/slots/{pool}/*"):
            if entry.claim is None:
                with suppress(ConflictError):  # Another process has claimed or removed the slot.
                    self._board.delete(entry.key, expected_version=entry.version)

    # --- the rate -------------------------------------------------------------------------------

    def _may_begin(self, name: str, queue: Queue, claim: Claim) -> bool:
        """Record that a run begins. Return False if the rate is used up."""
        value = claim.value
        if queue.rate is None or claim.attempt > 1 or value["waiting_for"] or value["error"] is not None:
            return True
        count, seconds = queue.rate
        window_us, key = round(seconds * 1e6), f"durable/rates/{name}"
        while True:
            now_us, entry = clock().now_us(), self._board.get(key)
            held = [] if entry is None else entry.value
            # Use `abs`, because the clock may have been set back.
            times = [each for each in held if abs(now_us - each) < window_us]
            if len(times) >= count:
                with self._lock:
                    self._used_up[name] = monotonic() + (times[-count] + window_us - now_us) / 1e6
                return False
            times.append(max([now_us, *times[-1:]]))
            with suppress(ConflictError):
                version = 0 if entry is None else entry.version
                self._board.cas(key, times, expected_version=version, ttl_s=min(2 * seconds, FAR_S))
                return True


# --- the runs in queues -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The numbers of runs in a queue. Runs that wait for another run of their thread do not count.

    Attributes:
        waiting: runs that may be claimed now.
        delayed: runs that may be claimed later.
        running: runs that are driven now.
        suspended: runs that wait for an event or a time.
    """

    name: str
    waiting: int
    delayed: int
    running: int
    suspended: int


def queues(store: Store) -> list[QueueInfo]:
    """Return the queues that have runs, sorted by name."""
    at = now()
    by_segment: dict[str, list[Entry]] = {}
    counts: dict[str, list[int]] = {}
    with store.snapshot() as seen:
        board = board_of(seen)
        for entry in board.list("durable/tasks/**"):
            by_segment.setdefault(entry.key.split("/")[2], []).append(entry)
        for entries in by_segment.values():
            held = [board.get(run_key(entry.value["run"])) for entry in entries[:1]]
            name = next((run.value["queue"] for run in held if run is not None), None)
            if name is not None:
                _count(entries, at, counts.setdefault(name, [0, 0, 0, 0]))
    return [QueueInfo(name, *counts[name]) for name in sorted(counts)]


def _count(entries: Iterable[Entry], at: datetime, count: list[int]) -> None:
    for entry in entries:
        is_ready = entry.ready is None or entry.ready <= at
        if entry.claim is not None and entry.claim.expires > at:
            count[2] += 1
        elif is_ready:
            count[0] += 1
        else:
            count[3 if entry.value["waiting_for"] else 1] += 1
