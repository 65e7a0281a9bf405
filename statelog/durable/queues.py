"""Queues: how many of their runs go at once, and how often one begins, over all processes that work for them.

Who drives a run of a queue with a limit holds *slots*: entries `durable/slots/QUEUE/N`, as many as may go at once, and
each claimed by one worker. A worker that is done with a run goes on with the next one in the same slots.
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
from statelog.durable.task_claims import hold, is_held, let_go
from statelog.durable.workflows import check_number
from statelog.errors import AlreadyExistsError, ConflictError, LeaseLostError, StatelogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_FULL_S: Final = 2.0
"""What was full is asked for again after so long, also where nobody has said that it is not."""
_BUSY_S: Final = 0.05
"""A worker that waits while a limit of its own holds looks again so often."""
_TURN_S: Final = 1.0
"""Who has had a slot for so long gives it back behind the run at hand: other workers wait for their turn, too."""
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


_NO_LIMITS: Final = Queue()


class Wanted(NamedTuple):
    """What a worker may take now, besides all that it looks for."""

    patterns: list[str]
    unless: list[str]
    wait_s: float
    """It may be more after so long, without anybody's doing."""


@dataclass(slots=True, eq=False)
class Slot:
    """A slot that is claimed."""

    pool: str
    """`QUEUE` or `QUEUE@PARTITION`."""
    claim: Claim
    since_s: float
    checked_s: float
    """When it was last known to be held."""


@dataclass(slots=True, eq=False)
class Hand:
    """What a thread has to drive a run, and keeps for the next one."""

    queue: str = ""
    """In which it counts as one that works."""
    slots: list[Slot] = field(default_factory=list)


class Limits:
    """The limits of a worker's queues. Threads share it, each with a hand of its own."""

    def __init__(self, store: Store, queues: Mapping[str, Queue], lease_s: float) -> None:
        self._board, self._queues, self._lease_s = board_of(store, me()), queues, lease_s
        self._lock = threading.Lock()
        self._at_work: Counter[str] = Counter()
        self._full: dict[str, float] = {}
        """Pools whose slots are all taken, until when that is believed."""
        self._used_up: dict[str, float] = {}
        """Queues whose rate is, until when."""

    # --- what may be taken ------------------------------------------------------------------

    def wanted(self, hand: Hand) -> Wanted:
        """Return what may be taken now: nothing of a queue that is full, but the next slot of it."""
        now_s, held = monotonic(), {slot.pool for slot in hand.slots}
        with self._lock:
            self._full = {pool: at_s for pool, at_s in self._full.items() if at_s > now_s}
            self._used_up = {queue: at_s for queue, at_s in self._used_up.items() if at_s > now_s}
            busy = [name for name in self._queues if name != hand.queue and not self._has_room(name)]
            full, used_up = [pool for pool in self._full if pool not in held], dict(self._used_up)
        shut = {*busy, *used_up}
        waits = [at_s - now_s for at_s in used_up.values()] + ([_BUSY_S] if busy else [])
        unless = [f"durable/tasks/{each}/" for each in (*shut, *full)]
        unless += [f"durable/tasks/{each}@" for each in (*shut, *full) if "@" not in each]
        patterns = [f"durable/slots/{pool}/*" for pool in full if pool.partition("@")[0] not in shut]
        return Wanted(patterns, unless, min(waits, default=_FULL_S))

    def admit(self, claim: Claim, hand: Hand) -> bool:
        """Take into a hand what a claimed run needs to be driven; False: a limit does not allow it, it was given back.

        What else was in the hand is given back, too.
        """
        segment = claim.key.split("/")[2]
        name, _at, partition = segment.partition("@")
        queue = self._queues.get(name, _NO_LIMITS)
        pools = {name: queue.concurrency, segment: queue.per_partition if partition else queue.concurrency}
        try:
            self._drop(hand, [slot for slot in hand.slots if slot.pool not in pools or not self._is_ours(slot)])
            is_allowed = self._join(hand, name)
            for pool, size in pools.items():
                if is_allowed and size is not None and all(slot.pool != pool for slot in hand.slots):
                    is_allowed = self._take(hand, pool, size)
            is_allowed = is_allowed and self._may_begin(name, queue, claim)
        except BaseException:
            self.give_back(hand)
            raise
        if not is_allowed:
            self.give_back(hand)
            with suppress(StatelogError):
                claim.release(counts=False)
        return is_allowed

    def came(self, claim: Claim, hand: Hand) -> None:
        """Take a slot that was claimed into a hand."""
        pool = claim.key.split("/")[2]
        if not self._is_extra(claim, pool):
            hold(claim, self._lease_s)
            now_s = monotonic()
            hand.slots.append(Slot(pool, claim, now_s, now_s))

    def take_turns(self, hand: Hand) -> None:
        """Give back, between two runs, the slots that were held for long."""
        until_s = monotonic() - _TURN_S
        self._drop(hand, [slot for slot in hand.slots if slot.since_s <= until_s])

    def give_back(self, hand: Hand, *, is_idle: bool = False) -> bool:
        """Empty a hand; tell whether there was a slot in it. `is_idle`: nobody needs them now, so nothing is full."""
        with self._lock:
            if hand.queue:
                self._at_work[hand.queue] -= 1
            for slot in hand.slots if is_idle else ():
                self._full.pop(slot.pool, None)
        hand.queue = ""
        return self._drop(hand, list(hand.slots))

    # --- slots ----------------------------------------------------------------------------------

    def _has_room(self, name: str) -> bool:
        most = self._queues[name].per_worker
        return most is None or self._at_work[name] < most

    def _join(self, hand: Hand, name: str) -> bool:
        """Count a thread to those that work for a queue; False if there are enough."""
        if hand.queue == name:
            return True
        with self._lock:
            if hand.queue:
                self._at_work[hand.queue] -= 1
            hand.queue = ""
            if name not in self._queues:
                return True
            if not self._has_room(name):
                return False
            self._at_work[name] += 1
            hand.queue = name
        return True

    def _is_ours(self, slot: Slot) -> bool:
        """Whether a slot is held still: this process may have been paused, and another have taken it."""
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

    def _take(self, hand: Hand, pool: str, size: int) -> bool:
        """Take a slot; False if none is free."""
        while True:
            claim = self._board.claim(f"durable/slots/{pool}/*", lease_s=self._lease_s)
            if claim is not None:
                self.came(claim, hand)
                if any(slot.pool == pool for slot in hand.slots):
                    return True
            elif not self._make(pool, size):
                with self._lock:
                    self._full[pool] = monotonic() + _FULL_S
                return False

    def _make(self, pool: str, size: int) -> bool:
        """Make a slot that is not there; False if all are."""
        there = {entry.key for entry in self._board.list(f"durable/slots/{pool}/*")}
        keys = (f"durable/slots/{pool}/{number}" for number in range(size))
        missing = next((key for key in keys if key not in there), None)
        if missing is not None:
            with suppress(AlreadyExistsError):
                self._board.create(missing, {})
        return missing is not None

    def _is_extra(self, claim: Claim, pool: str) -> bool:
        """Whether a slot is of a time when there were more; it goes then."""
        name, _at, partition = pool.partition("@")
        size = self._queues[name].per_partition if partition else self._queues[name].concurrency
        if size is not None and int(claim.key.rpartition("/")[2]) < size:
            return False
        with suppress(LeaseLostError):
            claim.complete()
        return True

    def _drop(self, hand: Hand, slots: list[Slot]) -> bool:
        """Give slots back; tell whether there were any."""
        for slot in slots:
            hand.slots.remove(slot)
            let_go(slot.claim)
            with suppress(StatelogError):  # it runs out
                slot.claim.release()
                if "@" in slot.pool and not self._board.children(f"durable/tasks/{slot.pool}/"):
                    self._clear(slot.pool)
        return bool(slots)

    def _clear(self, pool: str) -> None:
        """Take away the slots that nobody has, of a partition in which nothing is left."""
        for entry in self._board.list(f"durable/slots/{pool}/*"):
            if entry.claim is None:
                with suppress(ConflictError):  # another has taken it, or it away
                    self._board.delete(entry.key, expected_version=entry.version)

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
    board, at = board_of(store), now()
    by_segment: dict[str, list[Entry]] = {}
    for entry in board.list("durable/tasks/**"):
        by_segment.setdefault(entry.key.split("/")[2], []).append(entry)
    counts: dict[str, list[int]] = {}
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
