"""Converts the times of records: microseconds since 1970 in the file, aware datetimes for users."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    """Return the current time for a record: microseconds since 1970, at least 1."""
    return max(time.time_ns() // 1000, 1)


def to_datetime(time_us: int) -> datetime:
    """Return a record's time as an aware datetime in UTC, to the microsecond."""
    return _EPOCH + timedelta(0, 0, time_us)


def to_time_us(moment: datetime) -> int:
    """Return a datetime in microseconds, the inverse of `to_datetime`. A naive datetime counts as local time."""
    try:
        delta = moment.astimezone(UTC) - _EPOCH
    except (OverflowError, ValueError):  # The time zone can shift the first or last day of the calendar out of range.
        delta = moment.replace(tzinfo=UTC) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
