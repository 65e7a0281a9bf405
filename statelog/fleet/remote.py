"""The parts that every `store.remote` shares."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from statelog.errors import UsageError


def check_number(name: str, value: object, *, is_zero_allowed: bool = True) -> None:
    """Raise UsageError for an invalid time or size. Facts: argument, value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (value > 0 or (value == 0 and is_zero_allowed)):  # type: ignore[operator]
        return
    message = f"{name} must be a {'non-negative' if is_zero_allowed else 'positive'} number, not {value!r}"
    raise UsageError(message, argument=name, value=value)


def check_period(name: str, value: object) -> None:
    """Raise UsageError if a value is not a duration, or is too long for a wait. Facts: argument, value."""
    check_number(name, value, is_zero_allowed=False)
    if value > threading.TIMEOUT_MAX:  # type: ignore[operator]  # it is a number
        message = f"{name} must be a number above 0 and at most {threading.TIMEOUT_MAX:g}, not {value!r:.40}"
        raise UsageError(message, argument=name, value=value)


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The state of shipping: how much of a store the storage has.

    Attributes:
        shipped_lsn: the last LSN that is shipped.
        last_lsn: the last LSN on this machine.
        lag_s: age of the oldest unshipped commit; 0 if there is none.
        lag_bytes: approximate size of the unshipped records.
        epoch: epoch of this owner.
        parked: whether the store is released because nothing was committed for a while.
        requests: number of requests to the storage so far.
    """

    shipped_lsn: int
    last_lsn: int
    lag_s: float
    lag_bytes: int
    epoch: int
    parked: bool
    requests: int
