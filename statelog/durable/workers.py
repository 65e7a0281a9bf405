"""Workers: processes that take up runs as they come, and go on with those that wait."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from statelog.durable.delivering import delivered_beside
from statelog.durable.driving import drive
from statelog.durable.holding import LEASE_S
from statelog.durable.hosts import ThreadHost
from statelog.durable.naming import check_part
from statelog.durable.owners import free_all, me
from statelog.durable.runs import board_of
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
CONCURRENCY = 16


def work(
    store: Store,
    workflows: Iterable[Workflow],
    *,
    queues: Any = None,
    outbox: Iterable[Any] = (),
    concurrency: int = CONCURRENCY,
    stop: threading.Event | None = None,
    until_idle: bool = False,
    lease_s: float = LEASE_S,
) -> int:
    """Drive runs, until stopped; return how often one was taken up.

    Any number of processes may do so on one store. Each run is driven by one of them at a time. A run whose process was
    killed is taken up by another after `lease_s`.

    Args:
        store: the store.
        workflows: those whose runs are taken up.
        queues: names of the queues to take runs from; all, if left out.
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
    chosen = ["*"] if queues is None else [check_part("queue", each) for each in queues]
    patterns = [f"durable/tasks/{queue}/{check_part('workflow', name)}/*" for queue in chosen for name in known]
    if not patterns:
        raise UsageError("there is no workflow, or no queue, to work for", argument="workflows", value=workflows)
    worker = _Worker(store, known, concurrency, lease_s, stop or threading.Event())
    with delivered_beside(store, check_subscribers(outbox), drains=until_idle):
        return worker.go_on(patterns, until_idle=until_idle)


class _Worker:
    def __init__(
        self, store: Store, known: dict[str, Workflow], concurrency: int, lease_s: float, stop: threading.Event
    ) -> None:
        self._store, self._known, self._lease_s, self._stop = store, known, lease_s, stop
        self._free = threading.Semaphore(concurrency)
        self._concurrency = concurrency
        self._at_work = 0
        self._lock = threading.Lock()

    def go_on(self, patterns: list[str], *, until_idle: bool) -> int:
        """Claim runs, and have them driven."""
        board = board_of(self._store, me())
        free_all(self._store)
        taken = 0
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="statelog worker") as pool:
            while not self._stop.is_set():
                if not self._free.acquire(timeout=_SLICE_S):
                    continue
                claim: Claim | None = None
                try:
                    claim = board.claim(patterns, lease_s=self._lease_s, wait_s=0.0 if until_idle else _SLICE_S)
                finally:
                    if claim is None:
                        self._free.release()
                if claim is not None:
                    taken += 1
                    with self._lock:
                        self._at_work += 1
                    pool.submit(self._drive, claim)
                elif until_idle:
                    if self._at_work == 0:
                        break
                    self._stop.wait(0.005)
        return taken

    def _drive(self, claim: Claim) -> None:
        try:
            workflow = self._known[claim.key.split("/")[3]]
            host = ThreadHost()
            host.finish(drive(self._store, workflow, claim.value["run"], claim, host, lease_s=self._lease_s))
        except LeaseLostError:
            _log.info("run %s was taken over by another process", claim.value["run"])
        except StatelogError as error:
            _log.warning("run %s has stopped: %s", claim.value["run"], error.message)
        except BaseException:  # noqa: BLE001 - of one run; the others go on
            _log.exception("run %s has stopped", claim.value["run"])
        finally:
            with self._lock:
                self._at_work -= 1
            self._free.release()
