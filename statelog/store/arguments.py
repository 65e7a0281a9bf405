"""Checks the arguments of methods, before any other work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.log import operations
from statelog.store.checkpoint import Checkpoint, event_of

if TYPE_CHECKING:
    from collections.abc import Callable

PRIORITY_MAX = 127
_SECONDS_MAX = 1e9


def check_flag(argument: str, value: bool) -> None:  # noqa: FBT001 - the flag is what it checks
    """Raise UsageError if `value` is not a bool, because a str such as "no" would count as True."""
    if not isinstance(value, bool):
        message = f"{argument} must be True or False, not {value!r}"
        raise UsageError(message, argument=argument, value=value)


def check_lsn(lsn: int) -> None:
    """Raise UsageError if `lsn`, the argument `after`, is not an LSN."""
    if isinstance(lsn, bool) or not isinstance(lsn, int) or lsn < 0:
        message = f"an LSN must be a non-negative int, not {lsn!r}"
        raise UsageError(message, argument="after", value=lsn)


def check_timeout(timeout_s: float) -> None:
    """Raise UsageError if `timeout_s` is not a number. A negative timeout is allowed and means no wait."""
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or math.isnan(timeout_s):
        message = f"timeout_s must be a number of seconds, not {timeout_s!r}"
        raise UsageError(message, argument="timeout_s", value=timeout_s)


def check_seconds(argument: str, seconds: object, *, is_zero_allowed: bool = False) -> None:
    """Raise UsageError if `seconds` is not a valid duration."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not is_number or not (0 < seconds <= _SECONDS_MAX or (is_zero_allowed and seconds == 0)):  # type: ignore[operator]
        least = "from 0" if is_zero_allowed else "above 0"
        message = f"{argument} must be a number of seconds {least}, at most {_SECONDS_MAX:.0f}, not {seconds!r}"
        raise UsageError(message, argument=argument, value=seconds)


def check_priority(priority: object) -> None:
    """Raise UsageError if `priority` is not valid."""
    if type(priority) is not int or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        message = f"priority must be an int from -{PRIORITY_MAX} to {PRIORITY_MAX}, not {priority!r}"
        raise UsageError(message, argument="priority", value=priority)


def check_progress(progress: Callable[[int, int], None] | None) -> None:
    """Raise UsageError if `progress` cannot be called."""
    if progress is not None and not callable(progress):
        message = f"progress must be a function of (done, all), not {progress!r}"
        raise UsageError(message, argument="progress", value=progress)


def check_durable(durable: object, remote: object | None) -> None:
    """Raise UsageError if `durable` is not valid, or is "remote" in a store that is not shipped."""
    if durable == "remote" and remote is None:
        message = "this store is not shipped by a fleet: open it with statelog.fleet.connect(...).open(...)"
        raise UsageError(message, argument="durable", value=durable)
    if durable not in (None, True, False, "remote") or (isinstance(durable, int) and type(durable) is not bool):
        message = f"durable must be True, False, None or 'remote', not {durable!r}"
        raise UsageError(message, argument="durable", value=durable)


def seen(expected: int | Checkpoint | None) -> int | operations.Seen | None:
    """Convert an `expected_version` to the form that a commit compares with the head."""
    return operations.seen(event_of(expected)) if isinstance(expected, Checkpoint) else expected


def list_checkpoints(argument: str, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return a list of checkpoints. Raises UsageError for a single checkpoint, or for other objects."""
    if not isinstance(checkpoints, Iterable):
        message = f"{argument} must be a list of checkpoints, not {checkpoints!r}"
        raise UsageError(message, argument=argument, value=checkpoints)
    found = list(checkpoints)
    for checkpoint in found:
        if not isinstance(checkpoint, Checkpoint):
            message = f"{argument} must be a list of checkpoints; one item is {checkpoint!r}"
            raise UsageError(message, argument=argument, value=checkpoint)
    return found
