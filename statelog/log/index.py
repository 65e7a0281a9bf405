"""Changes the index for checkpoints, and for nodes and redacted records, which any kind of event may have (L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from statelog import kernels
from statelog.format import cbor, keys
from statelog.log.events import NOTHING_BORROWED, CheckpointEvent
from statelog.tree.node import is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from statelog.format.record import NodeRow
    from statelog.log.transaction import IndexedLog
    from statelog.log.view import View


class IndexWriter(Protocol):
    """An index that can be read and changed."""

    @property
    def view(self) -> View:
        """A view of the log and the index."""

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload of a key, or None."""

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Store the payload of a key."""

    def delete_index(self, key: bytes) -> None:
        """Delete a key."""


WHOLE, VACUUMED, TO_BE_ERASED = range(3)
"""The states of the records under key `r`: redacted with all nodes, redacted with some nodes, or released for
redaction.
"""


def release_records(index: IndexWriter, owner: int, lsns: Iterable[int]) -> None:
    """Release records of an owner (0 for none): list them for redaction. A rebuild does not need their events.

    They are redacted in the order of the log. So if one record added a key and a later one removed it, no rebuild
    restores the key: the record that added it is redacted first.
    """
    enter_redacted(index, owner, dict.fromkeys(lsns, TO_BE_ERASED))


def is_released(view: View, owner: int, lsn: int) -> bool:
    """Return True if a record of an owner is released for redaction."""
    key = keys.encode_redacted_key(owner, lsn)
    return keys.decode_redacted_page(key, view.transaction.get_index(key) or b"").get(lsn) == TO_BE_ERASED


def redacted_state(*, is_vacuumed: bool, holds_nodes: bool) -> int | None:
    """Return the state of a redacted record, or None if it has no nodes left."""
    if not holds_nodes:
        return None
    return VACUUMED if is_vacuumed else WHOLE


def enter_redacted(index: IndexWriter, thread: int, states: Mapping[int, int | None]) -> None:
    """Enter the states of a thread's records, by LSN, into the index (key `r`). None removes a record's entry."""
    by_page: dict[bytes, dict[int, int | None]] = {}
    for lsn, state in states.items():
        by_page.setdefault(keys.encode_redacted_key(thread, lsn), {})[lsn] = state
    for key, changes in by_page.items():
        payload = index.get_index(key) or b""
        merged = keys.decode_redacted_page(key, payload) | changes
        page = keys.encode_redacted_page({lsn: state for lsn, state in merged.items() if state is not None})
        if page and page != payload:
            index.put_index(key, page)
        elif payload and not page:
            index.delete_index(key)


def redacted_records(view: View, thread: int) -> dict[int, int]:
    """Return the states of a thread's redacted records with nodes and of its released records, by ascending LSN."""
    found: dict[int, int] = {}
    for key, payload in view.transaction.scan_index(keys.encode_thread_prefix(b"r", thread)):
        found |= keys.decode_redacted_page(key, payload)
    return found


def apply_checkpoint(index: IndexWriter, event: CheckpointEvent, page: bytes | None = None) -> bytes:
    """Enter a checkpoint into the index, and return its version page.

    `page` is the version page without the checkpoint. If `page` is None, read it from the index.
    """
    key = keys.encode_page_key(event.thread, event.branch, event.version)
    if page is None:
        page = index.get_index(key) or b""
    page = kernels.page_append(page, event.version, event.lsn, event.time_us)
    put_checkpoint(index, event, key, page)
    return page


def put_checkpoint(index: IndexWriter, event: CheckpointEvent, key: bytes, page: bytes) -> None:
    """Store the version page of a new checkpoint under `key`, and enter the checkpoint's id and borrowed nodes."""
    index.put_index(key, page)
    if event.id is not None:
        index.put_index(keys.encode_checkpoint_id_key(event.thread, event.id), keys.encode_lsn(event.lsn))
    if event.borrowed != NOTHING_BORROWED:
        apply_borrowed(index, cbor.decode(event.borrowed))


def apply_borrowed(index: IndexWriter, digests: Iterable[bytes]) -> None:
    """Record in the index that another thread refers to widely shared nodes."""
    for digest in digests:
        key = keys.encode_digest_key(digest)
        payload = index.get_index(key)
        if payload is not None:
            place = keys.decode_place(payload)
            index.put_index(key, keys.encode_place(place._replace(is_borrowed=True)))
            index.put_index(keys.encode_borrowed_key(place.thread, digest), b"")


def apply_nodes(index: IndexWriter, lsn: int, thread: int, nodes: Iterable[NodeFacts]) -> None:
    """Enter the widely shared nodes of a record into the index. `nodes` contains all nodes of the record in order."""
    for number, (type_, digest, content_size, first_byte) in enumerate(nodes):
        if is_shared_widely(type_, content_size, first_byte):
            enter_shared(index, digest, keys.SharedNodePlace(lsn, number, thread, is_borrowed=False))


def enter_shared(index: IndexWriter, digest: bytes, place: keys.SharedNodePlace) -> None:
    """Enter the place of a widely shared node into the index. The index also keeps the previous place.

    A copy of the log may still have the earlier node, even if the original store has erased the node. Redacted records
    may have nodes that refer to the earlier node. If the later node is erased first, the earlier place is used again.
    """
    payload = index.get_index(keys.encode_digest_key(digest))
    if payload is not None:
        former = keys.decode_place(payload)
        if former.is_borrowed:
            index.delete_index(keys.encode_borrowed_key(former.thread, digest))
        _put_former(index, digest, former)
    index.put_index(keys.encode_digest_key(digest), keys.encode_place(place))


def forget_shared(index: IndexWriter, digest: bytes, lsn: int, node: int) -> None:
    """Remove the place of an erased, widely shared node from the index. The previous place is used again.

    Threads that borrowed the node from the erased place now borrow it from the previous place. A rebuild has the same
    result (L4).
    """
    key = keys.encode_digest_key(digest)
    payload = index.get_index(key)
    place = None if payload is None else keys.decode_place(payload)
    if place is None or (place.lsn, place.node) != (lsn, node):
        gone = _delete_former(index, digest, lsn, node)
        former = _former_before(index, digest, lsn, node)
        if gone is not None and gone.is_borrowed and former is not None:
            _put_former(index, digest, former._replace(is_borrowed=True))
        return
    if place.is_borrowed:
        index.delete_index(keys.encode_borrowed_key(place.thread, digest))
    former = _former_before(index, digest, lsn, node)
    if former is None:
        index.delete_index(key)
        return
    _delete_former(index, digest, former.lsn, former.node)
    former = former._replace(is_borrowed=former.is_borrowed or place.is_borrowed)
    index.put_index(key, keys.encode_place(former))
    if former.is_borrowed:
        index.put_index(keys.encode_borrowed_key(former.thread, digest), b"")


def is_borrowed(transaction: IndexedLog, digest: bytes, lsn: int, node: int) -> bool:
    """Return True if another thread has borrowed a widely shared node from this place."""
    payload = transaction.get_index(keys.encode_digest_key(digest))
    place = None if payload is None else keys.decode_place(payload)
    if place is None or (place.lsn, place.node) != (lsn, node):
        payload = transaction.get_index(keys.encode_former_key(digest, lsn, node))
        place = None if payload is None else keys.decode_place(payload)
    return place is not None and place.is_borrowed


def give_shared(index: IndexWriter, digest: bytes, lsn: int, node: int, heir: int) -> None:
    """Make `heir` the owner of one place of a widely shared node in the index."""
    key = keys.encode_digest_key(digest)
    payload = index.get_index(key)
    place = None if payload is None else keys.decode_place(payload)
    if place is None or (place.lsn, place.node) != (lsn, node):
        former = _delete_former(index, digest, lsn, node)
        if former is not None:
            _put_former(index, digest, former._replace(thread=heir))
        return
    index.put_index(key, keys.encode_place(place._replace(thread=heir)))
    if place.is_borrowed:
        index.delete_index(keys.encode_borrowed_key(place.thread, digest))
        index.put_index(keys.encode_borrowed_key(heir, digest), b"")


def _former_before(index: IndexWriter, digest: bytes, lsn: int, node: int) -> keys.SharedNodePlace | None:
    """Return the last previous place of a node that precedes a place, or None."""
    start = keys.encode_former_key(digest, lsn, node)
    found = index.view.transaction.scan_index(keys.encode_former_prefix(digest), start=start, reverse=True)
    payload = next((payload for key, payload in found if key != start), None)
    return None if payload is None else keys.decode_place(payload)


def _put_former(index: IndexWriter, digest: bytes, place: keys.SharedNodePlace) -> None:
    index.put_index(keys.encode_former_key(digest, place.lsn, place.node), keys.encode_place(place))
    if place.is_borrowed:
        index.put_index(keys.encode_borrowed_former_key(place.thread, digest, place.lsn, place.node), b"")


def _delete_former(index: IndexWriter, digest: bytes, lsn: int, node: int) -> keys.SharedNodePlace | None:
    """Delete an earlier place of a node from the index. Return the place, or None if the index does not have it."""
    key = keys.encode_former_key(digest, lsn, node)
    payload = index.get_index(key)
    if payload is None:
        return None
    place = keys.decode_place(payload)
    index.delete_index(key)
    if place.is_borrowed:
        index.delete_index(keys.encode_borrowed_former_key(place.thread, digest, lsn, node))
    return place


NodeFacts = tuple[int, bytes, int, int]
"""The type, digest, content size (0 if the node was removed) and first byte of a node."""


def node_facts(data: bytes | memoryview) -> list[NodeFacts]:
    """Return the facts of a record's nodes, for `apply_nodes`."""
    return [
        (type_, digest, size, data[at] if size else 0) for type_, digest, at, size, _total in kernels.record_nodes(data)
    ]


def facts_of(rows: Iterable[NodeRow]) -> list[NodeFacts]:
    """Return the facts of nodes that are about to be stored in a record."""
    return [(row.type, row.digest, row.content_size, row.data[0]) for row in rows]
