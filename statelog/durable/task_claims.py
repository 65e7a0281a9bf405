"""Renews the claims of tasks and slots while they are used. One OS thread renews all claims of a process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import ref

from statelog.errors import LeaseLostError, StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.claims import Claim

LEASE_S: Final = 30.0
"""How long other processes wait for a killed process if they cannot detect its death, in seconds."""

_RENEWALS: Final = 3


class _Renewer:
    """Renews the held claims until there are none.

    It holds weak references, because an interrupt may prevent the release of a claim. An unreferenced claim expires.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._held: dict[int, tuple[ref[Claim], float, float]] = {}
        self._thread: threading.Thread | None = None

    def add(self, claim: Claim, lease_s: float) -> None:
        """Renew a claim regularly from now on."""
        with self._lock:
            self._held[id(claim)] = (ref(claim), lease_s / _RENEWALS, monotonic() + lease_s / _RENEWALS)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._renew_held, name="statelog durable", daemon=True)
                self._thread.start()
            elif lease_s < LEASE_S:
                self._lock.notify()

    def drop(self, claim: Claim) -> None:
        """Stop renewing a claim."""
        with self._lock:
            self._held.pop(id(claim), None)

    def has(self, claim: Claim) -> bool:
        """Return True if a claim is being renewed."""
        with self._lock:
            return id(claim) in self._held

    def _renew_held(self) -> None:
        while True:
            with self._lock:
                now_s = monotonic()
                self._held = {at: held for at, held in self._held.items() if held[0]() is not None}
                late = [(at, held) for at, held in self._held.items() if held[2] <= now_s]
                for at, (held, each, _at_s) in late:
                    self._held[at] = (held, each, now_s + each)
                due = [held[0]() for _at, held in late]
                if not due:
                    soonest_s = min((at_s for _claim, _each, at_s in self._held.values()), default=None)
                    if not self._lock.wait(10.0 if soonest_s is None else soonest_s - now_s) and not self._held:
                        self._thread = None
                        return
                    continue
            while due:
                self._renew(due.pop())

    def _renew(self, claim: Claim | None) -> None:
        if claim is None:
            return
        try:
            claim.renew()
        except LeaseLostError:
            self.drop(claim)
        except StatelogError:  # The disk may be full, or the store closed. The run gets the same error when it writes.
            return


_renewer = _Renewer()


def start_renewing(claim: Claim, lease_s: float) -> None:
    """Renew a claim regularly from now on."""
    _renewer.add(claim, lease_s)


def stop_renewing(claim: Claim) -> None:
    """Stop renewing a claim. The claim is not released."""
    _renewer.drop(claim)


def is_held(claim: Claim) -> bool:
    """Return True if a claim is being renewed. If not, it was lost, unless `stop_renewing` was called."""
    return _renewer.has(claim)


@contextmanager
def renewed(claim: Claim, lease_s: float) -> Iterator[None]:
    """Renew a claim during the block."""
    start_renewing(claim, lease_s)
    try:
        yield
    finally:
        stop_renewing(claim)
