"""Queues: how many of their runs go at once, and how often one begins, over all processes that work for them.

Who drives a run of a queue with a limit holds *slots*: entries `durable/slots/QUEUE/N`, as many as may go at once, and
each claimed by one worker. A worker that is done with a run goes on with the next one in the same slots.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog.durable.clock import clock
from statelog.durable.holding import hold, is_held, let_go
from statelog.durable.naming import run_key
from statelog.durable.runs import FAR_S, board_of
from statelog.durable.workflows import check_number
from statelog.errors import AlreadyExistsError, ConflictError, LeaseLostError, StatelogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_FULL_S: Final = 5.0
"""What was full is asked for again after so long, also where nobody has said that it is not."""
_SPARE_S: Final = 0.5
"""A slot that no run needs is kept for so long at most."""
_BUSY_S: Final = 0.05
"""A worker that waits while a limit of its own holds looks again so often."""
_RATE_COUNT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """How much a queue lets through. Runs that are suspended do not count.

    Limits hold among all workers of a store that are given the same ones. What `run` and `resume_all` drive, and
    children, which their parents drive, do not count.

    Args:
        concurrency: so many of its runs are driven at once, by all workers.
        per_worker: so many by each worker.
        per_partition: so many of each partition, by all workers. A run without a partition has no such limit.
        rate: (count, seconds): at most so many of its runs begin in any time of so many seconds. A run that goes on
            does not count; it waits, as they do, while the rate is used up.

    Raises:
        UsageError: one of the arguments is none.

    """

    concurrency: int | None = None
    per_worker: int | None = None
    per_partition: int | None = None
    rate: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "per_worker", "per_partition"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} is an int above 0, not {value!r}", argument=name, value=value)
        if self.rate is None:
            return
        rate: Any = self.rate
        if not isinstance(rate, tuple) or len(rate) != 2 or type(rate[0]) is not int:
            raise UsageError(f"rate is (count, seconds), not {rate!r}", argument="rate", value=rate)
        if not 1 <= rate[0] <= _RATE_COUNT_MAX:
            message = f"count of a rate is an int from 1 to {_RATE_COUNT_MAX}, not {rate[0]!r}"
            raise UsageError(message, argument="rate", value=rate)
        check_number("rate", rate[1], least=0, is_least_allowed=False)


class Wanted(NamedTuple):
    """What a worker may take now, besides all that it looks for."""

    patterns: list[str]
    unless: list[str]
    wait_s: float
    """It may be more after so long, without anybody's doing."""


@dataclass(slots=True, eq=False)
class _Slot:
    pool: str
    """`QUEUE` or `QUEUE@PARTITION`."""
    claim: Claim
    checked_s: float
    """When it was last known to be held."""
    spare_s: float = 0.0
    """Since when no run is in it."""


class Place(NamedTuple):
    """What a run has while it is driven."""

    queue: str
    slots: list[_Slot]


class Limits:
    """The limits of a worker's queues, and the slots that it holds. Threads share it."""

    def __init__(self, store: Store, queues: Mapping[str, Queue], lease_s: float) -> None:
        self._board, self._queues, self._lease_s = board_of(store), queues, lease_s
        self._lock = threading.Lock()
        self._spare: dict[str, list[_Slot]] = {}
        self._at_work: Counter[str] = Counter()
        self._full: dict[str, float] = {}
        self._used_up: dict[str, float] = {}
        """Queues whose rate is, until when."""

    # --- what may be taken ------------------------------------------------------------------

    def wanted(self) -> Wanted:
        """Return what may be taken now: nothing of a queue that is full, but the next slot of it."""
        now_s = monotonic()
        self._release(older_than_s=_SPARE_S)
        with self._lock:
            self._full = {pool: at_s for pool, at_s in self._full.items() if at_s > now_s and not self._spare.get(pool)}
            self._used_up = {queue: at_s for queue, at_s in self._used_up.items() if at_s > now_s}
            busy = [
                name
                for name, queue in self._queues.items()
                if queue.per_worker is not None and self._at_work[name] >= queue.per_worker
            ]
            full, used_up = list(self._full), dict(self._used_up)
        shut = {*busy, *used_up}
        waits = [at_s - now_s for at_s in used_up.values()] + ([_BUSY_S] if busy else [])
        unless = [f"durable/tasks/{each}/" for each in (*shut, *full)]
        unless += [f"durable/tasks/{each}@" for each in (*shut, *full) if "@" not in each]
        patterns = [f"durable/slots/{pool}/*" for pool in full if pool.partition("@")[0] not in shut]
        return Wanted(patterns, unless, min(waits, default=_FULL_S))

    def admit(self, claim: Claim) -> Place | None:
        """Return what a claimed run needs to be driven; None: it was given back, as a limit does not allow it now."""
        segment = claim.key.split("/")[2]
        name, _at, partition = segment.partition("@")
        queue = self._queues.get(name)
        if queue is None:
            return Place(name, [])
        place = Place(name, [])
        with self._lock:
            self._at_work[name] += 1
            is_allowed = queue.per_worker is None or self._at_work[name] <= queue.per_worker
        try:
            pools = [(name, queue.concurrency), (segment, queue.per_partition if partition else None)]
            for pool, size in pools:
                slot = self._take(pool, size) if is_allowed and size is not None else None
                if slot is not None:
                    place.slots.append(slot)
                is_allowed = is_allowed and (slot is not None or size is None)
            is_allowed = is_allowed and self._may_begin(name, queue, claim)
        except BaseException:
            self.leave(place)
            raise
        if is_allowed:
            return place
        self.leave(place)
        with suppress(StatelogError):
            claim.release(counts=False)
        return None

    def leave(self, place: Place) -> None:
        """Note that a run is not driven any more. The next one may go on in its slots."""
        if place.queue not in self._queues:
            return
        now_s = monotonic()
        with self._lock:
            self._at_work[place.queue] -= 1
            for slot in place.slots:
                self._keep(slot, now_s)

    def came(self, claim: Claim) -> None:
        """Note that a slot was claimed."""
        pool = claim.key.split("/")[2]
        if self._is_extra(claim, pool):
            return
        slot = _Slot(pool, claim, monotonic())
        hold(claim, self._lease_s)
        with self._lock:
            self._keep(slot, slot.checked_s)

    def rest(self) -> bool:
        """Give back the slots that no run is in; tell whether there were any."""
        return self._release(older_than_s=0.0)

    @property
    def has_spare(self) -> bool:
        """Whether there are slots that no run is in."""
        return bool(self._spare)

    # --- slots ----------------------------------------------------------------------------------

    def _keep(self, slot: _Slot, now_s: float) -> None:
        slot.spare_s = now_s
        self._spare.setdefault(slot.pool, []).append(slot)
        self._full.pop(slot.pool, None)

    def _take(self, pool: str, size: int) -> _Slot | None:
        """Return a slot, one of those held or another; None: all are taken."""
        while slot := self._pop(pool):
            if self._is_ours(slot):
                return slot
        while True:
            claim = self._board.claim(f"durable/slots/{pool}/*", lease_s=self._lease_s)
            if claim is None:
                if self._make(pool, size):
                    continue
                with self._lock:
                    self._full[pool] = monotonic() + _FULL_S
                return None
            if not self._is_extra(claim, pool):
                hold(claim, self._lease_s)
                return _Slot(pool, claim, monotonic())

    def _pop(self, pool: str) -> _Slot | None:
        with self._lock:
            held = self._spare.get(pool)
            slot = held.pop() if held else None
            if held is not None and not held:
                del self._spare[pool]
        return slot

    def _is_ours(self, slot: _Slot) -> bool:
        """Whether a slot is held still: this process may have been paused, and another have taken it."""
        if not is_held(slot.claim):
            return False
        now_s = monotonic()
        if now_s - slot.checked_s > self._lease_s / 2:
            try:
                slot.claim.renew()
            except LeaseLostError:
                let_go(slot.claim)
                return False
            slot.checked_s = now_s
        return True

    def _make(self, pool: str, size: int) -> bool:
        """Make the slots that are not there; tell whether there are such."""
        there = {entry.key for entry in self._board.list(f"durable/slots/{pool}/*")}
        missing = [key for number in range(size) if (key := f"durable/slots/{pool}/{number}") not in there]
        for key in missing:
            with suppress(AlreadyExistsError):
                self._board.create(key, {})
        return bool(missing)

    def _is_extra(self, claim: Claim, pool: str) -> bool:
        """Whether a slot is of a time when there were more; it goes then."""
        name, _at, partition = pool.partition("@")
        size = self._queues[name].per_partition if partition else self._queues[name].concurrency
        if size is not None and int(claim.key.rpartition("/")[2]) < size:
            return False
        with suppress(LeaseLostError):
            claim.complete()
        return True

    def _release(self, *, older_than_s: float) -> bool:
        until_s = monotonic() - older_than_s
        with self._lock:
            gone = [slot for held in self._spare.values() for slot in held if slot.spare_s <= until_s]
            for slot in gone:
                self._spare[slot.pool].remove(slot)
                if not self._spare[slot.pool]:
                    del self._spare[slot.pool]
        for slot in gone:
            let_go(slot.claim)
            with suppress(StatelogError):  # it runs out
                if "@" in slot.pool and not self._board.list(f"durable/tasks/{slot.pool}/**", limit=1):
                    slot.claim.complete()  # of a partition in which nothing is left
                else:
                    slot.claim.release()
        return bool(gone)

    # --- the rate -------------------------------------------------------------------------------

    def _may_begin(self, name: str, queue: Queue, claim: Claim) -> bool:
        """Note that a run begins; False if too many have begun."""
        value = claim.value
        if queue.rate is None or claim.attempt > 1 or value["waiting_for"] or value["error"] is not None:
            return True
        count, seconds = queue.rate
        window_us, key = round(seconds * 1e6), f"durable/rates/{name}"
        while True:
            now_us, entry = clock().now_us(), self._board.get(key)
            held = [] if entry is None else entry.value
            times = [each for each in held if abs(now_us - each) < window_us]  # a clock that was set back forgets
            if len(times) >= count:
                with self._lock:
                    self._used_up[name] = monotonic() + (times[-count] + window_us - now_us) / 1e6
                return False
            times.append(max([now_us, *times[-1:]]))
            with suppress(ConflictError):
                version = 0 if entry is None else entry.version
                self._board.cas(key, times, expected_version=version, ttl_s=min(2 * seconds, FAR_S))
                return True


# --- what stands in them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What stands in a queue. Runs that wait for another one of their thread do not yet.

    Attributes:
        waiting: runs that may be taken up now.
        delayed: those that may be later.
        running: those that are driven.
        suspended: those that wait for something.

    """

    name: str
    waiting: int
    delayed: int
    running: int
    suspended: int


def queues(store: Store) -> list[QueueInfo]:
    """Return the queues in which runs stand, by name."""
    now, board = datetime.fromtimestamp(clock().now_us() / 1e6, UTC), board_of(store)
    by_segment: dict[str, list[Entry]] = {}
    for entry in board.list("durable/tasks/**"):
        by_segment.setdefault(entry.key.split("/")[2], []).append(entry)
    counts: dict[str, list[int]] = {}
    for entries in by_segment.values():
        held = [board.get(run_key(entry.value["run"])) for entry in entries[:1]]
        name = next((run.value["queue"] for run in held if run is not None), None)
        if name is not None:
            _count(entries, now, counts.setdefault(name, [0, 0, 0, 0]))
    return [QueueInfo(name, *counts[name]) for name in sorted(counts)]


def _count(entries: Iterable[Entry], now: datetime, count: list[int]) -> None:
    for entry in entries:
        is_ready = entry.ready is None or entry.ready <= now
        if entry.claim is not None and entry.claim.expires > now:
            count[2] += 1
        elif is_ready:
            count[0] += 1
        else:
            count[3 if entry.value["waiting_for"] else 1] += 1
