"""JSON documents that the command line and the inspector share. They contain everything except values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.durable import Gate, RunInfo, StepInfo
    from statelog.store.claims import LeaseInfo
    from statelog.store.entries import Entry


def iso(time: datetime | None) -> str | None:
    """Return a time in ISO 8601 format, or None for None."""
    return None if time is None else time.isoformat()


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return the document of a board entry, without its value and without claim fields."""
    return {
        "key": entry.key,
        "version": entry.version,
        "kind": entry.kind,
        "created": entry.created.isoformat(),
        "time": entry.time.isoformat(),
        "agent": entry.agent,
        "expires": iso(entry.expires),
    }


def claim_document(entry: Entry) -> dict[str, Any] | None:
    """Return the document of an entry's claim, or None if nobody has claimed the entry."""
    claim = entry.claim
    if claim is None:
        return None
    return {"token": claim.token, "holder": claim.holder, "expires": claim.expires.isoformat()}


def lease_document(lease: LeaseInfo) -> dict[str, Any]:
    """Return the document of a lease."""
    return {
        "name": lease.name,
        "token": lease.token,
        "holder": lease.holder,
        "acquired": lease.acquired.isoformat(),
        "expires": lease.expires.isoformat(),
        "is_over": lease.is_over,
    }


def run_document(info: RunInfo) -> dict[str, Any]:
    """Return the document of a run, without its arguments, value and traceback."""
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
        "created": info.created.isoformat(),
        "ended": iso(info.ended),
        "due": iso(info.due),
        "waiting_for": list(info.waiting_for),
        "error": info.error,
        "parked": list(info.parked),
        "forked_from": info.forked_from,
        "forked_at": info.forked_at,
    }


def step_document(step: StepInfo) -> dict[str, Any]:
    """Return the document of a step that a run has recorded, without its result."""
    return {
        "place": step.place,
        "kind": step.kind,
        "name": step.name,
        "status": step.status,
        "is_compensation": step.is_compensation,
        "version": step.version,
        "error": step.error,
        "attempts": step.attempts,
        "failed_attempts": [
            {"number": each.number, "error": each.error, "time": each.time.isoformat(), "next": each.next.isoformat()}
            for each in step.failed_attempts
        ],
        "began": step.began.isoformat(),
        "ended": iso(step.ended),
        "child": step.child,
    }


def gate_document(gate: Gate) -> dict[str, Any]:
    """Return the document of a gate, without its payload."""
    return {
        "id": gate.id,
        "name": gate.name,
        "run": gate.run,
        "thread": gate.thread,
        "status": gate.status,
        "opened": gate.opened.isoformat(),
        "due": iso(gate.due),
        "approved": gate.approved,
        "by": gate.by,
    }
