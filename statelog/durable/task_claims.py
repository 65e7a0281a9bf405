"""Claims of tasks, renewed while their runs are driven: one OS thread for all of a process."""

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
"""So long others wait for a process of which they cannot tell that it was killed."""

_RENEWALS: Final = 3


class _Renewer:
    """Renews the claims that are held, until there are none.

    It refers to them weakly: an interrupt may come between a claim and what would let it go. It runs out then.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._held: dict[int, tuple[ref[Claim], float, float]] = {}
        self._thread: threading.Thread | None = None

    def add(self, claim: Claim, lease_s: float) -> None:
        """Renew a claim from now on."""
        with self._lock:
            self._held[id(claim)] = (ref(claim), lease_s / _RENEWALS, monotonic() + lease_s / _RENEWALS)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._go_on, name="statelog durable", daemon=True)
                self._thread.start()
            elif lease_s < LEASE_S:
                self._lock.notify()

    def drop(self, claim: Claim) -> None:
        """Renew it no more."""
        with self._lock:
            self._held.pop(id(claim), None)

    def has(self, claim: Claim) -> bool:
        """Whether it is renewed."""
        with self._lock:
            return id(claim) in self._held

    def _go_on(self) -> None:
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
        except StatelogError:  # a full disk, a closed store: its run finds out for itself
            return


_renewer = _Renewer()


def hold(claim: Claim, lease_s: float) -> None:
    """Renew a claim from now on."""
    _renewer.add(claim, lease_s)


def let_go(claim: Claim) -> None:
    """Renew a claim no more."""
    _renewer.drop(claim)


def is_held(claim: Claim) -> bool:
    """Whether a claim is renewed: if nobody has let it go it was lost."""
    return _renewer.has(claim)


@contextmanager
def renewed(claim: Claim, lease_s: float) -> Iterator[None]:
    """Renew a claim while a block runs."""
    hold(claim, lease_s)
    try:
        yield
    finally:
        let_go(claim)
