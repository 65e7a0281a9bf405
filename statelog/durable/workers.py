"""Workers: processes that drive runs of queues, begin runs of schedules, and deliver messages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from statelog.durable import deadlines
from statelog.durable.delivery import delivered_beside
from statelog.durable.driver import drive
from statelog.durable.hosts import ThreadHost
from statelog.durable.keys import check_part, check_queue
from statelog.durable.owners import free_all, me
from statelog.durable.queues import HeldSlots, Queue, QueueLimits
from statelog.durable.runs import board_of
from statelog.durable.schedules import begin_due, follow_clock
from statelog.durable.subscriptions import check_subscribers
from statelog.durable.task_claims import LEASE_S
from statelog.durable.unknown import UnknownWorkflows
from statelog.durable.workflows import by_name, check_list
from statelog.errors import LeaseLostError, StatelogError, UsageError
from statelog.redaction import redacting_logger
from statelog.store.board import attempt_claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim, ClaimAttempt
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

_SLICE_S = 0.5
_LOOK_AROUND_S = 5.0
CONCURRENCY = 16


def run_worker(
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
    """Drive runs, and begin the due runs of schedules, until stopped. Return how often a run was claimed.

    Any number of workers may use one store. Only one at a time drives a run. If a process is killed, another process
    takes over its run within seconds, or after `lease_s` if it cannot detect that the first process is dead.

    Args:
        store: the store.
        workflows: the workflows whose runs are driven.
        queues: the names of the queues to take runs from, or a dict of their limits, `{"trips": Queue(...)}`. Give all
            workers of a queue the same limits. The default is all queues, without limits.
        outbox: webhooks and callables that receive the messages of runs.
        concurrency: the maximum number of runs that this process drives at once.
        stop: an event that a signal handler or another thread may set. Then this returns when the current runs have
            ended or are suspended.
        until_idle: return when there is nothing to do now.
        lease_s: how long other processes wait for this process if they cannot detect that it was killed, in seconds.

    Raises:
        UsageError: an argument is not valid.
    """
    if stop is not None and not hasattr(stop, "is_set"):
        raise UsageError(f"stop must be a threading.Event, not {stop!r}", argument="stop", value=stop)
    claimer = RunClaimer(store, workflows, queues, concurrency, lease_s)
    subscribers = check_subscribers(outbox)
    with delivered_beside(store, subscribers, drains=until_idle):
        return _Worker(claimer).drive_runs(stop or threading.Event(), until_idle=until_idle)


def limits_of(queues: Iterable[str] | Mapping[str, Queue] | None) -> dict[str, Queue] | None:
    """Return the limits of the given queues by name, in the form of a key part; None for all. Raises UsageError."""
    if queues is None:
        return None
    names = check_list("queues", queues, "a list of names, or a dict")
    given = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(names, Queue())
    for name, queue in given.items():
        if not isinstance(queue, Queue):
            message = f"the limits of queue {name!r} must be a durable.Queue, not {queue!r}"
            raise UsageError(message, argument="queues", value=queue)
    return {check_queue(name): queue for name, queue in given.items()}


class ClaimedRun(NamedTuple):
    """A run that a worker has claimed."""

    claim: Claim
    workflow: Workflow

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self.claim.value["run"])


class RunClaimer:
    """Claims the work of a worker. Each claim searches tasks, schedules, deadlines and slots.

    Raises:
        UsageError: an argument is not valid.
    """

    def __init__(
        self,
        store: Store,
        workflows: Iterable[Workflow],
        queues: Iterable[str] | Mapping[str, Queue] | None,
        concurrency: int,
        lease_s: float,
    ) -> None:
        if type(concurrency) is not int or concurrency < 1:
            message = f"concurrency must be a positive int, not {concurrency!r}"
            raise UsageError(message, argument="concurrency", value=concurrency)
        self._known = {check_part("workflow", name): workflow for name, workflow in by_name(workflows).items()}
        limits = limits_of(queues)
        self._patterns: list[str] = []
        for name in self._known:
            self._patterns += [f"durable/tasks/*/{name}/*"] if limits is None else []
            self._patterns += [f"durable/tasks/{queue}{part}/{name}/*" for queue in limits or () for part in ("", "@*")]
        if not self._patterns:
            raise UsageError(
                "a worker needs at least one workflow and one queue", argument="workflows", value=workflows
            )
        self._patterns += ["durable/schedules/*", deadlines.PATTERN]
        self._limits = QueueLimits(
            store, {name: each for name, each in (limits or {}).items() if each != Queue()}, lease_s
        )
        self._board = board_of(store, me())
        self._unknown = UnknownWorkflows(store, self._known, limits)
        self._looks_at_s = 0.0
        self.store, self.concurrency, self.lease_s = store, concurrency, lease_s

    def next(self, held: HeldSlots, stop: threading.Event, wait_s: float) -> ClaimedRun | None:
        """Claim the next run, and handle due schedules and deadlines before it. Return None if no run comes in time.

        Afterwards, `held` has the slots that the run needs. Without a run, `held` is empty.
        """
        try:
            self._limits.release_old_slots(held)
            while not stop.is_set():
                self._look_around()
                attempt, waits_s = self.attempt(held)
                claim = attempt.take_in_time(0.0 if held.slots else min(wait_s, waits_s))
                if claim is None:
                    if self._limits.give_back(held, is_idle=True) and wait_s > 0:
                        continue
                    return None
                kind = claim.key.split("/")[1]
                if kind == "slots":
                    self._limits.add_slot(claim, held)
                elif kind == "schedules":
                    begin_due(self.store, claim)
                elif kind == "deadlines":
                    deadlines.end_claimed(self.store, claim)
                elif self._limits.admit(claim, held):
                    return ClaimedRun(claim, self._known[claim.key.split("/")[3]])
        except BaseException:
            self._limits.give_back(held)
            raise
        self._limits.give_back(held)
        return None

    def attempt(self, held: HeldSlots) -> tuple[ClaimAttempt, float]:
        """Return an attempt to claim the next work, and the time in seconds after which more work may be claimable."""
        adjustment = self._limits.claim_adjustment(held)
        patterns = [*self._patterns, *adjustment.patterns]
        return attempt_claim(self._board, patterns, unless=adjustment.unless, lease_s=self.lease_s), adjustment.wait_s

    def drop(self, held: HeldSlots) -> None:
        """Release the slots of a thread."""
        self._limits.give_back(held)

    def give_back(self, claimed: ClaimedRun, held: HeldSlots) -> None:
        """Release a claimed run that is not driven, and the slots of its thread."""
        with log_stop(claimed.run):
            claimed.claim.release(counts=False)
        self.drop(held)

    def _look_around(self) -> None:
        """At intervals, release claims of dead processes, correct schedules, and report unknown workflows."""
        now_s = monotonic()
        if now_s >= self._looks_at_s:
            self._looks_at_s = now_s + _LOOK_AROUND_S
            free_all(self.store)
            follow_clock(self.store)
            self._unknown.report()


class _Worker:
    """Drives runs in OS threads. When a thread has driven a run, it claims the next one."""

    def __init__(self, claimer: RunClaimer) -> None:
        self._claimer = claimer
        self._free = threading.Semaphore(claimer.concurrency)
        self._lock = threading.Lock()
        self._at_work = 0
        self._count = 0

    def drive_runs(self, stop: threading.Event, *, until_idle: bool) -> int:
        """Claim runs, and drive them in threads. Return how often a run was claimed."""
        with ThreadPoolExecutor(self._claimer.concurrency, thread_name_prefix="statelog worker") as pool:
            while not stop.is_set():
                if not self._free.acquire(timeout=_SLICE_S):
                    continue
                claimed, held, is_idle = None, HeldSlots(), self._at_work == 0
                try:
                    claimed = self._claimer.next(held, stop, 0.0 if until_idle else _SLICE_S)
                finally:
                    if claimed is None:
                        self._free.release()
                if claimed is not None:
                    with self._lock:
                        self._at_work += 1
                    pool.submit(self._drive, claimed, held, stop)
                elif until_idle:
                    if is_idle:
                        break
                    stop.wait(0.005)
        return self._count

    def _drive(self, claimed: ClaimedRun | None, held: HeldSlots, stop: threading.Event) -> None:
        """Drive a run, and then the next ones, until there are none."""
        try:
            while claimed is not None:
                with self._lock:
                    self._count += 1
                self._execute(claimed)
                claimed = self._claimer.next(held, stop, 0.0)
        except StatelogError as error:
            _log.warning("a worker could not continue: %s", error.message)
        except BaseException:  # noqa: BLE001 - the other threads continue
            _log.exception("a worker could not continue")
        finally:
            with self._lock:
                self._at_work -= 1
            self._free.release()

    def _execute(self, claimed: ClaimedRun) -> None:
        host, lease_s = ThreadHost(), self._claimer.lease_s
        with log_stop(claimed.run):
            host.finish(
                drive(
                    self._claimer.store,
                    claimed.workflow,
                    claimed.run,
                    claimed.claim,
                    host,
                    lease_s=lease_s,
                    backs_off=True,
                )
            )


@contextmanager
def log_stop(run: str) -> Iterator[None]:
    """Log the reason if a run stops within the `with` block. The errors are not raised, so other runs continue."""
    try:
        yield
    except LeaseLostError:
        _log.info("run %s was taken over by another process", run)
    except StatelogError as error:
        _log.warning("run %s has stopped: %s", run, error.message)
    except Exception:  # noqa: BLE001 - the error concerns one run
        _log.exception("run %s has stopped", run)
