"""Events that nobody vouches for: each must be possible where it stands (invariant L5).

`verify` asks whether events can be applied. Here it is asked besides whether what they say of threads,
branches, versions and parents is true, since every one of these leads a reader somewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.format.record import FLAG_REDACTED, TYPE_CHECKPOINT, TYPE_ROLLBACK, decode_record, part_digest
from statelog.limits import POLICIES_MAX
from statelog.log.care.policies import with_policy
from statelog.log.events import (
    CheckpointEvent,
    DeleteEvent,
    Event,
    ForkEvent,
    LoanEvent,
    StorePolicyEvent,
    TagEvent,
    ThreadEvent,
)
from statelog.portable.bodies import read_event
from statelog.tree.node import ROOT

if TYPE_CHECKING:
    from statelog.log.view import View
    from statelog.portable.nodes import Identity, Read

TIME_US_MAX = 253_402_300_799_999_999
"""The last microsecond of year 9999: later ones are no datetime."""


def check_event(view: View, event: Event, lsn: int, recent: dict[int, CheckpointEvent]) -> None:
    """Check an event against everything before it.

    Args:
        view: of the store up to the record before.
        event: well-formed.
        lsn: of its record.
        recent: checkpoints read before, by LSN, to which those read now are added.

    Raises:
        CorruptionError: it is not possible here. Facts: lsn.

    """
    if isinstance(event, ThreadEvent):
        if view.thread_lsn(event.thread_id) is not None or view.is_deleted(event.thread_id):
            _refuse(lsn, f"thread {event.thread_id!r} begins again")
        return
    if isinstance(event, DeleteEvent | LoanEvent):
        _check_numbers(view, event, lsn)
        return
    if isinstance(event, StorePolicyEvent):
        if len(with_policy(view.policies(), event.pattern, event.policy)) > POLICIES_MAX:
            _refuse(lsn, f"there are more than {POLICIES_MAX} policies")
        return
    if not view.is_alive(event.thread):
        _refuse(lsn, f"there is no thread {event.thread}")
    _check_event_of_thread(view, event, lsn, recent)


def _check_numbers(view: View, event: DeleteEvent | LoanEvent, lsn: int) -> None:
    """Check what is said of threads that may be gone already where this stands: their records were redacted."""
    if isinstance(event, LoanEvent):
        if event.thread == event.lender or not (0 < event.thread < lsn and 0 < event.lender < lsn):
            _refuse(lsn, f"thread {event.lender} lends to thread {event.thread}")
        return
    if view.is_alive(event.thread) and part_digest(view.thread(event.thread).id.encode()) != event.id_digest:
        _refuse(lsn, f"it deletes thread {event.thread} under another's name")
    notes = view.transaction.scan_index(keys.encode_borrowed_prefix(event.thread))
    if event.returns and (view.lent_below(event.thread) or next(notes, None) is not None):
        _refuse(lsn, f"what thread {event.thread} has on loan is still in use")


def _check_event_of_thread(view: View, event: Event, lsn: int, recent: dict[int, CheckpointEvent]) -> None:
    if isinstance(event, CheckpointEvent):
        _check_checkpoint(view, event, lsn, recent)
    elif isinstance(event, ForkEvent):
        _check_fork(view, event, lsn)
    elif isinstance(event, TagEvent) and event.target:
        _check_target(view, event.thread, event.target, lsn)


def check_root(event: CheckpointEvent, *, identity: Identity, read: Read) -> None:
    """Check that the root of a checkpoint is there, and the root of a dict.

    Raises:
        CorruptionError: it is not. Facts: lsn.

    """
    if event.root_lsn > event.lsn or identity(event.root_lsn, event.root_node) != bytes((ROOT,)) + event.root_digest:
        _refuse(event.lsn, "the root of its state is not where it says")
    if read(ROOT, event.root_digest, event.root_lsn, event.root_node).data[0] != kernels.KIND_DICT:
        _refuse(event.lsn, "the root of its state is not that of a dict")


def _check_fork(view: View, event: ForkEvent, lsn: int) -> None:
    if event.branch != view.thread(event.thread).branch_count or event.parent_branch >= event.branch:
        _refuse(lsn, f"branch {event.branch} of branch {event.parent_branch} does not come next")
    if view.branch_number(event.thread, event.name) is not None:
        _refuse(lsn, f"branch {event.name!r} begins again")
    if event.base_version > view.head_version(event.thread, event.parent_branch):
        _refuse(lsn, f"it leaves branch {event.parent_branch} at version {event.base_version}, which is not there")


def _check_checkpoint(view: View, event: CheckpointEvent, lsn: int, recent: dict[int, CheckpointEvent]) -> None:
    count = view.thread(event.thread).branch_count
    if event.branch >= count or event.version <= view.head_version(event.thread, event.branch):
        _refuse(lsn, f"version {event.version} of branch {event.branch} does not come next")
    key = None if event.id is None else keys.encode_checkpoint_id_key(event.thread, event.id)
    if key is not None and view.transaction.get_index(key) is not None:
        _refuse(lsn, f"the checkpoint id {event.id!r} is taken")
    if event.target >= lsn:
        _refuse(lsn, "it rolls back to what comes later")
    has_parent = event.parent_branch is not None
    if (event.parent_version is not None) != has_parent or (event.parent_digest is not None) != has_parent:
        _refuse(lsn, "half of its parent is missing")
    if has_parent != (event.depth > 0) or (event.jump_branch is None) != (event.jump_version is None):
        _refuse(lsn, "its depth does not fit its parent")
    parent = _ancestor(view, event, (event.parent_branch, event.parent_version), event.depth - 1, "parent", recent)
    if parent is not None and parent.digest != event.parent_digest:
        _refuse(lsn, "its parent is not what the digest says")
    _ancestor(view, event, (event.jump_branch, event.jump_version), event.jump_depth, "jump", recent)
    recent[lsn] = event


def _ancestor(
    view: View,
    event: CheckpointEvent,
    place: tuple[int | None, int | None],
    depth: int,
    what: str,
    recent: dict[int, CheckpointEvent],
) -> CheckpointEvent | None:
    """Return a parent, or where a jump leads: a checkpoint that is less deep, so that walks end; None if it expired."""
    branch, version = place
    if branch is None or version is None:
        return None
    if branch >= view.thread(event.thread).branch_count or depth >= event.depth:
        _refuse(event.lsn, f"its {what} is no ancestor")
    if (branch, version) == (event.branch, event.version):
        _refuse(event.lsn, f"it is its own {what}")
    entry = view.entry(event.thread, branch, version)
    if entry is None:
        return None
    found = recent.get(entry.lsn) or read_checkpoint(view, entry.lsn)
    if found is None or (found.branch, found.version, found.depth) != (branch, version, depth):
        _refuse(event.lsn, f"its {what} is another than it says")
    recent[entry.lsn] = found
    return found


def _check_target(view: View, thread: int, target: int, lsn: int) -> None:
    if target < lsn:
        data = view.transaction.get_log(target)
        record = None if data is None else decode_record(data, target)
        if record is not None and record.type in (TYPE_CHECKPOINT, TYPE_ROLLBACK):
            if record.flags & FLAG_REDACTED:  # it has expired since
                return
            found = read_event(record)
            if isinstance(found, CheckpointEvent) and found.thread == thread:
                return
    _refuse(lsn, f"it tags record {target}, which is no checkpoint of its thread")


def read_checkpoint(view: View, lsn: int) -> CheckpointEvent | None:
    """Return the checkpoint in a record, None if there is none."""
    data = view.transaction.get_log(lsn)
    found = None if data is None else read_event(decode_record(data, lsn))
    return found if isinstance(found, CheckpointEvent) else None


def _refuse(lsn: int, what: str) -> NoReturn:
    message = f"record {lsn}: {what}"
    raise CorruptionError(message, lsn=lsn)
