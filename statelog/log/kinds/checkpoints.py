"""Versions of threads: checkpoints, and rollbacks, which are checkpoints that point at an old root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import cbor, keys
from statelog.format.fields import DIGEST, DIGESTS, LSN, METADATA, NAME, NAMES, NODE, THREAD, VERSION, Field, optional
from statelog.format.record import BORROWED_FIELD, TYPE_CHECKPOINT, TYPE_ROLLBACK
from statelog.log.events import CHECKPOINT_TYPES, CheckpointEvent, decode_checkpoint
from statelog.log.index import apply_checkpoint
from statelog.log.kinds.kind import Kind, Recent, refuse
from statelog.log.version_pages import without_version
from statelog.log.view import View, checkpoint_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.log.index import IndexWriter

_BODY: tuple[Field, ...] = (
    THREAD,
    VERSION,  # branch
    VERSION,
    optional(VERSION),  # parent branch
    optional(VERSION),  # parent version
    optional(DIGEST),
    optional(VERSION),  # jump branch
    optional(VERSION),  # jump version
    VERSION,  # depth
    VERSION,  # jump depth
    DIGEST,  # root
    LSN,
    NODE,
    optional(NAME),  # id
    METADATA,
    NAMES,
    DIGESTS,
)
_TARGET = THREAD
"""The type of a rollback's target: an LSN that is not 0."""


def _apply(index: IndexWriter, event: CheckpointEvent, _lsn: int) -> None:
    apply_checkpoint(index, event)


def _remove(index: IndexWriter, event: CheckpointEvent, lsn: int) -> None:
    thread = event.thread
    key = keys.encode_page_key(thread, event.branch, event.version)
    left = without_version(index.get_index(key) or b"", event.version, lsn)
    if left:
        index.put_index(key, left)
    else:
        index.delete_index(key)
    if event.id is not None:
        key = keys.encode_checkpoint_id_key(thread, event.id)
        if index.get_index(key) == keys.encode_lsn(lsn):
            index.delete_index(key)


def _records(view: View, owner: int, _after: int) -> Iterator[int]:
    for row in view.branches(owner):
        yield from (entry.lsn for _version, entry in view.entries(owner, row.number))


def _describe(view: View, event: CheckpointEvent) -> dict[str, Any]:
    body = {
        "branch": view.branch(event.thread, event.branch).name,
        "version": event.version,
        "id": event.id,
        "metadata": cbor.decode(event.metadata, loosely=True),
        "channels": cbor.decode(event.written),
        "state_digest": event.root_digest.hex(),
    }
    if event.target:
        body["target"] = event.target
    return body


def _check(view: View, event: CheckpointEvent, lsn: int, recent: Recent) -> None:
    count = view.thread(event.thread).branch_count
    if event.branch >= count or event.version <= view.head_version(event.thread, event.branch):
        refuse(lsn, f"version {event.version} of branch {event.branch} is out of order")
    key = None if event.id is None else keys.encode_checkpoint_id_key(event.thread, event.id)
    if key is not None and view.transaction.get_index(key) is not None:
        refuse(lsn, f"the checkpoint id {event.id!r} already exists")
    if event.target >= lsn:
        refuse(lsn, "it rolls back to a later record")
    has_parent = event.parent_branch is not None
    if (event.parent_version is not None) != has_parent or (event.parent_digest is not None) != has_parent:
        refuse(lsn, "it does not name its parent in full")
    if has_parent != (event.depth > 0) or (event.jump_branch is None) != (event.jump_version is None):
        refuse(lsn, "its depth does not match its parent")
    parent = _ancestor(view, event, (event.parent_branch, event.parent_version), event.depth - 1, "parent", recent)
    if parent is not None and parent.digest != event.parent_digest:
        refuse(lsn, "its parent has a different digest")
    _ancestor(view, event, (event.jump_branch, event.jump_version), event.jump_depth, "jump", recent)
    recent[lsn] = event


def _ancestor(
    view: View,
    event: CheckpointEvent,
    place: tuple[int | None, int | None],
    depth: int,
    what: str,
    recent: Recent,
) -> CheckpointEvent | None:
    """Return the checkpoint at `place`, or None if it has expired. It is the parent or the jump target of `event`.

    Raise CorruptionError if it is not an ancestor of smaller depth. `what` names it in the message.
    """
    branch, version = place
    if branch is None or version is None:
        return None
    if branch >= view.thread(event.thread).branch_count or depth >= event.depth:
        refuse(event.lsn, f"its {what} is not an ancestor")
    if (branch, version) == (event.branch, event.version):
        refuse(event.lsn, f"it is its own {what}")
    entry = view.entry(event.thread, branch, version)
    if entry is None:
        return None
    found = recent.get(entry.lsn) or read_version(view, entry.lsn)
    if found is None or (found.branch, found.version, found.depth) != (branch, version, depth):
        refuse(event.lsn, f"its {what} is not the checkpoint that it names")
    recent[entry.lsn] = found
    return found


def read_version(view: View, lsn: int) -> CheckpointEvent | None:
    """Return the checkpoint in a record, or None if the record contains none."""
    record = None if view.transaction.get_log(lsn) is None else view.record(lsn)
    return checkpoint_in(record) if record is not None and record.type in CHECKPOINT_TYPES else None


CHECKPOINT_KIND = Kind(
    type=TYPE_CHECKPOINT,
    name="checkpoint",
    event=CheckpointEvent,
    bodies=(_BODY,),
    decode=decode_checkpoint,
    apply=_apply,
    describe=_describe,
    check=_check,
    records=_records,
    remove=_remove,
    prefixes=(b"v", b"i"),
    root_field=CheckpointEvent._fields.index("root_digest"),
    borrowed_field=BORROWED_FIELD,
    is_version=True,
    has_raw=True,
)

ROLLBACK_KIND = Kind(
    type=TYPE_ROLLBACK,
    name="rollback",
    event=CheckpointEvent,
    bodies=((*_BODY, _TARGET),),
    decode=decode_checkpoint,
    apply=_apply,
    describe=_describe,
    check=_check,
    remove=_remove,
    root_field=CHECKPOINT_KIND.root_field,
    borrowed_field=BORROWED_FIELD,
    is_version=True,
    has_raw=True,
)
