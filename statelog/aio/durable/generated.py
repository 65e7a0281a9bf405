"""Functions of `statelog.aio.durable` that only make a synchronous call on the pool.

`python .ci/aio.py` generates this file from the synchronous API. Do not edit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog import durable
from statelog.aio.durable.starts import on_pool
from statelog.durable.runs import DEFAULT_QUEUE

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.aio.store import Store
    from statelog.durable.comparison import RunDifference
    from statelog.durable.control import Gate
    from statelog.durable.cron import CatchUp
    from statelog.durable.forks import StepInfo
    from statelog.durable.infos import RunInfo
    from statelog.durable.outbox import Message
    from statelog.durable.queues import QueueInfo
    from statelog.durable.schedules import Schedule
    from statelog.durable.workflows import Workflow


async def answer(store: Store, gate_id: str, *, approved: bool, payload: Any = None, by: str | None = None) -> Gate:
    """Answer a gate. A worker wakes up and continues the run. Without a worker, `durable.run` continues the run.

    See `statelog.durable.answer`.
    """
    return await on_pool(store, durable.answer, gate_id, approved=approved, payload=payload, by=by)


async def cancel(store: Store, run: str) -> bool:
    """Cancel a run and its children. Return False if the run has ended.

    See `statelog.durable.cancel`. An async step that is being called is interrupted.
    """
    return await on_pool(store, durable.cancel, run)


async def compare_runs(store: Store, run: str, other: str) -> list[RunDifference]:
    """Return the differences between two runs, in order. The list is empty if the runs did the same.

    See `statelog.durable.compare_runs`.
    """
    return await on_pool(store, durable.compare_runs, run, other)


async def gates(store: Store, *, pending: bool | None = None, run: str | None = None) -> list[Gate]:
    """Return the gates of a store, the oldest first. See `statelog.durable.gates`."""
    return await on_pool(store, durable.gates, pending=pending, run=run)


async def get_run(store: Store, run: str) -> RunInfo:
    """Return the state of a run. See `statelog.durable.get_run`."""
    return await on_pool(store, durable.get_run, run)


async def next_due(store: Store, *, outbox: bool = False) -> datetime | None:
    """Return the time at which a worker next has something to do, so that a program can start workers on demand.

    See `statelog.durable.next_due`.
    """
    return await on_pool(store, durable.next_due, outbox=outbox)


async def outbox(store: Store, *, parked: bool | None = None) -> list[Message]:
    """Return the messages that have not left the outbox, in the order in which they were emitted.

    See `statelog.durable.outbox`.
    """
    return await on_pool(store, durable.outbox, parked=parked)


async def pause_schedule(store: Store, name: str) -> bool:
    """Pause a schedule until `resume_schedule`. Return False if it was already paused. Runs that have begun continue.

    See `statelog.durable.pause_schedule`.
    """
    return await on_pool(store, durable.pause_schedule, name)


async def purge_run(store: Store, run: str) -> None:
    """Remove an ended run with its gates, events, messages and streams, in one commit. Its thread stays.

    See `statelog.durable.purge_run`.
    """
    await on_pool(store, durable.purge_run, run)


async def queues(store: Store) -> list[QueueInfo]:
    """Return the queues that have runs, sorted by name. See `statelog.durable.queues`."""
    return await on_pool(store, durable.queues)


async def redeliver(store: Store, run: str, place: str) -> None:
    """Put a parked message back into the outbox, before later messages of its run. Its attempts start from zero.

    See `statelog.durable.redeliver`.
    """
    await on_pool(store, durable.redeliver, run, place)


async def resume(store: Store, run: str) -> RunInfo:
    """Continue a parked run, or make a suspended run check its waits now. A worker or `durable.run` then drives it.

    See `statelog.durable.resume`.
    """
    return await on_pool(store, durable.resume, run)


async def resume_schedule(store: Store, name: str) -> bool:
    """Resume a paused schedule. Return False if it was not paused. Times during the pause do not begin runs.

    See `statelog.durable.resume_schedule`.
    """
    return await on_pool(store, durable.resume_schedule, name)


async def retry(store: Store, run: str) -> RunInfo:
    """Continue a failed run from its recorded steps, after a repair of its code or of a service that it uses.

    See `statelog.durable.retry`.
    """
    return await on_pool(store, durable.retry, run)


async def runs(
    store: Store, *, status: str | None = None, workflow: str | None = None, thread: str | None = None
) -> list[RunInfo]:
    """Return the runs of a store, the oldest first. See `statelog.durable.runs`."""
    return await on_pool(store, durable.runs, status=status, workflow=workflow, thread=thread)


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
    """Let workers begin a run of a workflow at each time of a cron expression. The ids of the runs are `NAME:TIME`.

    See `statelog.durable.schedule`.
    """
    return await on_pool(
        store,
        durable.schedule,
        name,
        workflow,
        *args,
        cron=cron,
        timezone=timezone,
        catch_up=catch_up,
        queue=queue,
        **kwargs,
    )


async def schedules(store: Store) -> list[Schedule]:
    """Return the schedules of a store, sorted by name. See `statelog.durable.schedules`."""
    return await on_pool(store, durable.schedules)


async def send(
    store: Store, run: str, message: Any, *, topic: str = "default", idempotency_key: str | None = None
) -> None:
    """Send a message to a run. The message is kept until the run receives it, or ends. See `statelog.durable.send`."""
    await on_pool(store, durable.send, run, message, topic=topic, idempotency_key=idempotency_key)


async def steps(store: Store, run: str) -> list[StepInfo]:
    """Return the recorded calls of a run, in the order of recording. For an ended run, return the calls at its end.

    See `statelog.durable.steps`.
    """
    return await on_pool(store, durable.steps, run)


async def unschedule(store: Store, name: str) -> bool:
    """Delete a schedule. Return False if there is no such schedule. Runs that have begun continue.

    See `statelog.durable.unschedule`.
    """
    return await on_pool(store, durable.unschedule, name)
