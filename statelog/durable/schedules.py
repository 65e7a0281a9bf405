"""Schedules, which begin one run at each time of a cron expression, however many workers there are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

from statelog.durable.clock import clock, moment_of, now
from statelog.durable.cron import CatchUp, check_cron, due_times, next_time
from statelog.durable.keys import check_queue, run_key, schedule_key
from statelog.durable.runs import DEFAULT_QUEUE, FAR_S, Start, board_of, delay_of, retried, stage_create
from statelog.durable.values import arguments_item, check_names, decode, guarded
from statelog.durable.workflows import check_arguments, check_workflow
from statelog.errors import ConflictError, LeaseLostError, NotFoundError, StatelogError, UsageError
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

GRACE_S: Final = 60.0
"""With `catch_up="none"`, a scheduled time is missed if no worker begins its run within this many seconds."""
_AT_ONCE: Final = 50
"""The maximum number of runs that begin in one commit."""
_TRIED_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, which begins runs of a workflow at certain times.

    Attributes:
        due: the next time, or None if there are no more times or the schedule is paused.
        is_paused: True if the schedule does not begin runs until `resume_schedule`.
    """

    name: str
    workflow: str
    cron: str
    timezone: str
    catch_up: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    due: datetime | None
    is_paused: bool = False


def schedule(
    store: Store,
    name: str,
    workflow: Workflow,
    /,
    *args: Any,
    cron: str,
    timezone: str = "UTC",
    catch_up: CatchUp = "latest",
    queue: str = DEFAULT_QUEUE,
    **kwargs: Any,
) -> Schedule:
    """Let workers begin a run of a workflow at each time of a cron expression. The ids of the runs are `NAME:TIME`.

    Each time begins exactly one run, such as `nightly:2026-11-27T03:00Z` (in UTC), even with several workers or after
    crashes. A repeated call changes the schedule only if an argument differs. The schedule then continues from the last
    time that was handled; with a new `cron` or `timezone`, it continues from now. A paused schedule stays paused. If
    the clock was ahead and was set back, the schedule continues from now.

    Args:
        store: the store.
        name: the name of the schedule.
        workflow: a workflow that is declared by `@workflow`.
        *args: arguments for the workflow, which are stored.
        cron: five fields: minute, hour, day of the month, month, day of the week.
        timezone: the time zone of the cron expression: "Europe/Berlin".
        catch_up: which of the times that passed without a worker begin a run: "none", the "latest", or "all".
        queue: the queue of its runs.
        **kwargs: arguments for the workflow, which are stored.

    Raises:
        UsageError: an argument is not valid, the workflow does not accept its arguments, or `cronsim` is not installed.
        ValueTypeError, LimitError: an argument of the workflow cannot be stored.
        SecretError: the name or the queue contains a secret.
    """
    made = check_workflow(workflow)
    key = schedule_key(name)
    check_queue(queue)
    check_cron(cron, timezone)
    if catch_up not in get_args(CatchUp):
        message = f"catch_up must be one of {', '.join(get_args(CatchUp))}, not {catch_up!r}"
        raise UsageError(message, argument="catch_up", value=catch_up)
    check_arguments(made, args, kwargs)
    check_names(store, queue)
    item = guarded(
        store, arguments_item(f"workflow {made.name!r}", made.function, args, kwargs, (), skip=1), "arguments"
    )
    stored_args, stored_kwargs = decode(item)
    says = {
        "name": name,
        "workflow": made.name,
        "cron": cron,
        "timezone": timezone,
        "catch_up": catch_up,
        "queue": queue,
        "args": stored_args,
        "kwargs": stored_kwargs,
        "item": bytes(item),
    }

    def work(tx: Any) -> dict[str, Any]:
        entry = board_of(store).get(key)
        held = {} if entry is None else entry.value
        is_same_time = held.get("cron") == cron and held.get("timezone") == timezone
        value = {**says, "last": _seen_us(held) if is_same_time else clock().now_us()}
        if held.get("paused"):
            value["paused"] = True
        if value != held:
            version = 0 if entry is None else entry.version
            board_of(tx).cas(key, value, expected_version=version, delay_s=_delay_s(value))
        return value

    return _schedule_of(retried(store, work))


def unschedule(store: Store, name: str) -> bool:
    """Delete a schedule. Return False if there is no such schedule. Runs that have begun continue."""
    return board_of(store).delete(schedule_key(name))


def pause_schedule(store: Store, name: str) -> bool:
    """Pause a schedule until `resume_schedule`. Return False if it was already paused. Runs that have begun continue.

    Raises:
        NotFoundError: there is no such schedule. Facts: schedule.
    """
    return _set_paused(store, name, is_paused=True)


def resume_schedule(store: Store, name: str) -> bool:
    """Resume a paused schedule. Return False if it was not paused. Times during the pause do not begin runs.

    Raises:
        NotFoundError: there is no such schedule. Facts: schedule.
    """
    return _set_paused(store, name, is_paused=False)


def _set_paused(store: Store, name: str, *, is_paused: bool) -> bool:
    key = schedule_key(name)

    def work(tx: Any) -> bool:
        entry = board_of(store).get(key)
        if entry is None:
            raise NotFoundError(f"there is no schedule {name!r} in this store", schedule=name)
        if bool(entry.value.get("paused")) is is_paused:
            return False
        value = {name: each for name, each in entry.value.items() if name != "paused"}
        value |= {"paused": True} if is_paused else {"last": clock().now_us()}
        board_of(tx).cas(key, value, expected_version=entry.version, delay_s=_delay_s(value))
        return True

    is_changed: bool = retried(store, work)
    return is_changed


def schedules(store: Store) -> list[Schedule]:
    """Return the schedules of a store, sorted by name."""
    return [_schedule_of(entry.value) for entry in board_of(store).list("durable/schedules/*")]


def _schedule_of(value: Mapping[str, Any]) -> Schedule:
    return Schedule(
        name=value["name"],
        workflow=value["workflow"],
        cron=value["cron"],
        timezone=value["timezone"],
        catch_up=value["catch_up"],
        queue=value["queue"],
        args=tuple(value["args"]),
        kwargs=dict(value["kwargs"]),
        due=_due_of(value),
        is_paused=bool(value.get("paused")),
    )


def _seen_us(value: Mapping[str, Any]) -> int:
    """Return the time up to which a schedule has begun its runs.

    If the stored time is in the future, it was written while the clock was ahead. Then the result is a minute ago: the
    moment at which the clock was set back is not known, so a run that was due in the last minute may not have begun. A
    run cannot begin twice, because its id is fixed.
    """
    last_us: int = value["last"]
    now_us = clock().now_us()
    return now_us - round(GRACE_S * 1e6) if last_us > now_us else last_us


def _due_of(value: Mapping[str, Any]) -> datetime | None:
    if value.get("paused"):
        return None
    return next_time(value["cron"], value["timezone"], moment_of(_seen_us(value)))


def _delay_s(value: Mapping[str, Any]) -> float | None:
    """Return the delay in seconds until a schedule is next due, or None if it is due now."""
    due = _due_of(value)
    return FAR_S if due is None else delay_of(round(due.timestamp() * 1e6))


# --- what workers do --------------------------------------------------------------------------


def begin_due(store: Store, claim: Claim) -> None:
    """Begin the due runs of a claimed schedule, and delay its entry until the next time."""

    def work(tx: Any) -> None:
        entry = board_of(store).get(claim.key)
        if entry is None:
            return
        value, until = entry.value, now()
        if value.get("paused"):
            return
        how = (value["cron"], value["timezone"], moment_of(_seen_us(value)), until, value["catch_up"])
        times = due_times(*how, _AT_ONCE, grace_s=GRACE_S)
        for each in times:
            run = f"{value['name']}:{each:%Y-%m-%dT%H:%MZ}"
            if board_of(store).get(run_key(run)) is None:
                args = value["args"], value["kwargs"]
                start = Start(value["workflow"], value["item"], *args, run, run, queue=value["queue"])
                stage_create(tx, store, start)
        last = times[-1] if len(times) == _AT_ONCE else until
        value = {**value, "last": round(last.timestamp() * 1e6)}
        board = board_of(tx)
        board.delete(claim.key, expected_version=entry.version, fence=claim)
        board.create(claim.key, value, delay_s=_delay_s(value))

    try:
        retried(store, work)
    except LeaseLostError:  # The schedule was deleted, or another worker has claimed it.
        return
    except StatelogError as error:
        _log.warning("schedule %s could not begin its runs: %s", claim.key.rpartition("/")[2], error.message)
        claim.fail(error, retry_in_s=_TRIED_AGAIN_S)


def follow_clock(store: Store) -> None:
    """If the last handled time of a schedule is in the future, because the clock was set back, continue it from now.

    Otherwise, the entry of the schedule would wait for that time, and no worker would claim it.
    """
    board, now_us = board_of(store), clock().now_us()
    for entry in board.list("durable/schedules/*"):
        if entry.value["last"] <= now_us:
            continue
        value = {**entry.value, "last": _seen_us(entry.value)}
        try:
            board.cas(entry.key, value, expected_version=entry.version, delay_s=_delay_s(value))
        except ConflictError:  # Another worker has already corrected the schedule.
            continue
        except StatelogError as error:
            _log.warning("schedule %s cannot follow the clock: %s", entry.key.rpartition("/")[2], error.message)


# --- what there is to do --------------------------------------------------------------------------


def next_due(store: Store, *, outbox: bool = False) -> datetime | None:
    """Return the time at which a worker next has something to do, so that a program can start workers on demand.

    The result is the current time if there is work now, and None if there is no work until an event happens. Claimed
    work is due at the end of its lease, because its process may have died by then.

    Args:
        store: the store.
        outbox: True to include waiting messages, for workers that are given an `outbox`.
    """
    board, at = board_of(store), now()
    if any(moment_of(entry.value["last"]) > at for entry in board.list("durable/schedules/*")):
        return at  # A worker must correct the schedule now. See `follow_clock`.
    patterns = ["durable/tasks/**", "durable/schedules/*", "durable/deadlines/*"]
    patterns += ["durable/deliver/*"] if outbox else []
    found = [due for pattern in patterns for entry in board.list(pattern) if (due := _due(entry, at)) is not None]
    return min(found, default=None)


def _due(entry: Entry, at: datetime) -> datetime | None:
    due = max(entry.ready or at, at)
    if entry.claim is not None:
        due = max(due, entry.claim.expires)
    is_never = due - at > timedelta(seconds=FAR_S / 2)
    return None if is_never else due
