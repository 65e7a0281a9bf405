"""The events of a thread: its beginning, and new channels, branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format import keys
from statelog.format.fields import CHECKPOINT_LSN, NAME, SPECS, THREAD, THREAD_ID, TRUE, VERSION
from statelog.format.record import FLAG_REDACTED, TYPE_FORK, TYPE_SCHEMA, TYPE_TAG, TYPE_THREAD, decode_record
from statelog.log.care.policies import without_thread
from statelog.log.events import CHECKPOINT_TYPES, MAIN, ForkEvent, SchemaEvent, TagEvent, ThreadEvent
from statelog.log.kinds.kind import Kind, Recent, refuse
from statelog.log.kinds.policies import put_policies
from statelog.log.view import BranchRow, ThreadRow, View, checkpoint_in, encode_branch, encode_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from statelog.log.index import IndexWriter


def _begin(index: IndexWriter, event: ThreadEvent, lsn: int) -> None:
    index.put_index(keys.encode_thread_id_key(event.thread_id), keys.encode_lsn(lsn))
    index.put_index(keys.encode_thread_key(lsn), encode_thread(ThreadRow(lsn, event.thread_id, event.specs, 1, {})))
    _put_branch(index, lsn, BranchRow(0, MAIN, None, -1, lsn))
    put_policies(index, without_thread(index.view.policies(), event.thread_id))


def _check_beginning(view: View, event: ThreadEvent, lsn: int, _recent: Recent) -> None:
    if view.thread_lsn(event.thread_id) is not None or (view.is_deleted(event.thread_id) and not event.is_anew):
        refuse(lsn, f"thread {event.thread_id!r} already exists")


def _own_record(view: View, owner: int, _after: int) -> Iterator[int]:
    if view.is_alive(owner):
        yield owner


THREAD_KIND = Kind(
    type=TYPE_THREAD,
    name="thread",
    event=ThreadEvent,
    bodies=((THREAD_ID, SPECS), (THREAD_ID, SPECS, TRUE)),
    owner=lambda _event, lsn: lsn,
    apply=_begin,
    describe=lambda _view, event: {"channels": event.specs, **({"anew": True} if event.is_anew else {})},
    check=_check_beginning,
    records=_own_record,
    prefixes=(b"T",),
    other_prefixes=(b"t",),
)


def _extend(index: IndexWriter, event: SchemaEvent, lsn: int) -> None:
    index.put_index(keys.encode_thread_event_key(event.thread, lsn), b"")
    row = index.view.thread(event.thread)
    row = row._replace(specs={**row.specs, **event.specs})
    index.put_index(keys.encode_thread_key(event.thread), encode_thread(row))


SCHEMA_KIND = Kind(
    type=TYPE_SCHEMA,
    name="schema",
    event=SchemaEvent,
    bodies=((THREAD, SPECS),),
    apply=_extend,
    describe=lambda _view, event: {"channels": event.specs},
)


def _put_branch(index: IndexWriter, thread: int, row: BranchRow) -> None:
    index.put_index(keys.encode_branch_name_key(thread, row.name), keys.encode_u32(row.number))
    index.put_index(keys.encode_branch_key(thread, row.number), encode_branch(row))


def _fork(index: IndexWriter, event: ForkEvent, lsn: int) -> None:
    index.put_index(keys.encode_thread_event_key(event.thread, lsn), b"")
    row = index.view.thread(event.thread)
    _put_branch(index, event.thread, BranchRow(event.branch, event.name, event.parent_branch, event.base_version, lsn))
    row = row._replace(branch_count=row.branch_count + 1)
    index.put_index(keys.encode_thread_key(event.thread), encode_thread(row))


def _describe_fork(view: View, event: ForkEvent) -> dict[str, Any]:
    parent = view.branch(event.thread, event.parent_branch).name
    return {"branch": event.name, "parent": parent, "at": event.base_version}


def _check_fork(view: View, event: ForkEvent, lsn: int, _recent: Recent) -> None:
    if event.branch != view.thread(event.thread).branch_count or event.parent_branch >= event.branch:
        refuse(lsn, f"branch {event.branch}, forked from branch {event.parent_branch}, is out of order")
    if view.branch_number(event.thread, event.name) is not None:
        refuse(lsn, f"branch {event.name!r} already exists")


FORK_KIND = Kind(
    type=TYPE_FORK,
    name="fork",
    event=ForkEvent,
    bodies=((THREAD, VERSION, NAME, VERSION, VERSION),),
    apply=_fork,
    describe=_describe_fork,
    check=_check_fork,
    prefixes=(b"b", b"B"),
)


def _tag(index: IndexWriter, event: TagEvent, lsn: int) -> None:
    index.put_index(keys.encode_thread_event_key(event.thread, lsn), b"")
    key = keys.encode_tag_key(event.thread, event.name)
    if event.target:
        index.put_index(key, keys.encode_lsn(event.target))
    else:
        index.delete_index(key)


def _check_tag(view: View, event: TagEvent, lsn: int, _recent: Recent) -> None:
    target = event.target
    data = view.transaction.get_log(target) if 0 < target < lsn else None
    record = None if data is None else decode_record(data, target)
    is_checkpoint = record is not None and record.type in CHECKPOINT_TYPES
    # The target may have expired since the tag was set. Then its thread is unknown, and the event is accepted.
    if record is not None and is_checkpoint and not record.flags & FLAG_REDACTED:
        is_checkpoint = checkpoint_in(record).thread == event.thread
    if target and not is_checkpoint:
        refuse(lsn, f"it tags record {target}, which is not a checkpoint of its thread")


TAG_KIND = Kind(
    type=TYPE_TAG,
    name="tag",
    event=TagEvent,
    bodies=((THREAD, NAME, CHECKPOINT_LSN),),
    apply=_tag,
    describe=lambda _view, event: {"tag": event.name, "target": event.target or None},
    check=_check_tag,
    prefixes=(b"g",),
)
