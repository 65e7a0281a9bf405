"""Queues, schedules and the outbox, on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.aio.bridge import ended, in_thread
from statelog.aio.durable.starts import on_pool
from statelog.durable.delivery import deliver as send_out
from statelog.durable.outbox import outbox as list_outbox
from statelog.durable.outbox import redeliver as put_back
from statelog.durable.queues import queues as list_queues
from statelog.durable.runs import DEFAULT_QUEUE
from statelog.durable.schedules import next_due as find_next_due
from statelog.durable.schedules import pause_schedule as pause
from statelog.durable.schedules import resume_schedule as resume
from statelog.durable.schedules import schedule as make_schedule
from statelog.durable.schedules import schedules as found_schedules
from statelog.durable.schedules import unschedule as drop_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from statelog.aio.store import Store
    from statelog.durable.cron import CatchUp
    from statelog.durable.delivery import Delivery
    from statelog.durable.outbox import Message
    from statelog.durable.queues import QueueInfo
    from statelog.durable.schedules import Schedule
    from statelog.durable.workflows import Workflow


async def queues(store: Store) -> list[QueueInfo]:
    """See `statelog.durable.queues`."""
    found: list[QueueInfo] = await on_pool(store, list_queues)
    return found


async def schedule(
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
    """See `statelog.durable.schedule`."""
    how: dict[str, Any] = {"cron": cron, "timezone": timezone, "catch_up": catch_up, "queue": queue}
    made: Schedule = await on_pool(store, make_schedule, name, workflow, *args, **how, **kwargs)
    return made


async def unschedule(store: Store, name: str) -> bool:
    """See `statelog.durable.unschedule`."""
    was_there: bool = await on_pool(store, drop_schedule, name)
    return was_there


async def pause_schedule(store: Store, name: str) -> bool:
    """See `statelog.durable.pause_schedule`."""
    is_changed: bool = await on_pool(store, pause, name)
    return is_changed


async def resume_schedule(store: Store, name: str) -> bool:
    """See `statelog.durable.resume_schedule`."""
    is_changed: bool = await on_pool(store, resume, name)
    return is_changed


async def list_schedules(store: Store) -> list[Schedule]:
    """See `statelog.durable.schedules`."""
    found: list[Schedule] = await on_pool(store, found_schedules)
    return found


async def next_due(store: Store, *, outbox: bool = False) -> datetime | None:
    """See `statelog.durable.next_due`."""
    found: datetime | None = await on_pool(store, find_next_due, outbox=outbox)
    return found


async def outbox(store: Store, *, parked: bool | None = None) -> list[Message]:
    """See `statelog.durable.outbox`."""
    found: list[Message] = await on_pool(store, list_outbox, parked=parked)
    return found


async def redeliver(store: Store, run: str, place: str) -> None:
    """See `statelog.durable.redeliver`."""
    await on_pool(store, put_back, run, place)


async def deliver(store: Store, subscribers: Iterable[Any], *, run: str | None = None, wait: bool = False) -> Delivery:
    """See `statelog.durable.deliver`. Subscribers are called in an OS thread. A cancelled task waits for its end."""
    delivery = in_thread(lambda: send_out(store.sync, subscribers, run=run, wait=wait))
    await ended(delivery)
    return delivery.result()
