"""Retention and deletion for `Store.prune`, `set_retention`, `expire` and `delete_thread`."""

from __future__ import annotations

import math
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import ThreadNotFoundError, UsageError
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX
from statelog.log import operations as writer
from statelog.log.care.kept_versions import Keeps, Policy, let_go
from statelog.log.care.loans import lenders_of
from statelog.log.care.retention import erase_records, retain_thread
from statelog.log.care.vacuum import NOBODY, RetentionReport, redact_released
from statelog.log.index import TO_BE_ERASED, redacted_records
from statelog.log.kinds.entries import LEASES_ID, OWN_IDS
from statelog.log.names import check_name
from statelog.store.arguments import check_flag
from statelog.store.writes import check_thread_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from statelog.log.batch import Batch
    from statelog.log.engine import Engine
    from statelog.log.view import ThreadRow, View
    from statelog.store.checkpoint import Checkpoint


_POLICY_NUMBER_MAX = 2**53
"""The maximum number of seconds or versions in a policy."""


def make_policy(keep_last: int | None, max_age: timedelta | float | None, *, keep_tags: bool) -> Policy | None:
    """Convert the arguments of `Store.prune` to a policy. Return None if no rule is given.

    Raises:
        UsageError: an argument is not valid.
    """
    check_flag("keep_tags", keep_tags)
    if keep_last is None and max_age is None:
        return None
    if keep_last is not None and (isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1):
        message = f"keep_last must be a positive int, not {keep_last!r}"
        raise UsageError(message, argument="keep_last", value=keep_last)
    seconds = max_age.total_seconds() if isinstance(max_age, timedelta) else max_age
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 <= seconds < math.inf):
        message = f"max_age must be a timedelta or seconds, not {max_age!r}"
        raise UsageError(message, argument="max_age", value=max_age)
    for argument, number in (("keep_last", keep_last), ("max_age", seconds)):
        if number is not None and number > _POLICY_NUMBER_MAX:
            message = f"{argument} must be at most {_POLICY_NUMBER_MAX}, not {number!r}"
            raise UsageError(message, argument=argument, value=number)
    return Policy(keep_last, seconds, keep_tags)


def prune_threads(engine: Engine, policy: Policy | None, pattern: str, pinned: list[int]) -> RetentionReport:
    """Apply a policy to all threads whose id matches a pattern. Without a policy, apply their stored policies.

    Raises:
        UsageError: there is neither a given nor a stored policy.
    """
    _check_pattern(engine, pattern)
    leases, rows = _rows(engine, pattern)
    if policy is None:
        rows = [row for row in rows if row.policy]
        with engine.read() as view:
            has_policies = bool(view.policies())
        if not rows and not has_policies:
            message = "prune needs keep_last= or max_age=: no thread has a stored policy"
            raise UsageError(message, argument="keep_last", value=None)
    report = _erase_unowned(engine, leases)
    for row in rows:
        applied = Policy(**row.policy) if policy is None else policy
        report.add(retain_thread(engine, row.lsn, applied, pinned))
    return report


def set_policies(engine: Engine, policy: Policy | None, pattern: str) -> RetentionReport:
    """Store and apply a policy for all threads whose id matches a pattern.

    Without a policy, remove the threads' policies.
    """
    _check_pattern(engine, pattern)
    fields = {} if policy is None else policy.to_fields()
    # Store the policy before reading the threads, so that a thread that begins in between also gets it.
    _store(engine, lambda batch: writer.set_store_policy(batch, pattern, fields))
    leases, rows = _rows(engine, pattern)
    report = _erase_unowned(engine, leases)
    for row in rows:
        if row.policy != fields:
            _store(engine, partial(_set_policy, thread=row.lsn, fields=fields))
        if policy is not None:
            report.add(retain_thread(engine, row.lsn, policy, []))
    return report


def _check_pattern(engine: Engine, pattern: str) -> None:
    check_name("pattern of thread ids", pattern, size_bytes_max=THREAD_ID_SIZE_BYTES_MAX)
    engine.store_file.lmdb_file.check_writable()  # Check this even if there is nothing to remove.


def _rows(engine: Engine, pattern: str) -> tuple[int | None, list[ThreadRow]]:
    """Return the LSN of the thread that stores leases, and the rows of the threads whose id matches."""
    with engine.read() as view:
        leases = view.thread_lsn(LEASES_ID)
        return leases, [row for row in view.threads() if fnmatchcase(row.id, pattern) and row.id not in OWN_IDS]


def _erase_unowned(engine: Engine, leases: int | None) -> RetentionReport:
    """Erase leftovers and released leases. Return a report, to which the caller adds the threads."""
    report = erase_leftovers(engine)
    if leases is not None:
        report.add(redact_released(engine, leases))
    report.threads = 0
    return report


def count_due(engine: Engine, thread_id: str, policy: Mapping[str, Any], *, count_max: int) -> int:
    """Count the versions of a thread that a policy would remove now, up to `count_max`. Nothing is written.

    Args:
        engine: the engine of the store.
        thread_id: the thread.
        policy: fields of a policy, as `ThreadInfo.policy` has them.
        count_max: the number at which the count stops.

    Raises:
        ThreadNotFoundError: there is no such thread.
    """
    with engine.read() as view:
        thread = view.thread_lsn(thread_id)
        if thread is None:
            message = f"no thread {thread_id!r} in this store"
            raise ThreadNotFoundError(message, thread=thread_id)
        going = let_go(view, thread, Keeps(view, thread, Policy(**policy), ()))
        return sum(1 for _version in islice(going, count_max))


def expire_checkpoints(engine: Engine, checkpoints: Iterable[Checkpoint]) -> RetentionReport:
    """Remove some checkpoints; see `Store.expire`."""
    by_thread: dict[str, set[int]] = {}
    for checkpoint in checkpoints:
        by_thread.setdefault(checkpoint.thread_id, set()).add(checkpoint.lsn)
    engine.store_file.lmdb_file.check_writable()
    report = RetentionReport()
    for thread_id, lsns in by_thread.items():
        with engine.read() as view:
            thread = view.thread_lsn(thread_id)
        if thread is not None:
            report.add(retain_thread(engine, thread, Policy(only=frozenset(lsns))))
    return report


def _store(engine: Engine, work: Callable[[Batch], None]) -> None:
    """Commit a policy, even in a full store, because retention frees space."""
    engine.commit(work, may_use_reserve=True)


def _set_policy(batch: Batch, *, thread: int, fields: dict[str, object]) -> None:
    if batch.view.is_alive(thread):
        writer.set_policy(batch, thread, fields)


def delete_thread(engine: Engine, thread_id: str) -> RetentionReport:
    """Delete a thread; see `Store.delete_thread`."""
    if thread_id != "":
        check_thread_id(thread_id)
    with engine.read() as view:
        is_alive = view.thread_lsn(thread_id) is not None
        unerased = [dead for dead in view.deleted_lives(thread_id) if _holds_unerased(view, dead)]
    left = RetentionReport()
    for dead in unerased:  # Finish earlier deletions that were interrupted.
        left.add(erase_records(engine, dead))
    if unerased and not is_alive:
        return left

    report = erase_deleted(engine, engine.commit(partial(stage_deletion, thread_id=thread_id), may_use_reserve=True))
    report.add(left)
    return report


class Deleted(NamedTuple):
    """A deleted thread whose records must be erased."""

    thread: int
    versions: int
    """The number of the thread's versions."""
    lenders: list[int]
    """Other deleted threads whose records this thread still referenced."""


def stage_deletion(batch: Batch, thread_id: str) -> Deleted:
    """Stage the deletion of a thread. Raises ThreadNotFoundError, ThreadDeletedError."""
    found = batch.view.thread_lsn(thread_id)
    if found is None:
        if batch.view.is_deleted(thread_id):
            raise writer.deleted_error(thread_id)
        message = f"no thread {thread_id!r} in this store"
        raise ThreadNotFoundError(message, thread=thread_id)
    versions = _count_versions(batch.view, found)
    lenders = lenders_of(batch.view, found)
    writer.delete_thread(batch, found, thread_id)
    return Deleted(found, versions, lenders)


def erase_deleted(engine: Engine, deleted: Deleted) -> RetentionReport:
    """Erase the records of a thread whose deletion is committed."""
    engine.collectors.pop(deleted.thread, None)
    report = erase_records(engine, deleted.thread)
    for lender in deleted.lenders:  # If this was the last copy of a deleted `lender`, free its nodes.
        with engine.read() as view:
            is_free = not view.is_alive(lender) and not view.lent_below(lender)
        if is_free:
            report.add(erase_records(engine, lender))
    report.threads = 1
    report.expired_versions = deleted.versions
    return report


def _count_versions(view: View, thread: int) -> int:
    return sum(1 for branch in view.branches(thread) for _version in view.entries(thread, branch.number))


def _holds_unerased(view: View, thread: int) -> bool:
    return TO_BE_ERASED in redacted_records(view, thread).values()


def erase_leftovers(engine: Engine) -> RetentionReport:
    """Erase the remains of interrupted deletions, and unused records without an owner. Do not append to the log."""
    report = redact_released(engine, NOBODY)
    with engine.read() as view:
        threads = [thread for thread in view.deleted_threads() if _holds_unerased(view, thread)]
    for thread in threads:
        report.add(erase_records(engine, thread))
    return report
