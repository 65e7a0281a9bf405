"""What each event does to the index. Commits and rebuilds both come through here (L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from statelog import kernels
from statelog.format import cbor, keys
from statelog.log.care.policies import PolicyRow, encode_policies, with_policy, without_thread
from statelog.log.events import (
    MAIN,
    NOTHING_BORROWED,
    CheckpointEvent,
    DeleteEvent,
    Event,
    ForkEvent,
    LoanEvent,
    PolicyEvent,
    SchemaEvent,
    StorePolicyEvent,
    TagEvent,
    ThreadEvent,
)
from statelog.log.view import BranchRow, ThreadRow, View, encode_branch, encode_thread
from statelog.tree.node import is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class IndexWriter(Protocol):
    """Where index changes go."""

    @property
    def view(self) -> View:
        """Look-ups in what is there."""

    def get_index(self, key: bytes) -> bytes | None:
        """Return a payload."""

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Put a payload."""

    def delete_index(self, key: bytes) -> None:
        """Delete a key."""


def apply_event(index: IndexWriter, event: Event, lsn: int) -> None:
    """Bring the index up to date with one event."""
    if isinstance(event, CheckpointEvent):
        apply_checkpoint(index, event)
    elif isinstance(event, ThreadEvent):
        index.put_index(keys.encode_thread_id_key(event.thread_id), keys.encode_lsn(lsn))
        index.put_index(keys.encode_thread_key(lsn), encode_thread(ThreadRow(lsn, event.thread_id, event.specs, 1, {})))
        _put_branch(index, lsn, BranchRow(0, MAIN, None, -1, lsn))
        _put_policies(index, without_thread(index.view.policies(), event.thread_id))
    elif isinstance(event, StorePolicyEvent):
        _put_policies(index, with_policy(index.view.policies(), event.pattern, event.policy))
    elif isinstance(event, DeleteEvent):
        _apply_deletion(index, event, lsn)
    elif isinstance(event, LoanEvent):
        _apply_loan(index, event, lsn)
    else:
        index.put_index(keys.encode_thread_event_key(event.thread, lsn), b"")
        _apply_to_thread(index, event, lsn)


def _apply_to_thread(index: IndexWriter, event: SchemaEvent | ForkEvent | TagEvent | PolicyEvent, lsn: int) -> None:
    if isinstance(event, TagEvent):
        _apply_tag(index, event)
        return
    row = index.view.thread(event.thread)
    if isinstance(event, SchemaEvent):
        row = row._replace(specs={**row.specs, **event.specs})
    elif isinstance(event, PolicyEvent):
        row = row._replace(policy=event.policy)
    else:
        row = row._replace(branch_count=row.branch_count + 1)
        branch = BranchRow(event.branch, event.name, event.parent_branch, event.base_version, lsn)
        _put_branch(index, event.thread, branch)
    index.put_index(keys.encode_thread_key(event.thread), encode_thread(row))


def _put_policies(index: IndexWriter, rows: Sequence[PolicyRow]) -> None:
    held = index.get_index(keys.POLICIES_KEY)
    payload = encode_policies(rows) if rows else None
    if payload is None and held is not None:
        index.delete_index(keys.POLICIES_KEY)
    elif payload is not None and payload != held:
        index.put_index(keys.POLICIES_KEY, payload)


def _apply_deletion(index: IndexWriter, event: DeleteEvent, lsn: int) -> None:
    """Take everything of a thread out; its records that still say something are listed for erasure.

    A rebuild meets the deletion behind records that were erased already: what is not there is not missed.
    """
    thread = event.thread
    enter_redacted(index, thread, dict.fromkeys(records_of(index.view, thread), TO_BE_ERASED))
    if index.view.is_alive(thread):
        index.delete_index(keys.encode_thread_id_key(index.view.thread(thread).id))
    for prefix in keys.THREAD_PREFIXES:
        if prefix != b"r":
            for key, _payload in list(index.view.transaction.scan_index(keys.encode_thread_prefix(prefix, thread))):
                index.delete_index(key)
    if event.returns:
        for key, payload in list(index.view.transaction.scan_index(keys.encode_debt_prefix(thread))):
            index.delete_index(keys.encode_loan_key(keys.decode_debt_lender(key), keys.decode_lsn(payload)))
            index.delete_index(key)
    index.put_index(keys.encode_tombstone_key(event.id_digest), keys.encode_lsn(lsn))


def _apply_loan(index: IndexWriter, event: LoanEvent, lsn: int) -> None:
    """Enter a loan in place of an earlier one between the same threads."""
    key = keys.encode_debt_key(event.thread, event.lender)
    before = index.get_index(key)
    if before is not None:
        index.delete_index(keys.encode_loan_key(event.lender, keys.decode_lsn(before)))
    index.put_index(key, keys.encode_lsn(lsn))
    index.put_index(keys.encode_loan_key(event.lender, lsn), keys.encode_lsn(event.thread))


WHOLE, VACUUMED, TO_BE_ERASED = range(3)
"""States of redacted records (key `r`): all nodes are there; some are; the record is of a deleted thread, and was
not erased yet."""


def records_of(view: View, thread: int) -> list[int]:
    """Return the LSNs of a thread's records that were not redacted."""
    lsns = {thread} if view.is_alive(thread) else set()
    for row in view.branches(thread):
        lsns.update(entry.lsn for _version, entry in view.entries(thread, row.number))
    scan = view.transaction.scan_index(keys.encode_thread_prefix(b"e", thread))
    lsns.update(keys.decode_event_lsn(key) for key, _payload in scan)
    return sorted(lsns)


def redacted_state(*, is_vacuumed: bool, holds_nodes: bool) -> int | None:
    """Return the state of a redacted record; None if it has no nodes to give up any more."""
    if not holds_nodes:
        return None
    return VACUUMED if is_vacuumed else WHOLE


def enter_redacted(index: IndexWriter, thread: int, states: Mapping[int, int | None]) -> None:
    """Enter redacted records of a thread among those that may still have something to give up, or take them out.

    Args:
        index: where to.
        thread: the thread.
        states: by LSN; None: nothing is left in it.

    """
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
    """Return LSN -> state of a thread's redacted records that still have something to give up, ascending."""
    found: dict[int, int] = {}
    for key, payload in view.transaction.scan_index(keys.encode_thread_prefix(b"r", thread)):
        found |= keys.decode_redacted_page(key, payload)
    return found


def _apply_tag(index: IndexWriter, event: TagEvent) -> None:
    key = keys.encode_tag_key(event.thread, event.name)
    if event.target:
        index.put_index(key, keys.encode_lsn(event.target))
    else:
        index.delete_index(key)


def _put_branch(index: IndexWriter, thread: int, row: BranchRow) -> None:
    index.put_index(keys.encode_branch_name_key(thread, row.name), keys.encode_u32(row.number))
    index.put_index(keys.encode_branch_key(thread, row.number), encode_branch(row))


def apply_checkpoint(index: IndexWriter, event: CheckpointEvent, page: bytes | None = None) -> bytes:
    """Enter a checkpoint: its entry follows from its own record, and needs no other.

    Args:
        index: where to.
        event: the checkpoint.
        page: the version page it belongs on, if known; read if None.

    Returns:
        The page with it.

    """
    key = keys.encode_page_key(event.thread, event.branch, event.version)
    if page is None:
        page = index.get_index(key) or b""
    page = kernels.page_append(page, event.version, event.lsn, event.time_us)
    put_checkpoint(index, event, key, page)
    return page


def put_checkpoint(index: IndexWriter, event: CheckpointEvent, key: bytes, page: bytes) -> None:
    """Put the version page that a checkpoint was entered on, under its key, and what else there is to know of it."""
    index.put_index(key, page)
    if event.id is not None:
        index.put_index(keys.encode_checkpoint_id_key(event.thread, event.id), keys.encode_lsn(event.lsn))
    if event.borrowed != NOTHING_BORROWED:
        apply_borrowed(index, cbor.decode(event.borrowed))


def apply_borrowed(index: IndexWriter, digests: Iterable[bytes]) -> None:
    """Note of widely shared nodes that another thread refers to them."""
    for digest in digests:
        key = keys.encode_digest_key(digest)
        payload = index.get_index(key)
        if payload is not None:
            place = keys.decode_place(payload)
            index.put_index(key, keys.encode_place(place._replace(is_borrowed=True)))
            index.put_index(keys.encode_borrowed_key(place.thread, digest), b"")


def apply_nodes(index: IndexWriter, lsn: int, thread: int, nodes: Iterable[NodeFacts]) -> None:
    """Enter the widely shared nodes of a record of a thread, in order."""
    for number, (type_, digest, content_size, first_byte) in enumerate(nodes):
        if is_shared_widely(type_, content_size, first_byte):
            place = keys.Place(lsn, number, thread, is_borrowed=False)
            index.put_index(keys.encode_digest_key(digest), keys.encode_place(place))


NodeFacts = tuple[int, bytes, int, int]
"""Type, digest, content size (0 when vacuumed) and first byte of a node."""


def node_facts(data: bytes | memoryview) -> list[NodeFacts]:
    """Return what `apply_nodes` takes, of a record."""
    return [
        (type_, digest, size, data[at] if size else 0) for type_, digest, at, size, _total in kernels.record_nodes(data)
    ]
