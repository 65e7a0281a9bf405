"""Durable execution: steps that run once, sagas that undo, gates that wait for a person. See GUIDE.md here."""

from statelog.durable.branches import Branch
from statelog.durable.control import Gate, answer, cancel, gates, get_event, resume, send
from statelog.durable.delivering import Delivery, deliver
from statelog.durable.forking import StepInfo, check, fork, purge, steps
from statelog.durable.outbox import Message, outbox, redeliver
from statelog.durable.run import Run
from statelog.durable.runs import RunInfo, get, runs
from statelog.durable.starting import Handle, resume_all, run, start
from statelog.durable.steps import StepContext, current_step
from statelog.durable.streams import Chunk, stream
from statelog.durable.subscribing import subscription
from statelog.durable.waits import Answer
from statelog.durable.webhook import Webhook
from statelog.durable.workers import work
from statelog.durable.workflows import UNKNOWN, Abort, Cancelled, Retry, Workflow, step, workflow

__all__ = [
    "UNKNOWN",
    "Abort",
    "Answer",
    "Branch",
    "Cancelled",
    "Chunk",
    "Delivery",
    "Gate",
    "Handle",
    "Message",
    "Retry",
    "Run",
    "RunInfo",
    "StepContext",
    "StepInfo",
    "Webhook",
    "Workflow",
    "answer",
    "cancel",
    "check",
    "current_step",
    "deliver",
    "fork",
    "gates",
    "get",
    "get_event",
    "outbox",
    "purge",
    "redeliver",
    "resume",
    "resume_all",
    "run",
    "runs",
    "send",
    "start",
    "step",
    "steps",
    "stream",
    "subscription",
    "work",
    "workflow",
]
