"""Schedules: each time begins one run, whichever worker sees it and whatever crashes. Also, when workers are needed."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from statelog import durable
from statelog.durable.schedules import begin_due
from statelog.errors import NotFoundError, UsageError, ValueTypeError
from statelog.store.board import own_board
from statelog.testing.durable import skipping_clock

NOW = datetime.now(UTC)
HOUR = (NOW + timedelta(hours=12)).hour
DAILY = f"0 {HOUR} * * *"
"""Half a day from now: no time of it is near."""


@durable.workflow
def note(run, text="nothing"):
    return run.step(str, text)


@durable.workflow
def chat(run):
    return run.recv()


def days(count):
    """Return the last times of DAILY in the format of run ids."""
    last = NOW.replace(hour=HOUR, minute=0, second=0, microsecond=0)
    last -= timedelta(days=last > NOW)
    return [f"{last - timedelta(days=each):%Y-%m-%dT%H:%MZ}" for each in reversed(range(count))]


def sleep_through(store, name, **passed):
    """Change a schedule as if no worker had looked at it for a duration."""
    board = own_board(store)
    entry = board.get(f"durable/schedules/{name}")
    last = NOW - timedelta(**passed)
    value = {**entry.value, "last": round(last.timestamp() * 1e6)}
    board.cas(entry.key, value, expected_version=entry.version)


def begun(store):
    return sorted(each.id for each in durable.runs(store))


def test_a_due_time_begins_a_run_with_its_arguments(store):
    durable.schedule(store, "nightly", note, "hello", cron=DAILY, queue="reports")
    sleep_through(store, "nightly", days=1)
    assert durable.run_worker(store, [note], until_idle=True) == 1
    info = durable.get_run(store, f"nightly:{days(1)[0]}")
    assert (info.status, info.value, info.queue, info.args) == ("completed", "hello", "reports", ("hello",))
    assert durable.run_worker(store, [note], until_idle=True) == 0


def test_no_run_begins_before_its_time(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    assert durable.run_worker(store, [note], until_idle=True) == 0
    assert begun(store) == []


@pytest.mark.parametrize(("catch_up", "count"), [("none", 0), ("latest", 1), ("all", 3)])
def test_missed_times_are_caught_up_as_configured(store, catch_up, count):
    durable.schedule(store, "nightly", note, cron=DAILY, catch_up=catch_up)
    sleep_through(store, "nightly", days=3)
    durable.run_worker(store, [note], until_idle=True)
    assert begun(store) == [f"nightly:{each}" for each in days(count)]


@pytest.mark.slow
def test_many_due_times_begin_once_each_in_several_commits(store):
    with skipping_clock(store, stands_at_us=round(NOW.timestamp() * 1e6)):
        durable.schedule(store, "often", note, cron="* * * * *", catch_up="all")
        sleep_through(store, "often", minutes=120)
        board = own_board(store)
        while (claim := board.claim("durable/schedules/*")) is not None:
            begin_due(store, claim)
    assert len(begun(store)) == 120


def test_run_ids_have_utc_times_whatever_the_zone(store):
    durable.schedule(store, "nightly", note, cron="30 12 * * *", timezone="Asia/Kolkata")
    sleep_through(store, "nightly", days=1)
    durable.run_worker(store, [note], until_idle=True)
    assert [each.endswith("T07:00Z") for each in begun(store)] == [True]


def test_several_workers_begin_each_run_once(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    workers = [
        threading.Thread(target=durable.run_worker, args=(store, [note]), kwargs={"until_idle": True}) for _ in range(4)
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert begun(store) == [f"nightly:{days(1)[0]}"]


def test_a_paused_worker_does_not_begin_a_run_again(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    board = own_board(store)
    paused = board.claim("durable/schedules/*", lease_s=0.01)
    time.sleep(0.02)
    begin_due(store, board.claim("durable/schedules/*"))
    sleep_through(store, "nightly", days=3)
    before = store.last_lsn
    begin_due(store, paused)
    assert (begun(store), store.last_lsn) == ([f"nightly:{days(1)[0]}"], before)


def test_a_time_claimed_by_a_killed_worker_is_begun_by_another(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    assert own_board(store).claim("durable/schedules/*", lease_s=0.01) is not None
    time.sleep(0.02)
    assert durable.run_worker(store, [note], until_idle=True) == 1


def test_an_existing_run_is_not_begun_again(store):
    durable.run(store, note, id=f"nightly:{days(1)[0]}")
    durable.schedule(store, "nightly", note, "other", cron=DAILY)
    sleep_through(store, "nightly", days=1)
    assert durable.run_worker(store, [note], until_idle=True) == 0
    assert durable.get_run(store, f"nightly:{days(1)[0]}").value == "nothing"


def test_repeating_the_same_schedule_call_changes_nothing(store):
    durable.schedule(store, "nightly", note, "a", cron=DAILY)
    sleep_through(store, "nightly", days=1)
    before = store.last_lsn
    durable.schedule(store, "nightly", note, "a", cron=DAILY)
    assert store.last_lsn == before
    durable.schedule(store, "nightly", note, "b", cron=DAILY)
    durable.run_worker(store, [note], until_idle=True)
    assert durable.get_run(store, f"nightly:{days(1)[0]}").value == "b"


def test_a_changed_schedule_counts_from_now(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    durable.schedule(store, "nightly", note, cron=f"1 {HOUR} * * *")
    durable.run_worker(store, [note], until_idle=True)
    assert begun(store) == []


def test_schedules_are_listed_and_ended(store):
    made = durable.schedule(store, "nightly", note, "a", cron=DAILY, timezone="Europe/Berlin", catch_up="all")
    assert durable.schedules(store) == [made]
    assert (made.name, made.workflow, made.args, made.catch_up) == ("nightly", "note", ("a",), "all")
    assert timedelta(0) < made.due - NOW < timedelta(days=1)
    assert durable.unschedule(store, "nightly")
    assert not durable.unschedule(store, "nightly")
    assert durable.schedules(store) == []


def test_a_schedule_that_ends_while_a_worker_reads_it_begins_no_run(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    claim = own_board(store).claim("durable/schedules/*")
    durable.unschedule(store, "nightly")
    begin_due(store, claim)
    assert begun(store) == []


def test_a_schedule_that_a_worker_cannot_read_does_not_stop_the_others(store):
    board = own_board(store)
    durable.schedule(store, "nightly", note, cron=DAILY)
    entry = board.get("durable/schedules/nightly")
    board.set(entry.key, {**entry.value, "cron": "61 * * * *"})  # As written by another release.
    durable.start(store, note, id="evt-1")
    assert durable.run_worker(store, [note], until_idle=True) == 1
    assert "61 * * * *" in board.get(entry.key).error
    assert durable.next_due(store) > NOW


@pytest.mark.parametrize(
    "options",
    [
        {"cron": "no"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": None},
        {"timezone": "Mars/Base"},
        {"catch_up": "some"},
        {"queue": ""},
    ],
    ids=str,
)
def test_an_invalid_schedule_is_refused(store, options):
    with pytest.raises(UsageError) as caught:
        durable.schedule(store, "nightly", note, **{"cron": DAILY, **options})
    assert caught.value.argument == next(iter(options))
    assert durable.schedules(store) == []


def test_arguments_that_a_schedule_cannot_store_are_refused(store):
    with pytest.raises(ValueTypeError, match="arguments of workflow"):
        durable.schedule(store, "nightly", note, object(), cron=DAILY)
    for name in ("", 3, None):
        with pytest.raises(UsageError):
            durable.schedule(store, name, note, cron=DAILY)
    with pytest.raises(UsageError, match="not a workflow"):
        durable.schedule(store, "nightly", str, cron=DAILY)


# --- when a worker is needed ------------------------------------------------------------------------


def test_an_empty_store_or_a_run_that_waits_for_an_answer_needs_no_worker(store):
    assert durable.next_due(store) is None
    durable.run(store, chat, id="evt-1")
    assert durable.next_due(store) is None


def test_a_run_that_can_continue_is_due_now(store):
    durable.run(store, chat, id="evt-1")
    durable.send(store, "evt-1", "hello")
    assert NOW <= durable.next_due(store) <= datetime.now(UTC)


def test_the_earliest_due_time_of_all_work_is_returned(store):
    made = durable.schedule(store, "nightly", note, cron=DAILY)
    assert abs(durable.next_due(store) - made.due) < timedelta(seconds=1)
    durable.start(store, note, id="evt-1", delay_s=600)
    assert NOW < durable.next_due(store) <= datetime.now(UTC) + timedelta(seconds=600)
    own_board(store).set("durable/deliver/evt-9", {"run": "evt-9"}, delay_s=60)
    assert durable.next_due(store, outbox=True) <= datetime.now(UTC) + timedelta(seconds=60)
    own_board(store).set("durable/deliver/evt-9", {"run": "evt-9"})
    assert durable.next_due(store, outbox=True) <= datetime.now(UTC)


def test_a_claimed_run_is_due_when_its_lease_ends(store):
    durable.start(store, note, id="evt-1")
    own_board(store).claim("durable/tasks/**", lease_s=60)
    assert timedelta(seconds=50) < durable.next_due(store) - NOW


# --- a clock that was ahead, and a pause ----------------------------------------------------------


def ahead(store, name, **passed):
    """Change a schedule as a worker leaves it whose clock is ahead by a duration."""
    with skipping_clock(store, stands_at_us=round((datetime.now(UTC) + timedelta(**passed)).timestamp() * 1e6)):
        own_board(store).set(f"durable/schedules/{name}", own_board(store).get(f"durable/schedules/{name}").value)
        begin_due(store, own_board(store).claim("durable/schedules/*"))
    assert own_board(store).get(f"durable/schedules/{name}").value["last"] > time.time() * 1e6


@pytest.mark.parametrize("is_declared_again", [True, False])
def test_a_schedule_follows_a_clock_that_was_set_back(store, is_declared_again):
    """D26."""
    durable.schedule(store, "often", note, cron="* * * * *")
    ahead(store, "often", days=400)
    before = begun(store)
    assert durable.schedules(store)[0].due - datetime.now(UTC) <= timedelta(minutes=1)
    assert durable.next_due(store) <= datetime.now(UTC)
    if is_declared_again:
        made = durable.schedule(store, "often", note, cron="* * * * *")
        assert made.due - datetime.now(UTC) <= timedelta(minutes=1)
    durable.run_worker(store, [note], until_idle=True)
    entry = own_board(store).get("durable/schedules/often")
    assert entry.ready - datetime.now(UTC) <= timedelta(minutes=1)
    assert entry.value["last"] <= time.time() * 1e6
    sleep_through(store, "often", minutes=5)
    own_board(store).set(entry.key, own_board(store).get(entry.key).value)
    durable.run_worker(store, [note], until_idle=True)
    assert len(begun(store)) > len(before)


def test_a_run_that_began_before_the_clock_was_set_back_does_not_begin_again(store):
    durable.schedule(store, "often", note, cron="* * * * *", catch_up="all")
    sleep_through(store, "often", minutes=3)
    own_board(store).set("durable/schedules/often", own_board(store).get("durable/schedules/often").value)
    durable.run_worker(store, [note], until_idle=True)
    first = begun(store)
    ahead(store, "often", minutes=2)
    between = begun(store)
    durable.run_worker(store, [note], until_idle=True)
    assert set(first) <= set(between) <= set(begun(store))
    assert len(begun(store)) - len(between) <= 1  # A minute may have passed.


def test_a_schedule_that_cannot_follow_the_clock_does_not_stop_the_others(store):
    durable.schedule(store, "broken", note, cron=DAILY)
    durable.schedule(store, "often", note, cron=DAILY)
    far = round((NOW + timedelta(days=400)).timestamp() * 1e6)
    for name in ("broken", "often"):
        entry = own_board(store).get(f"durable/schedules/{name}")
        cron = "61 * * * *" if name == "broken" else DAILY
        own_board(store).set(entry.key, {**entry.value, "cron": cron, "last": far}, delay_s=400 * 86_400)
    durable.run_worker(store, [note], until_idle=True)
    assert own_board(store).get("durable/schedules/often").value["last"] <= time.time() * 1e6


def test_a_paused_schedule_begins_no_run_and_continues_from_its_resumption(store):
    durable.schedule(store, "nightly", note, cron=DAILY, catch_up="all")
    assert durable.pause_schedule(store, "nightly")
    assert not durable.pause_schedule(store, "nightly")
    durable.schedule(store, "nightly", note, "another", cron=DAILY, catch_up="all")
    (paused,) = durable.schedules(store)
    assert (paused.is_paused, paused.due, paused.args) == (True, None, ("another",))
    assert durable.next_due(store) is None
    sleep_through(store, "nightly", days=3)
    assert durable.run_worker(store, [note], until_idle=True) == 0
    assert durable.resume_schedule(store, "nightly")
    assert not durable.resume_schedule(store, "nightly")
    assert durable.run_worker(store, [note], until_idle=True) == 0
    (resumed,) = durable.schedules(store)
    assert not resumed.is_paused
    assert resumed.due > NOW
    assert begun(store) == []


def test_a_schedule_that_is_paused_while_a_worker_reads_it_begins_no_run(store):
    durable.schedule(store, "nightly", note, cron=DAILY)
    sleep_through(store, "nightly", days=1)
    claim = own_board(store).claim("durable/schedules/*")
    durable.pause_schedule(store, "nightly")
    begin_due(store, claim)
    assert begun(store) == []
    claim.release()
    assert durable.run_worker(store, [note], until_idle=True) == 0


def test_pausing_an_unknown_schedule_is_refused(store):
    for change in (durable.pause_schedule, durable.resume_schedule):
        with pytest.raises(NotFoundError, match="no schedule 'none'"):
            change(store, "none")
