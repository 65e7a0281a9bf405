"""Durable execution: steps that run once, compensations that undo them, gates that wait for a person. See GUIDE.md."""

from statelog.deprecated import DURABLE_NAMES, old_names
from statelog.durable.blocks import EnteredRun, entered
from statelog.durable.branches import Branch
from statelog.durable.comparison import RunDifference, compare_runs
from statelog.durable.control import Gate, answer, cancel, gates, get_event, resume, send
from statelog.durable.delivery import Delivery, deliver
from statelog.durable.forks import FailedAttempt, StepInfo, check_replay, fork, purge_run, steps
from statelog.durable.infos import RunInfo, get_run, runs
from statelog.durable.outbox import Message, outbox, redeliver
from statelog.durable.queues import Queue, QueueInfo, queues
from statelog.durable.retries import retry
from statelog.durable.run import Run
from statelog.durable.schedules import (
    Schedule,
    next_due,
    pause_schedule,
    resume_schedule,
    schedule,
    schedules,
    unschedule,
)
from statelog.durable.starts import Handle, resume_all, run, start
from statelog.durable.steps import StepContext, current_step
from statelog.durable.streams import Chunk, stream
from statelog.durable.subscriptions import subscription
from statelog.durable.waits import Answer
from statelog.durable.webhook import Webhook
from statelog.durable.workers import run_worker
from statelog.durable.workflows import UNKNOWN, Abort, Cancelled, Retry, Step, StepOptions, Workflow, step, workflow
from statelog.late import listing

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
