"""Schedules: runs that begin at the times of a cron expression, each time one, whoever looks; and when to look next."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

from statelog.durable.clock import clock, moment_of, now
from statelog.durable.cron import CatchUp, check_cron, due_times, next_time
from statelog.durable.naming import check_queue, run_key, schedule_key
from statelog.durable.runs import DEFAULT_QUEUE, FAR_S, Start, board_of, delay_of, retried, stage_create
from statelog.durable.values import arguments_item, decode
from statelog.durable.workflows import check_workflow
from statelog.errors import LeaseLostError, StatelogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_log = logging.getLogger("statelog.durable")

GRACE_S: Final = 60.0
"""With `catch_up="none"` a time is missed if no worker has looked for so long."""
_AT_ONCE: Final = 50
"""So many runs begin in one commit."""
_TRIED_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When runs of a workflow begin.

    Attributes:
        due: the next time, None: there is none any more.

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
    """Have a run of a workflow begin at each time of a cron expression, in a worker. The id tells which: `NAME:TIME`.

    Each time begins one run, `nightly:2026-11-27T03:00Z` (in UTC), whichever workers look, and whatever crashes. The
    same call again changes nothing; with something else it changes that. It goes on from the time that was seen to
    last, but with another `cron` or `timezone` from now.

    Args:
        store: the store.
        name: of the schedule.
        workflow: declared by `@workflow`.
        *args: for the workflow; stored.
        cron: five fields: minute, hour, day of the month, month, day of the week.
        timezone: whose clocks it speaks of: "Europe/Berlin".
        catch_up: which times begin a run that passed while no worker looked: "none", the "latest" one, or "all".
        queue: in which its runs wait.
        **kwargs: for the workflow; stored.

    Raises:
        UsageError: one of the arguments is none, or `cronsim` is not installed.
        ValueTypeError, LimitError: an argument of the workflow cannot be stored.

    """
    made = check_workflow(workflow)
    key = schedule_key(name)
    check_queue(queue)
    check_cron(cron, timezone)
    if catch_up not in get_args(CatchUp):
        message = f"catch_up is one of {', '.join(get_args(CatchUp))}, not {catch_up!r}"
        raise UsageError(message, argument="catch_up", value=catch_up)
    item = arguments_item(f"workflow {made.name!r}", made.function, args, kwargs, ())
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
        value = {**says, "last": held["last"] if is_same_time else clock().now_us()}
        if value != held:
            version = 0 if entry is None else entry.version
            board_of(tx).cas(key, value, expected_version=version, delay_s=_delay_s(value))
        return value

    return _schedule_of(retried(store, work))


def unschedule(store: Store, name: str) -> bool:
    """End a schedule; False if there was none. Runs that it began go on."""
    return board_of(store).delete(schedule_key(name))


def schedules(store: Store) -> list[Schedule]:
    """Return the schedules of a store, by name."""
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
        due=next_time(value["cron"], value["timezone"], moment_of(value["last"])),
    )


def _delay_s(value: Mapping[str, Any]) -> float | None:
    """Return how long nobody needs to look at a schedule."""
    due = next_time(value["cron"], value["timezone"], moment_of(value["last"]))
    return FAR_S if due is None else delay_of(round(due.timestamp() * 1e6))


# --- what workers do --------------------------------------------------------------------------


def begin_due(store: Store, claim: Claim) -> None:
    """Begin the runs of a claimed schedule that are due, and have it claimed again when the next one is."""

    def work(tx: Any) -> None:
        entry = board_of(store).get(claim.key)
        if entry is None:
            return
        value, until = entry.value, now()
        how = (value["cron"], value["timezone"], moment_of(value["last"]), until, value["catch_up"])
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
    except LeaseLostError:  # it was ended, or another worker has it
        return
    except StatelogError as error:
        _log.warning("schedule %s could not begin its runs: %s", claim.key.rpartition("/")[2], error.message)
        claim.fail(error, retry_in_s=_TRIED_AGAIN_S)


# --- what there is to do --------------------------------------------------------------------------


def next_due(store: Store, *, outbox: bool = False) -> datetime | None:
    """Return when a worker has something to do next: now, if it has now; None: not before something happens.

    A host that starts workers on demand starts one then. What a process works on counts from when its lease ends: if
    that one dies it is to be gone on with.

    Args:
        store: the store.
        outbox: whether messages count that wait for delivery: for workers that are given an `outbox`.

    """
    board, at = board_of(store), now()
    patterns = ["durable/tasks/**", "durable/schedules/*", *(["durable/deliver/*"] if outbox else [])]
    found = [due for pattern in patterns for entry in board.list(pattern) if (due := _due(entry, at)) is not None]
    return min(found, default=None)


def _due(entry: Entry, at: datetime) -> datetime | None:
    due = max(entry.ready or at, at)
    if entry.claim is not None:
        due = max(due, entry.claim.expires)
    is_never = due - at > timedelta(seconds=FAR_S / 2)
    return None if is_never else due
