"""JSON documents of the public objects: the format that `--json` promises."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from statelog import documents
from statelog.cli.paths import format_path
from statelog.cli.values import to_json

if TYPE_CHECKING:
    from statelog import Change, Checkpoint, Entry, Event
    from statelog.durable import Delivery, Gate, Message, RunDifference, RunInfo, Schedule, StepInfo
    from statelog.log.reader import LogRecord
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

    If `has_value` is False, the value is left out, because the entry was listed without its value.
    """
    document = documents.entry_document(entry)
    if has_value:
        document["value"] = to_json(entry.value)
    if entry.claim is not None:
        document["claim"] = documents.claim_document(entry)
    if entry.priority:
        document["priority"] = entry.priority
    if entry.attempts:
        document["attempts"] = entry.attempts
    if entry.error is not None:
        document["error"] = entry.error
    if entry.schema_version > 1:
        document["schema_version"] = entry.schema_version
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


def run_document(info: RunInfo) -> dict[str, Any]:
    """Return the JSON document of a run."""
    return {
        **documents.run_document(info),
        "args": to_json(list(info.args)),
        "kwargs": to_json(info.kwargs),
        "value": to_json(info.value),
        "traceback": info.traceback,
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
    return {**documents.step_document(step), "result": to_json(step.result)}


def gate_document(gate: Gate) -> dict[str, Any]:
    """Return the JSON document of a gate and its answer."""
    return {**documents.gate_document(gate), "payload": to_json(gate.payload)}


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
        "due": documents.iso(message.due),
    }


def status_of(message: Message) -> str:
    """Return "waiting" or "parked", the status of a message."""
    return "parked" if message.is_parked else "waits"


def delivery_document(delivery: Delivery) -> dict[str, Any]:
    """Return the JSON document of a delivery's counts."""
    return {**asdict(delivery), "due": documents.iso(delivery.due)}


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
        "due": documents.iso(schedule.due),
        "is_paused": schedule.is_paused,
    }
