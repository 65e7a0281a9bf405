"""Workers: processes that take up runs as they come, and go on with those that wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from statelog.durable.delivering import delivered_beside
from statelog.durable.driving import drive
from statelog.durable.holding import LEASE_S
from statelog.durable.hosts import ThreadHost
from statelog.durable.naming import check_part, check_queue
from statelog.durable.owners import free_all, me
from statelog.durable.queues import Limits, Place, Queue
from statelog.durable.runs import board_of
from statelog.durable.schedules import begin_due
from statelog.durable.subscribing import check_subscribers
from statelog.durable.workflows import by_name
from statelog.errors import LeaseLostError, StatelogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.store import Store

_log = logging.getLogger("statelog.durable")

_SLICE_S = 0.5
_DEAD_S = 5.0
CONCURRENCY = 16


def work(
    store: Store,
    workflows: Iterable[Workflow],
    *,
    queues: Iterable[str] | Mapping[str, Queue] | None = None,
    outbox: Iterable[object] = (),
    concurrency: int = CONCURRENCY,
    stop: threading.Event | None = None,
    until_idle: bool = False,
    lease_s: float = LEASE_S,
) -> int:
    """Drive runs, and begin those of schedules that are due, until stopped; return how often one was taken up.

    Any number of processes may do so on one store. Each run is driven by one of them at a time. A run whose process was
    killed is taken up by another after `lease_s`.

    Args:
        store: the store.
        workflows: those whose runs are taken up.
        queues: names of the queues to take runs from; or their limits by their names, `{"trips": Queue(...)}`, which
            all workers of a queue are to be given. All queues, if left out, without limits.
        outbox: webhooks and callables that get what runs emit.
        concurrency: so many runs are driven at once in this process.
        stop: set it, in a signal handler or another thread, to have this return when the runs at work are at rest.
        until_idle: return when there is nothing to do now.
        lease_s: so long others wait for this process if it is killed.

    Raises:
        UsageError: one of the arguments is none.

    """
    known = by_name(workflows)
    if type(concurrency) is not int or concurrency < 1:
        message = f"concurrency is an int above 0, not {concurrency!r}"
        raise UsageError(message, argument="concurrency", value=concurrency)
    limits = limits_of(queues)
    patterns = ["durable/schedules/*"]
    for name in map(check_workflow_part, known):
        patterns += [f"durable/tasks/*/{name}/*"] if limits is None else []
        patterns += [f"durable/tasks/{queue}{part}/{name}/*" for queue in limits or () for part in ("", "@*")]
    if len(patterns) == 1:
        raise UsageError("there is no workflow, or no queue, to work for", argument="workflows", value=workflows)
    held = {name: queue for name, queue in (limits or {}).items() if queue != Queue()}
    worker = _Worker(store, known, Limits(store, held, lease_s), patterns, concurrency, lease_s)
    with delivered_beside(store, check_subscribers(outbox), drains=until_idle):
        return worker.go_on(stop or threading.Event(), until_idle=until_idle)


def check_workflow_part(name: str) -> str:
    """Return the name of a workflow as part of a key."""
    return check_part("workflow", name)


def limits_of(queues: Iterable[str] | Mapping[str, Queue] | None) -> dict[str, Queue] | None:
    """Return the limits of queues by their names as parts of keys, None: of all queues, none. Raises UsageError."""
    if queues is None:
        return None
    if isinstance(queues, str):
        raise UsageError(f"queues are a list of names, or a dict, not {queues!r}", argument="queues", value=queues)
    given = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, Queue())
    for name, queue in given.items():
        if not isinstance(queue, Queue):
            message = f"the limits of queue {name!r} are a durable.Queue, not {queue!r}"
            raise UsageError(message, argument="queues", value=queue)
    return {check_queue(name): queue for name, queue in given.items()}


class _Taken(NamedTuple):
    """A run that a worker has claimed, and what it has to drive it."""

    claim: Claim
    place: Place


class _Worker:
    """Claims what there is to do, in one call for all of it. A thread that is done with a run claims the next one."""

    def __init__(
        self,
        store: Store,
        known: dict[str, Workflow],
        limits: Limits,
        patterns: list[str],
        concurrency: int,
        lease_s: float,
    ) -> None:
        self._store, self._limits, self._patterns = store, limits, patterns
        self._known = {check_workflow_part(name): workflow for name, workflow in known.items()}
        self._board = board_of(store, me())
        self._lease_s, self._concurrency = lease_s, concurrency
        self._free = threading.Semaphore(concurrency)
        self._lock = threading.Lock()
        self._at_work = 0
        self._count = 0
        self._looks_at_s = 0.0

    def go_on(self, stop: threading.Event, *, until_idle: bool) -> int:
        """Claim runs, and have them driven."""
        try:
            with ThreadPoolExecutor(self._concurrency, thread_name_prefix="statelog worker") as pool:
                while not stop.is_set():
                    self._free_the_dead()
                    if not self._free.acquire(timeout=_SLICE_S):
                        self._limits.rest()
                        continue
                    taken: _Taken | None = None
                    is_idle = self._at_work == 0
                    try:
                        taken = self._next(stop, 0.0 if until_idle else _SLICE_S)
                    finally:
                        if taken is None:
                            self._free.release()
                    if taken is not None:
                        with self._lock:
                            self._at_work += 1
                        pool.submit(self._drive, taken, stop)
                    elif until_idle:
                        if is_idle:
                            break
                        stop.wait(0.005)
        finally:
            self._limits.rest()
        return self._count

    def _free_the_dead(self) -> None:
        """Take from processes that are gone what they have claimed, now and then."""
        now_s = monotonic()
        if now_s >= self._looks_at_s:
            self._looks_at_s = now_s + _DEAD_S
            free_all(self._store)

    def _next(self, stop: threading.Event, wait_s: float) -> _Taken | None:
        """Return the run whose turn it is, None if there is none; do what else there is to do."""
        while not stop.is_set():
            wanted = self._limits.wanted()
            slice_s = 0.0 if self._limits.has_spare else min(wait_s, wanted.wait_s)
            patterns = [*self._patterns, *wanted.patterns]
            claim = self._board.claim(patterns, unless=wanted.unless, lease_s=self._lease_s, wait_s=slice_s)
            if claim is None:
                if self._limits.rest() and wait_s > 0:
                    continue
                return None
            kind = claim.key.split("/")[1]
            if kind == "slots":
                self._limits.came(claim)
            elif kind == "schedules":
                begin_due(self._store, claim)
            else:
                place = self._limits.admit(claim)
                if place is not None:
                    return _Taken(claim, place)
        return None

    def _drive(self, taken: _Taken | None, stop: threading.Event) -> None:
        try:
            while taken is not None:
                with self._lock:
                    self._count += 1
                try:
                    self._execute(taken.claim)
                finally:
                    self._limits.leave(taken.place)
                taken = self._next(stop, 0.0)
        except StatelogError as error:
            _log.warning("a worker could not go on: %s", error.message)
        except BaseException:  # noqa: BLE001 - the others go on
            _log.exception("a worker could not go on")
        finally:
            with self._lock:
                self._at_work -= 1
            self._free.release()

    def _execute(self, claim: Claim) -> None:
        run = claim.value["run"]
        try:
            workflow, host = self._known[claim.key.split("/")[3]], ThreadHost()
            host.finish(drive(self._store, workflow, run, claim, host, lease_s=self._lease_s, backs_off=True))
        except LeaseLostError:
            _log.info("run %s was taken over by another process", run)
        except StatelogError as error:
            _log.warning("run %s has stopped: %s", run, error.message)
        except BaseException:  # noqa: BLE001 - of one run; the others go on
            _log.exception("run %s has stopped", run)
