"""The times at which a schedule is due, also when clocks change."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from statelog.durable import cron
from statelog.durable.cron import check_cron, due_times, next_time
from statelog.errors import UsageError

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
HOUR = timedelta(hours=1)


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def all_of(expression, timezone, after, until):
    return due_times(expression, timezone, after, until, "all")


# --- changes of the clock ------------------------------------------------------------

NIGHTS = [
    # In Berlin 02:00 to 03:00 does not exist on 29 March 2026, and occurs twice on 25 October.
    (BERLIN, "30 2 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]),
    (BERLIN, "0 3 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 29, 1), utc(2026, 3, 30, 1)]),
    (BERLIN, "0,30 2 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0), utc(2026, 3, 30, 0, 30)]),
    (BERLIN, "30 2 * * *", utc(2026, 10, 24, 12), [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]),
    (BERLIN, "0 3 * * *", utc(2026, 10, 24, 12), [utc(2026, 10, 25, 2), utc(2026, 10, 26, 2)]),
    # In New York, the dates are 8 March, and 1 November (01:00 to 02:00).
    (NEW_YORK, "30 2 * * *", utc(2026, 3, 7, 12), [utc(2026, 3, 8, 7), utc(2026, 3, 9, 6, 30)]),
    (NEW_YORK, "30 1 * * *", utc(2026, 10, 31, 12), [utc(2026, 11, 1, 5, 30), utc(2026, 11, 2, 6, 30)]),
    ("UTC", "30 2 * * *", utc(2026, 3, 28, 12), [utc(2026, 3, 29, 2, 30), utc(2026, 3, 30, 2, 30)]),
]


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), NIGHTS)
def test_a_nightly_job_runs_once_a_night_even_when_clocks_change(zone, expression, after, expected):
    assert all_of(expression, zone, after, after + timedelta(days=2)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("zone", "expression", "after", "expected"), NIGHTS)
def test_due_times_do_not_depend_on_when_they_are_computed(zone, expression, after, expected):
    until = after + timedelta(days=2)
    for minutes in range(0, 48 * 60, 15):
        now = after + timedelta(minutes=minutes)
        rest = [each for each in expected if each > now]
        assert all_of(expression, zone, now, until) == rest
        assert due_times(expression, zone, now, until, "latest") == rest[-1:]
        assert due_times(expression, zone, after, now, "latest") == [each for each in expected if each <= now][-1:]
        if rest:
            assert next_time(expression, zone, now) == rest[0]


@pytest.mark.parametrize("expression", ["0 * * * *", "*/20 * * * *", "7,37 * * * *"])
@pytest.mark.parametrize("day", [utc(2026, 3, 29), utc(2026, 10, 25)])
def test_the_intervals_of_a_periodic_job_stay_equal_when_clocks_change(expression, day):
    due = all_of(expression, BERLIN, day - HOUR, day + 6 * HOUR)
    assert len({later - earlier for earlier, later in pairwise(due)}) == 1
    for later in range(1, 20):
        now = day - HOUR + timedelta(minutes=17) * later
        assert all_of(expression, BERLIN, now, day + 6 * HOUR) == [each for each in due if each > now]


def test_times_are_in_utc_whatever_the_zone_of_the_arguments():
    here = timezone(timedelta(hours=5))
    (found,) = all_of("0 3 * * *", BERLIN, utc(2026, 7, 1).astimezone(here), utc(2026, 7, 2).astimezone(here))
    assert (found, found.tzinfo) == (utc(2026, 7, 1, 1), UTC)
    assert next_time("0 3 * * *", BERLIN, utc(2026, 7, 1).astimezone(here)).tzinfo is UTC


# --- which times are due ------------------------------------------------------------------


def test_the_interval_excludes_its_start_and_includes_its_end():
    due = all_of("0 * * * *", "UTC", utc(2026, 7, 1, 1), utc(2026, 7, 1, 3))
    assert due == [utc(2026, 7, 1, 2), utc(2026, 7, 1, 3)]
    assert all_of("0 * * * *", "UTC", utc(2026, 7, 1, 3), utc(2026, 7, 1, 3)) == []
    assert all_of("0 * * * *", "UTC", utc(2026, 7, 1, 3), utc(2026, 7, 1, 1)) == []


def test_fractions_of_a_second_lose_no_time():
    almost = utc(2026, 7, 1, 1, 59, 59, 999_999)
    assert next_time("0 * * * *", BERLIN, almost) == utc(2026, 7, 1, 2)
    assert all_of("0 * * * *", BERLIN, almost - HOUR, almost) == [utc(2026, 7, 1, 1)]


@pytest.mark.parametrize("zone", ["UTC", BERLIN])
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 3 * * *", "15 4 1 * *", "0 0 29 2 *", "0 12 * * FRI#2"])
def test_latest_returns_the_last_due_time(expression, zone):
    after, until = utc(2026, 3, 1), utc(2026, 3, 4, 5, 6)
    everything = due_times(expression, zone, after, until, "all", 10_000)
    assert due_times(expression, zone, after, until, "latest") == everything[-1:]


def test_the_latest_time_in_ten_years_is_searched_from_the_end():
    assert due_times("* * * * *", BERLIN, utc(2016, 1, 1), utc(2026, 1, 1), "latest") == [utc(2026, 1, 1)]
    assert due_times("0 0 1 1 *", "UTC", utc(2016, 1, 1), utc(2025, 12, 31), "latest") == [utc(2025, 1, 1)]
    assert due_times("0 0 29 2 *", "UTC", utc(2025, 1, 1), utc(2027, 12, 31), "latest") == []


def test_all_due_times_come_in_batches_with_the_earliest_first():
    after, until = utc(2026, 7, 1), utc(2026, 7, 2)
    everything, portions = all_of("0 * * * *", BERLIN, after, until), []
    while portion := due_times("0 * * * *", BERLIN, portions[-1] if portions else after, until, "all", limit=7):
        assert len(portion) <= 7
        portions += portion
    assert portions == everything
    assert len(everything) == 24


def test_without_catch_up_only_times_within_the_grace_period_are_due():
    after, until = utc(2026, 7, 1), utc(2026, 7, 1, 12, 0, 30)
    assert due_times("0 * * * *", BERLIN, after, until, "none") == []
    assert due_times("0 * * * *", BERLIN, after, until, "none", grace_s=29) == []
    assert due_times("0 * * * *", BERLIN, after, until, "none", grace_s=30) == [utc(2026, 7, 1, 12)]
    assert due_times("0 * * * *", BERLIN, after, utc(2026, 7, 1, 12), "none") == [utc(2026, 7, 1, 12)]
    assert len(due_times("0 * * * *", BERLIN, after, until, "none", grace_s=86400)) == 12, (
        "the grace period sets the earliest time"
    )


# --- bad input ----------------------------------------------------------------------

BAD_CRONS = [
    "",
    "* * * *",
    "* * * * * *",
    "61 * * * *",
    "a * * * *",
    "* 24 * * *",
    "*/0 * * * *",
    "5-1 * * * *",
    "@daily",
]
NEVER = ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */30 * SUN#2"]


@pytest.mark.parametrize("expression", [*BAD_CRONS, *NEVER])
def test_an_invalid_expression_is_refused_everywhere(expression):
    for call in (
        lambda: check_cron(expression, BERLIN),
        lambda: next_time(expression, BERLIN, utc(2026, 1, 1)),
        lambda: due_times(expression, BERLIN, utc(2026, 1, 1), utc(2026, 1, 2), "all"),
    ):
        with pytest.raises(UsageError) as raised:
            call()
        assert raised.value.facts == {"argument": "cron", "value": expression}


@pytest.mark.parametrize("expression", NEVER)
def test_an_expression_that_never_fires_is_refused(expression):
    with pytest.raises(UsageError, match=r"never fires|Bad day-of-month"):
        check_cron(expression, BERLIN)


@pytest.mark.parametrize("expression", ["0 3 * * *", "0 0 29 2 *", "0 0 L * *", "0 9 * * mon-fri", "0 0 * 2 MON#5"])
def test_an_expression_that_fires_rarely_is_accepted(expression):
    check_cron(expression, BERLIN)


@pytest.mark.parametrize(
    "zone", ["", "Europe", "Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "a\0b", "CEST+x"]
)
def test_an_unknown_time_zone_is_refused(zone):
    with pytest.raises(UsageError) as raised:
        check_cron("0 3 * * *", zone)
    assert raised.value.facts == {"argument": "timezone", "value": zone}


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("cron", {"expression": 5}),
        ("timezone", {"timezone": None}),
        ("after", {"after": datetime(2026, 1, 1)}),  # noqa: DTZ001 - without a zone
        ("until", {"until": "2026-01-02"}),
        ("catch_up", {"catch_up": "some"}),
        ("catch_up", {"catch_up": ["all"]}),
        ("limit", {"limit": 0}),
        ("limit", {"limit": True}),
        ("grace_s", {"catch_up": "none", "grace_s": -1}),
        ("grace_s", {"catch_up": "none", "grace_s": float("nan")}),
        ("grace_s", {"catch_up": "none", "grace_s": "1"}),
    ],
)
def test_an_invalid_argument_is_named(argument, change):
    good = {"expression": "0 3 * * *", "timezone": BERLIN, "after": utc(2026, 1, 1), "until": utc(2026, 1, 2)}
    with pytest.raises(UsageError) as raised:
        due_times(**{"catch_up": "all", **good, **change})
    assert raised.value.argument == argument


def test_no_time_is_due_after_the_end_of_the_calendar():
    assert next_time("0 3 * * *", BERLIN, datetime.max.replace(tzinfo=UTC)) is None
    assert next_time("0 3 1 1 *", BERLIN, utc(9999, 6, 1)) is None
    assert due_times("0 3 1 1 *", BERLIN, utc(9999, 6, 1), utc(9999, 12, 1), "all") == []


def test_without_cronsim_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    cron._check.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'statelog\[schedule\]'"):
        check_cron("0 3 * * *", BERLIN)
