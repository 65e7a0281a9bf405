"""The event that sets a retention policy, for one thread or for future threads. See `log.care.policies`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import keys
from statelog.format.fields import NO_THREAD, PATTERN, POLICY, THREAD
from statelog.format.record import TYPE_POLICY, Record
from statelog.limits import POLICIES_MAX
from statelog.log.care.policies import PolicyRow, encode_policies, is_one_thread, with_policy, without_id
from statelog.log.events import PolicyEvent
from statelog.log.kinds.kind import Kind, Recent, refuse
from statelog.log.view import View, encode_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.log.index import IndexWriter


def put_policies(index: IndexWriter, rows: Sequence[PolicyRow]) -> None:
    """Replace the index row of the policies for future threads."""
    held = index.get_index(keys.POLICIES_KEY)
    payload = encode_policies(rows) if rows else None
    if payload is None and held is not None:
        index.delete_index(keys.POLICIES_KEY)
    elif payload is not None and payload != held:
        index.put_index(keys.POLICIES_KEY, payload)


def forget_policy(index: IndexWriter, id_digest: bytes) -> None:
    """Remove the policy for a future thread whose id has this part digest."""
    put_policies(index, without_id(index.view.policies(), id_digest))


def _decode(record: Record) -> PolicyEvent:
    event = PolicyEvent(*record.fields())
    if bool(event.thread) is not (event.pattern is None):
        message = "it must have either a thread or a pattern"
        raise ValueError(message)
    if event.pattern is not None and not isinstance(event.pattern, bytes) and is_one_thread(event.pattern):
        message = "it has the id of a thread instead of the id's digest"
        raise ValueError(message)
    return event


def _apply(index: IndexWriter, event: PolicyEvent, lsn: int) -> None:
    if event.pattern is not None:
        put_policies(index, with_policy(index.view.policies(), event.pattern, event.policy))
        return
    index.put_index(keys.encode_thread_event_key(event.thread, lsn), b"")
    row = index.view.thread(event.thread)._replace(policy=event.policy)
    index.put_index(keys.encode_thread_key(event.thread), encode_thread(row))


def describe_pattern(pattern: str | bytes) -> dict[str, str]:
    """Return the pattern of a store policy in the form that users see."""
    return {"pattern": pattern} if isinstance(pattern, str) else {"id_digest": pattern.hex()}


def _describe(_view: View, event: PolicyEvent) -> dict[str, Any]:
    pattern = {} if event.pattern is None else describe_pattern(event.pattern)
    return {"policy": event.policy, **pattern}


def _check(view: View, event: PolicyEvent, lsn: int, _recent: Recent) -> None:
    rows = [] if event.pattern is None else with_policy(view.policies(), event.pattern, event.policy)
    # Do not count policies for a single id: if the first record of a thread was erased, the policy for the thread's id
    # stays until the thread's deletion event.
    if sum(isinstance(row.pattern, str) for row in rows) > POLICIES_MAX:
        refuse(lsn, f"there are more than {POLICIES_MAX} policies")


POLICY_KIND = Kind(
    type=TYPE_POLICY,
    name="policy",
    event=PolicyEvent,
    bodies=((THREAD, POLICY), (NO_THREAD, POLICY, PATTERN)),
    decode=_decode,
    apply=_apply,
    describe=_describe,
    check=_check,
    other_prefixes=(keys.POLICIES_KEY,),
)
