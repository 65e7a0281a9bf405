"""JSON documents of the public objects: the format that `--json` promises."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from statelog.cli.paths import format_path
from statelog.cli.values import to_json

if TYPE_CHECKING:
    from datetime import datetime

    from statelog import Change, Checkpoint, Entry, Event
    from statelog.durable import Delivery, Gate, Message, RunDifference, RunInfo, Schedule, StepInfo
    from statelog.log.reader import LogRecord
    from statelog.store.claims import LeaseInfo
    from statelog.store.statistics import StoreStatistics
    from statelog.store.thread_info import ThreadInfo


def thread_document(info: ThreadInfo) -> dict[str, Any]:
    """Return the JSON document of a thread."""
    return {
        "id": info.id,
        "created": info.created.isoformat(),
        "branches": info.branches,
        "versions": info.versions,
        "channels": info.channels,
        "policy": info.policy,
        **({} if info.schema is None else {"schema": info.schema}),
    }


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the JSON document of a checkpoint, without its state."""
    return {
        "thread": checkpoint.thread_id,
        "branch": checkpoint.branch,
        "version": checkpoint.version,
        "id": checkpoint.id,
        "lsn": checkpoint.lsn,
        "time": checkpoint.time.isoformat(),
        "kind": checkpoint.kind,
        "channels": list(checkpoint.channels_written),
        "metadata": to_json(checkpoint.metadata),
        **({} if checkpoint.schema_version == 1 else {"schema_version": checkpoint.schema_version}),
        "digest": checkpoint.digest,
        "state_digest": checkpoint.state_digest,
    }


def record_document(record: LogRecord) -> dict[str, Any]:
    """Return the JSON document of a record of the log."""
    return {
        "lsn": record.lsn,
        "type": record.type,
        "time": record.time.isoformat(),
        "thread": record.thread_id,
        "body": to_json(record.body),
        "size_bytes": record.size_bytes,
        "digest": record.digest,
        "previous_digest": record.previous_digest,
        "continues": record.continues,
    }


def change_document(change: Change) -> dict[str, Any]:
    """Return the JSON document of a change. `old` and `new` are only included if they exist."""
    document: dict[str, Any] = {"path": format_path(change.path), "steps": list(change.path), "kind": change.kind}
    if change.kind != "added":
        document["old"] = to_json(change.old)
    if change.kind != "removed":
        document["new"] = to_json(change.new)
    return document


def statistics_document(statistics: StoreStatistics) -> dict[str, Any]:
    """Return the JSON document of a store's sizes and counts."""
    return {
        **asdict(statistics),
        "readers_by_process": [reader._asdict() for reader in statistics.readers_by_process],
        "tables": {name: {**table._asdict(), "pages": table.pages} for name, table in statistics.tables.items()},
        "records_are_estimated": statistics.records_are_estimated,
        "snapshots_are_estimated": statistics.snapshots_are_estimated,
        "sharing_is_estimated": statistics.sharing_is_estimated,
        "reclaimable_size_bytes": statistics.reclaimable_size_bytes,
        "dedup_ratio": statistics.dedup_ratio,
    }


def entry_document(entry: Entry, *, has_value: bool = True) -> dict[str, Any]:
    """Return an entry of the board as a JSON document. Fields of claims are only included if they are set.

    Without `has_value`, the value is left out, because the entry was listed without its value.
    """
    document: dict[str, Any] = {
        "key": entry.key,
        **({"value": to_json(entry.value)} if has_value else {}),
        "version": entry.version,
        "kind": entry.kind,
        "created": entry.created.isoformat(),
        "time": entry.time.isoformat(),
        "agent": entry.agent,
        "expires": None if entry.expires is None else entry.expires.isoformat(),
    }
    if entry.claim is not None:
        claim = entry.claim
        document["claim"] = {"token": claim.token, "holder": claim.holder, "expires": claim.expires.isoformat()}
    if entry.priority:
        document["priority"] = entry.priority
    if entry.attempts:
        document["attempts"] = entry.attempts
    if entry.error is not None:
        document["error"] = entry.error
    return document


def event_document(event: Event) -> dict[str, Any]:
    """Return the JSON document of a board event."""
    return {
        "kind": event.kind,
        "key": event.key,
        "old": to_json(event.old),
        "new": to_json(event.new),
        "version": event.version,
        "cursor": event.cursor,
        "agent": event.agent,
        "time": None if event.time is None else event.time.isoformat(),
        "more": event.more,
    }


def lease_document(lease: LeaseInfo) -> dict[str, Any]:
    """Return the JSON document of a lease."""
    return {
        "name": lease.name,
        "token": lease.token,
        "holder": lease.holder,
        "acquired": lease.acquired.isoformat(),
        "expires": lease.expires.isoformat(),
        "is_over": lease.is_over,
    }


def run_document(info: RunInfo) -> dict[str, Any]:
    """Return the JSON document of a run."""
    return {
        "id": info.id,
        "workflow": info.workflow,
        "status": info.status,
        "thread": info.thread,
        "branch": info.branch,
        "queue": info.queue,
        "priority": info.priority,
        "attempts": info.attempts,
        "parent": info.parent,
        "args": to_json(list(info.args)),
        "kwargs": to_json(info.kwargs),
        "created": info.created.isoformat(),
        "ended": _iso(info.ended),
        "due": _iso(info.due),
        "waiting_for": list(info.waiting_for),
        "value": to_json(info.value),
        "error": info.error,
        "traceback": info.traceback,
        "parked": list(info.parked),
        "forked_from": info.forked_from,
        "forked_at": info.forked_at,
        "replaced": to_json(info.replaced),
    }


def difference_document(difference: RunDifference) -> dict[str, Any]:
    """Return the JSON document of a difference between two runs."""
    return {
        "place": difference.place,
        "what": difference.what,
        "left": None if difference.left is None else step_document(difference.left),
        "right": None if difference.right is None else step_document(difference.right),
    }


def step_document(step: StepInfo) -> dict[str, Any]:
    """Return the JSON document of a recorded step."""
    return {
        "place": step.place,
        "kind": step.kind,
        "name": step.name,
        "status": step.status,
        "is_compensation": step.is_compensation,
        "result": to_json(step.result),
        "error": step.error,
        "attempts": step.attempts,
        "failed_attempts": [
            {"number": each.number, "error": each.error, "time": each.time.isoformat(), "next": each.next.isoformat()}
            for each in step.failed_attempts
        ],
        "began": step.began.isoformat(),
        "ended": _iso(step.ended),
        "child": step.child,
    }


def gate_document(gate: Gate) -> dict[str, Any]:
    """Return the JSON document of a gate and its answer."""
    return {
        "id": gate.id,
        "name": gate.name,
        "run": gate.run,
        "thread": gate.thread,
        "payload": to_json(gate.payload),
        "status": gate.status,
        "opened": gate.opened.isoformat(),
        "due": _iso(gate.due),
        "approved": gate.approved,
        "by": gate.by,
    }


def message_document(message: Message) -> dict[str, Any]:
    """Return the JSON document of an emitted message."""
    return {
        "id": message.id,
        "topic": message.topic,
        "payload": to_json(message.payload),
        "run": message.run,
        "place": message.place,
        "thread": message.thread,
        "branch": message.branch,
        "checkpoint": message.checkpoint,
        "gate": message.gate,
        "time": message.time.isoformat(),
        "status": status_of(message),
        "attempts": message.attempts,
        "error": message.error,
        "due": _iso(message.due),
    }


def status_of(message: Message) -> str:
    """Return "waiting" or "parked", the status of a message."""
    return "parked" if message.is_parked else "waits"


def delivery_document(delivery: Delivery) -> dict[str, Any]:
    """Return the JSON document of a delivery's counts."""
    return {**asdict(delivery), "due": _iso(delivery.due)}


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON document of a schedule."""
    return {
        "name": schedule.name,
        "workflow": schedule.workflow,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "queue": schedule.queue,
        "args": to_json(list(schedule.args)),
        "kwargs": to_json(schedule.kwargs),
        "due": _iso(schedule.due),
        "is_paused": schedule.is_paused,
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
