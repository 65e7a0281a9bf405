"""Durable execution on the event loop. It has the names of `statelog.durable`, and its functions are awaited.

    @durable.workflow
    async def trip(run: durable.Run, request):
        plan = await run.step_with(durable.StepOptions(timeout_s=60), ask_model, request)
        async with asyncio.TaskGroup() as group:  # Each task numbers its own calls.
            flight = group.create_task(book(run, "flight", plan))
            hotel = group.create_task(book(run, "hotel", plan))
        return await run.step(charge, flight.result(), hotel.result())

    info = await durable.run(store, trip, request, id="evt-991")  # `store` is a store of statelog.aio.

Workflows and steps may be `async def` or ordinary functions. Ordinary functions are called in OS threads, so they do
not block the event loop. A workflow may await operations of its run, timers of the event loop, and tasks that await
only these. Anything else might not be the same on replay. When all tasks of a workflow have long waits, the run is
suspended, and its tasks are cancelled.
"""

from typing import TYPE_CHECKING

from statelog.aio.durable.blocks import EnteredRun, entered
from statelog.aio.durable.control import StepContext, check_replay, current_step, deliver, fork, get_event, stream
from statelog.aio.durable.generated import (
    answer,
    cancel,
    compare_runs,
    gates,
    get_run,
    next_due,
    outbox,
    pause_schedule,
    purge_run,
    queues,
    redeliver,
    resume,
    resume_schedule,
    retry,
    runs,
    schedule,
    schedules,
    send,
    steps,
    unschedule,
)
from statelog.aio.durable.starts import Handle, resume_all, run, start
from statelog.aio.durable.workers import run_worker
from statelog.deprecated import DURABLE_NAMES, old_names
from statelog.durable import (
    UNKNOWN,
    Abort,
    Answer,
    Branch,
    Cancelled,
    Chunk,
    Delivery,
    FailedAttempt,
    Gate,
    Message,
    Queue,
    QueueInfo,
    Retry,
    RunDifference,
    RunInfo,
    Schedule,
    Step,
    StepInfo,
    StepOptions,
    Webhook,
    Workflow,
    step,
    subscription,
    workflow,
)
from statelog.late import listing

if TYPE_CHECKING:
    from statelog.aio.durable.operations import Run
else:
    from statelog.durable import Run

__all__ = [
    "UNKNOWN",
    "Abort",
    "Answer",
    "Branch",
    "Cancelled",
    "Chunk",
    "Delivery",
    "EnteredRun",
    "FailedAttempt",
    "Gate",
    "Handle",
    "Message",
    "Queue",
    "QueueInfo",
    "Retry",
    "Run",
    "RunDifference",
    "RunInfo",
    "Schedule",
    "Step",
    "StepContext",
    "StepInfo",
    "StepOptions",
    "Webhook",
    "Workflow",
    "answer",
    "cancel",
    "check_replay",
    "compare_runs",
    "current_step",
    "deliver",
    "entered",
    "fork",
    "gates",
    "get_event",
    "get_run",
    "next_due",
    "outbox",
    "pause_schedule",
    "purge_run",
    "queues",
    "redeliver",
    "resume",
    "resume_all",
    "resume_schedule",
    "retry",
    "run",
    "run_worker",
    "runs",
    "schedule",
    "schedules",
    "send",
    "start",
    "step",
    "steps",
    "stream",
    "subscription",
    "unschedule",
    "workflow",
]

__getattr__, __dir__ = old_names(__name__, DURABLE_NAMES), listing(__name__)
