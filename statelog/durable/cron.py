"""Computes the times of a cron expression in a time zone, in UTC.

An expression has five fields with the meaning of Debian's cron. A job with a fixed time, such as `30 2 * * *`, runs
once a day even if the clocks change. If its time is skipped, it runs at the first minute after the gap. If its hour
comes twice, it runs in the first one. A job whose minute or hour begins with `*` follows the elapsed time: it does not
run in the gap, and runs in both hours.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Literal, get_args
from zoneinfo import ZoneInfo

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

CatchUp = Literal["none", "latest", "all"]
"""Which scheduled times that passed without a worker still begin a run."""

_LATEST_WINDOW = timedelta(hours=1)
"""The search for the latest time begins with a window of this length before the end. The window doubles each time."""


def check_cron(expression: str, timezone: str) -> None:
    """Check a cron expression and a time zone.

    Raises:
        UsageError: the expression does not have five valid fields, or never fires; the zone is unknown; or `cronsim` is
            not installed. Facts: argument, value.
    """
    for argument, value in (("cron", expression), ("timezone", timezone)):
        if not isinstance(value, str):
            message = f"{argument} must be a str, not {type(value).__name__}"
            raise UsageError(message, argument=argument, value=value)
    _check(expression, timezone)


def due_times(
    expression: str,
    timezone: str,
    after: datetime,
    until: datetime,
    catch_up: CatchUp,
    limit: int = 1000,
    *,
    grace_s: float = 0.0,
) -> list[datetime]:
    """Return the times of a cron expression after `after` and up to and including `until`, the earliest first.

    Args:
        expression: the five fields of the cron expression.
        timezone: the zone of the expression, such as "Europe/Berlin".
        after: the last time that was handled.
        until: the current time.
        catch_up: "all" times, only the "latest", or with "none" only the times of the last `grace_s` seconds.
        limit: the maximum number of times. If there are more, the earliest are returned: call again after the last.
        grace_s: how late a run may begin if `catch_up` is "none", in seconds.

    Raises:
        UsageError: `check_cron` refuses the expression, a time does not have a zone, or another argument is not valid.
            Facts: argument, value.
    """
    check_cron(expression, timezone)
    start, end = _moment("after", after), _moment("until", until)
    if catch_up not in get_args(CatchUp):
        message = f"catch_up must be one of {', '.join(get_args(CatchUp))}, not {catch_up!r}"
        raise UsageError(message, argument="catch_up", value=catch_up)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"limit must be at least 1, not {limit!r}"
        raise UsageError(message, argument="limit", value=limit)
    if catch_up == "none":
        grace = _grace(grace_s)
        start = end - grace - timedelta.resolution if grace < end - start else start
    if catch_up == "latest":
        return _latest(expression, timezone, start, end)
    return list(islice(_between(expression, timezone, start, end), limit))


def next_time(expression: str, timezone: str, after: datetime) -> datetime | None:
    """Return the first time of a cron expression after `after`, or None if there is none before the year 10000.

    Raises:
        UsageError: `check_cron` refuses the expression, or `after` does not have a zone. Facts: argument, value.
    """
    check_cron(expression, timezone)
    return next(_times(expression, timezone, _moment("after", after)), None)


@lru_cache(maxsize=1024)
def _check(expression: str, timezone: str) -> None:
    if len(expression.split()) != 5:  # cronsim accepts six fields, but handles clock changes wrongly for them.
        message = (
            f"cron {expression!r} has {len(expression.split())} fields; it needs five: minute, hour, day, month,"
            " day of week"
        )
        raise UsageError(message, argument="cron", value=expression)
    try:
        ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):
        message = (
            f"timezone {timezone!r} is unknown on this machine: use a name such as 'Europe/Berlin'. If"
            " the system has no time zone database, run `pip install tzdata`"
        )
        raise UsageError(message, argument="timezone", value=timezone) from None
    if next(_times(expression, timezone, datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
        message = f"cron {expression!r} never fires: it names a day that does not exist"
        raise UsageError(message, argument="cron", value=expression)


def _times(expression: str, timezone: str, start: datetime) -> Iterator[datetime]:
    """Yield the times of a cron expression after `start`, without end."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        message = "schedules need cronsim: pip install 'statelog[schedule]'"
        raise UsageError(message, argument="cron", value=expression) from None
    last = start
    try:
        for local in CronSim(expression, start.astimezone(ZoneInfo(timezone))):
            moment = local.astimezone(UTC)
            if moment > last:  # If the hour of `start` comes twice, cronsim may begin in the first one, before `start`.
                yield moment
                last = moment
    except CronSimError as error:
        message = f"cron {expression!r} is not a valid expression: {error}"
        raise UsageError(message, argument="cron", value=expression) from None
    except (OverflowError, ValueError):  # The next time is after the year 9999.
        return


def _between(expression: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    for moment in _times(expression, timezone, start):
        if moment > end:
            return
        yield moment


def _latest(expression: str, timezone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return a list with the last time between two moments, if any. Search backwards, because the span may be long."""
    window = _LATEST_WINDOW
    while start < end:
        begin = max(start, end - window) if window < end - start else start
        found = deque(_between(expression, timezone, begin, end), maxlen=1)
        if found:
            return list(found)
        if begin == start:
            break
        end, window = begin, 2 * window
    return []


def _moment(argument: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        message = f"{argument} must be a datetime with a time zone, not {value!r}"
        raise UsageError(message, argument=argument, value=value)
    return value.astimezone(UTC)


def _grace(grace_s: float) -> timedelta:
    is_number = isinstance(grace_s, (int, float)) and not isinstance(grace_s, bool)
    if not is_number or not 0 <= grace_s <= timedelta.max.days:  # This many seconds fit into a timedelta.
        message = f"grace_s must be a number of seconds, not {grace_s!r}"
        raise UsageError(message, argument="grace_s", value=grace_s)
    return timedelta(seconds=grace_s)
