"""A further kind of event, similar to board entries.

A note has a key, an owner (a thread or nobody), a small value in its body, and a large value in nodes. The index maps
owner and key to the last note, so earlier ones are not needed any more.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

from statelog import kernels
from statelog.format import cbor, keys
from statelog.format.fields import DIGESTS, ITEM, LSN, NAME, RECORD_LSN, ROOT
from statelog.log.care.rebuild import derive
from statelog.log.index import release_records
from statelog.log.kinds.kind import Kind, refuse
from statelog.log.kinds.table import _BY_EVENT, KINDS, decode_event, register, stage_event
from statelog.tree import mapping
from statelog.tree.node import ROOT as ROOT_TYPE
from statelog.tree.node import Workspace
from statelog.tree.value import add_root, encode_slot, read_item


class Note(NamedTuple):
    thread: int
    key: str
    item: bytes
    before: int
    root_digest: bytes | None
    root_lsn: int
    root_node: int
    borrowed: list[bytes]


class Removal(NamedTuple):
    thread: int
    key: str


def note_key(owner, key):
    return b"n" + owner.to_bytes(8) + key.encode()


def enter(index, event, lsn):
    put_out(index, event)
    index.put_index(note_key(event.thread, event.key), keys.encode_lsn(lsn))


def put_out(index, event):
    held = index.get_index(note_key(event.thread, event.key))
    if held is not None:
        release_records(index, event.thread, [keys.decode_lsn(held)])


def remove(index, event, lsn):
    put_out(index, event)
    index.delete_index(note_key(event.thread, event.key))
    release_records(index, event.thread, [lsn])


def check(_view, event, lsn, _recent):
    if event.before >= lsn:
        refuse(lsn, "it follows what comes later")


def noted(view, owner, _after):
    return [keys.decode_lsn(payload) for _key, payload in view.transaction.scan_index(note_key(owner, ""))]


NOTE_KIND = Kind(
    type=101,
    name="note",
    event=Note,
    bodies=((LSN, NAME, ITEM, RECORD_LSN, *ROOT, DIGESTS),),
    has_raw=True,
    apply=enter,
    describe=lambda _view, event: {"key": event.key, "value": cbor.decode(event.item)},
    check=check,
    records=noted,
    prefixes=(b"n",),
    root_field=4,
    borrowed_field=7,
)
REMOVAL_KIND = Kind(
    type=102,
    name="removal",
    event=Removal,
    bodies=((LSN, NAME),),
    apply=remove,
    describe=lambda _view, event: {"key": event.key},
)


@contextmanager
def registered():
    """Have the kinds in the table."""
    for kind in (NOTE_KIND, REMOVAL_KIND):
        register(kind)
    yield
    for kind in (NOTE_KIND, REMOVAL_KIND):
        del KINDS[kind.type], _BY_EVENT[kind.event]


def large(seed):
    """Return a value in nodes, some of which are shared widely."""
    return {"list": [f"item {seed} {number} " * 20 for number in range(300)], "text": f"text {seed} " * 700}


def stage_note(batch, owner, key, small, value=None):
    held = batch.get_index(note_key(owner, key))
    before = 0 if held is None else keys.decode_lsn(held)
    borrowed, rows, root = [], [], (None, 0, 0)
    if value is not None:
        workspace = batch.workspace(owner, borrowed)
        slots = [
            (cbor.encode(name), encode_slot(workspace, cbor.encode(part), top=True)) for name, part in value.items()
        ]
        empty = mapping.empty_root(kernels.KIND_DICT)
        slot = add_root(workspace, mapping.merge_batch(workspace, empty, sorted(slots), kind=kernels.KIND_DICT))
        slot, rows = workspace.collect(slot), workspace.rows
        root = (slot.data[1:], slot.lsn or batch.next_lsn(), slot.number)
    return stage_event(batch, Note(owner, key, cbor.encode(small), before, *root, sorted(set(borrowed))), rows)


def write(store, owner, key, small, value=None):
    return store._engine.commit(lambda batch: stage_note(batch, owner, key, small, value))


def remove_note(store, owner, key):
    return store._engine.commit(lambda batch: stage_event(batch, Removal(owner, key)))


def read(store, owner, key):
    """Return the small and the large value of a note, None if it is not there."""
    with store._engine.read() as view:
        payload = view.transaction.get_index(note_key(owner, key))
        if payload is None:
            return None
        event = decode_event(view.record(keys.decode_lsn(payload)))
    small = cbor.decode(event.item)
    if event.root_digest is None:
        return small, None
    reader = Workspace(store._engine.read_node)
    root = reader.read(ROOT_TYPE, event.root_digest, event.root_lsn, event.root_node)
    slots = {name: mapping.find_in_root(reader, root, cbor.encode(name)) for name in ("list", "text")}
    return small, {name: cbor.decode(read_item(reader, slot)) for name, slot in slots.items()}


def thread_lsn(store, thread_id):
    with store._engine.read() as view:
        return view.thread_lsn(thread_id)


def index_of(store):
    with store._engine.read() as view:
        return {key: view.transaction.get_index(key) for key in view.transaction.index_keys()}


def check_whole(store):
    """Check that the index matches the log, and that all referenced nodes exist."""
    assert store.verify().problems == []
    held = index_of(store)
    with store._engine.read() as view:
        assert derive(view.transaction).payloads == held
    store.rebuild_index()
    assert index_of(store) == held


def log_of(store):
    return [(record.type, record.thread_id, record.body) for record in store.log()]


def holds(store, text):
    """Whether any record of the log has a text in it."""
    with store._engine.read() as view:
        transaction = view.transaction
        return any(text in bytes(transaction.get_log(lsn)) for lsn in range(1, transaction.last_lsn() + 1))


def fill(store, owner):
    write(store, owner, "a", 1, large(1))
    write(store, owner, "b", 2)
    write(store, owner, "a", 3, {**large(1), "text": "other"})
    write(store, owner, "gone", 4)
    remove_note(store, owner, "gone")
