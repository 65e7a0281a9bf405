"""When a schedule is due: cron expressions in a time zone, as moments in UTC.

Five fields, read as Debian's cron reads them. A job of certain times, `30 2 * * *`, runs once a day also where clocks
change: at the first minute after a gap that its time falls into, and the first time of an hour that comes twice. A job
of every so often (minute or hour begin with `*`) goes by what time has passed: not within the gap, in both hours.
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
"""Which times that passed while nobody looked are still run."""

_LATEST_WINDOW = timedelta(hours=1)
"""How far before the end the latest time is looked for first; twice as far while there is none."""


def check_cron(expression: str, timezone: str) -> None:
    """Refuse what is no schedule.

    Raises:
        UsageError: the expression has not five fields that cron knows, or never fires; the zone is unknown; or
            `cronsim` is not installed. Facts: argument, value.
    """
    for argument, value in (("cron", expression), ("timezone", timezone)):
        if not isinstance(value, str):
            message = f"{argument} is a text, not {type(value).__name__}"
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
    """Return when it was due after one moment and until another, the latter included, the earliest first.

    Args:
        expression: five fields of cron.
        timezone: a name such as "Europe/Berlin": its clocks are what the expression speaks of.
        after: the last time that was seen to.
        until: now.
        catch_up: "all"; the "latest" alone; or "none" but those at most `grace_s` ago.
        limit: how many at most. Of "all" the earliest are returned: ask again after the last of them.
        grace_s: how late is not yet missed.

    Raises:
        UsageError: what `check_cron` refuses, a time without a zone, another way to catch up, a limit below 1, or a
            grace below 0. Facts: argument, value.
    """
    check_cron(expression, timezone)
    start, end = _moment("after", after), _moment("until", until)
    if catch_up not in get_args(CatchUp):
        message = f"catch_up is one of {', '.join(get_args(CatchUp))}, not {catch_up!r}"
        raise UsageError(message, argument="catch_up", value=catch_up)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"limit is a number of at least 1, not {limit!r}"
        raise UsageError(message, argument="limit", value=limit)
    if catch_up == "none":
        grace = _grace(grace_s)
        start = end - grace - timedelta.resolution if grace < end - start else start
    if catch_up == "latest":
        return _latest(expression, timezone, start, end)
    return list(islice(_between(expression, timezone, start, end), limit))


def next_time(expression: str, timezone: str, after: datetime) -> datetime | None:
    """Return when it is due next after a moment, None if not before the calendar ends.

    Raises:
        UsageError: what `check_cron` refuses, or a time without a zone. Facts: argument, value.
    """
    check_cron(expression, timezone)
    return next(_times(expression, timezone, _moment("after", after)), None)


@lru_cache(maxsize=1024)
def _check(expression: str, timezone: str) -> None:
    if len(expression.split()) != 5:  # cronsim takes six, too, but those run twice, or not at all, where clocks change
        message = f"cron {expression!r} has {len(expression.split())} fields, not minute, hour, day, month, day of week"
        raise UsageError(message, argument="cron", value=expression)
    try:
        ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):
        message = (
            f"timezone {timezone!r} is none that this machine knows: names are like 'Europe/Berlin', and where"
            " the system has no database of them, `pip install tzdata` brings it"
        )
        raise UsageError(message, argument="timezone", value=timezone) from None
    if next(_times(expression, timezone, datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
        message = f"cron {expression!r} never fires: there is no such day"
        raise UsageError(message, argument="cron", value=expression)


def _times(expression: str, timezone: str, start: datetime) -> Iterator[datetime]:
    """Yield when it is due after a moment, without end."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        message = "schedules need cronsim: pip install 'statelog[schedule]'"
        raise UsageError(message, argument="cron", value=expression) from None
    last = start
    try:
        for local in CronSim(expression, start.astimezone(ZoneInfo(timezone))):
            moment = local.astimezone(UTC)
            if moment > last:  # asked for within an hour that comes twice, it begins with the first of them
                yield moment
                last = moment
    except CronSimError as error:
        message = f"cron {expression!r} is none: {error}"
        raise UsageError(message, argument="cron", value=expression) from None
    except (OverflowError, ValueError):  # past year 9999
        return


def _between(expression: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    for moment in _times(expression, timezone, start):
        if moment > end:
            return
        yield moment


def _latest(expression: str, timezone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the last time of a span, in a list: found from its end, because a year has half a million minutes."""
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
        message = f"{argument} is a datetime with a time zone, not {value!r}"
        raise UsageError(message, argument=argument, value=value)
    return value.astimezone(UTC)


def _grace(grace_s: float) -> timedelta:
    is_number = isinstance(grace_s, (int, float)) and not isinstance(grace_s, bool)
    if not is_number or not 0 <= grace_s <= timedelta.max.days:  # as many seconds: a day of each is far too long
        message = f"grace_s is a number of seconds, not {grace_s!r}"
        raise UsageError(message, argument="grace_s", value=grace_s)
    return timedelta(seconds=grace_s)
