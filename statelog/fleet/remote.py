"""What every `store.remote` takes and tells."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from statelog.errors import UsageError


def check_number(name: str, value: object, *, is_zero_allowed: bool = True) -> None:
    """Refuse a time or size that is none. Raises UsageError. Facts: argument, value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (value > 0 or (value == 0 and is_zero_allowed)):  # type: ignore[operator]
        return
    message = f"{name} is a number {'from' if is_zero_allowed else 'above'} 0{' on' * is_zero_allowed}, not {value!r}"
    raise UsageError(message, argument=name, value=value)


def check_period(name: str, value: object) -> None:
    """Raise UsageError if a value is not a duration, or is too long for a wait. Facts: argument, value."""
    check_number(name, value, is_zero_allowed=False)
    if value > threading.TIMEOUT_MAX:  # type: ignore[operator]  # it is a number
        message = f"{name} is a number above 0, at most {threading.TIMEOUT_MAX:g}, not {value!r:.40}"
        raise UsageError(message, argument=name, value=value)


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """What is outside of a store.

    Attributes:
        shipped_lsn: up to here all is outside.
        last_lsn: the last LSN here.
        lag_s: since when something is not outside; 0 if nothing is.
        lag_bytes: about so much is not outside.
        epoch: of this owner.
        parked: whether the store was given up meanwhile, as nobody wrote.
        requests: made of the storage so far.

    """

    shipped_lsn: int
    last_lsn: int
    lag_s: float
    lag_bytes: int
    epoch: int
    parked: bool
    requests: int
