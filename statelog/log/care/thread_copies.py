"""Copies of threads: for every version, the copy gets a record that refers to the same root.

The records of a copy have no nodes. The nodes of its states stay in the records of the source thread, which lends them
(`loans.py`). So a copied version costs one small record, whatever its size. Afterwards, both threads are ordinary
threads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import AlreadyExistsError, ThreadNotFoundError
from statelog.format import cbor, keys
from statelog.format.record import DIGEST_SIZE_BYTES, TYPE_CHECKPOINT, TYPE_ROLLBACK
from statelog.log import operations as writer
from statelog.log.batch import Head
from statelog.log.care.loans import lend
from statelog.log.events import NOTHING_BORROWED, encode_checkpoint
from statelog.log.index import apply_checkpoint
from statelog.log.times import now_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.kernels import VersionEntry
    from statelog.log.batch import Batch
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import BranchRow, View


def copy_thread(batch: Batch, source_id: str, target_id: str, *, anew: bool = False) -> int:
    """Stage a copy of a thread with its branches, versions, ids, tags and schema. Return the LSN of the copy.

    This takes 40 bytes of memory for each version, in addition to the staged records.

    Raises:
        ThreadNotFoundError: the source does not exist.
        AlreadyExistsError: a thread has the new id.
        ThreadDeletedError: one of the two was deleted. With `anew`, the new id may belong to a deleted thread.
    """
    view = batch.view
    source = view.thread_lsn(source_id)
    if source is None:
        if view.is_deleted(source_id):
            raise writer.deleted_error(source_id)
        message = f"no thread {source_id!r} in this store"
        raise ThreadNotFoundError(message, thread=source_id)
    if view.thread_lsn(target_id) is not None:
        message = f"the store already has a thread {target_id!r}"
        raise AlreadyExistsError(message, thread=target_id, name=target_id)
    target = writer.create_thread(batch, target_id, view.thread(source).specs, anew=anew)
    _Copy(batch, source, target, target_id).run()
    return target


_THREAD_ID = "thread_id"
"""The metadata key of the thread's id."""


class _SourceVersion(NamedTuple):
    """A version of the source, or the beginning of a branch, whose `entry` is None."""

    lsn: int
    branch: int
    version: int
    entry: VersionEntry | None


class _Copy:
    """One copy in progress: the new LSNs of copied records, by their LSN in the source."""

    def __init__(self, batch: Batch, source: int, target: int, target_id: str) -> None:
        self._batch = batch
        self._view = batch.view
        self._source = source
        self._target = target
        self._target_id = target_id
        self._source_id = self._view.thread(source).id
        self._naming = cbor.encode(_THREAD_ID) + cbor.encode(self._source_id)
        self._source_lsns = array("Q")
        self._lsns = array("Q")
        self._digests = bytearray()
        self._heads: dict[int, Head] = {}
        self._time_us = 0
        """The time of the last copied version (L2)."""

    def run(self) -> None:
        """Stage all records in the order of the source, then the tags, and finally the loan."""
        rows = list(self._view.branches(self._source))
        for place in merge(*[_places(self._view, self._source, row) for row in rows]):
            if place.entry is None:
                row = rows[place.branch]
                assert row.parent is not None
                writer.fork(self._batch, self._target_id, self._target, row.name, (row.parent, row.base_version))
            else:
                self._copy_version(place.branch, place.version, place.entry)
        prefix = keys.encode_tag_prefix(self._source)
        for key, payload in self._view.transaction.scan_index(prefix):
            at = self._find(keys.decode_lsn(payload))
            if at is not None:  # A tag remains after its version has expired. Do not copy such a tag.
                writer.tag(self._batch, self._target, key[len(prefix) :].decode(), self._lsns[at])
        for branch, head in self._heads.items():
            self._batch.set_head(self._target, branch, head)
        lend(self._batch, self._target, self._source, [self._next_version(row) for row in rows])

    def _copy_version(self, branch: int, version: int, entry: VersionEntry) -> None:
        batch = self._batch
        event, _digest = self._view.checkpoint_at(self._source, version, entry)
        event = event._replace(
            thread=self._target,
            parent_digest=self._parent_digest(event),
            borrowed=NOTHING_BORROWED,
            target=self._rollback_target(event),
            metadata=self._metadata_of(event),
            lsn=batch.next_lsn(),
            time_us=self._next_time_us(),
        )
        body, digest = encode_checkpoint(event, event.lsn)
        batch.append(TYPE_ROLLBACK if event.target else TYPE_CHECKPOINT, event.time_us, body)
        before = self._heads.get(branch)
        is_on_page = (
            before is not None and before.event.version // keys.VERSIONS_PER_PAGE == version // keys.VERSIONS_PER_PAGE
        )
        page = apply_checkpoint(batch, event, before.page if before is not None and is_on_page else b"")
        self._heads[branch] = Head(event, digest, page)
        self._source_lsns.append(entry.lsn)
        self._lsns.append(event.lsn)
        self._digests += digest

    def _metadata_of(self, event: CheckpointEvent) -> bytes:
        """Return a version's metadata. If it names the source's id, the copy's id replaces it."""
        fields = cbor.decode(event.metadata) if self._naming in event.metadata else {}
        if fields.get(_THREAD_ID) != self._source_id:
            return event.metadata
        return cbor.encode({**fields, _THREAD_ID: self._target_id})

    def _next_time_us(self) -> int:
        self._time_us = max(now_us(), self._time_us + 1)
        return self._time_us

    def _parent_digest(self, event: CheckpointEvent) -> bytes | None:
        """Return the digest of a version's parent in the copy, or the original digest if the parent has expired."""
        if event.parent_branch is None or event.parent_version is None:
            return None
        head = self._heads.get(event.parent_branch)
        if head is not None and head.event.version == event.parent_version:
            return head.digest
        entry = self._view.entry(self._source, event.parent_branch, event.parent_version)
        at = None if entry is None else self._find(entry.lsn)
        if at is None:
            return event.parent_digest
        return bytes(self._digests[at * DIGEST_SIZE_BYTES : (at + 1) * DIGEST_SIZE_BYTES])

    def _rollback_target(self, event: CheckpointEvent) -> int:
        if not event.target:
            return 0
        at = self._find(event.target)
        return self._target if at is None else self._lsns[at]  # For an expired version, name the thread's own record.

    def _find(self, source_lsn: int) -> int | None:
        at = bisect_left(self._source_lsns, source_lsn)
        return at if at < len(self._source_lsns) and self._source_lsns[at] == source_lsn else None

    def _next_version(self, row: BranchRow) -> int:
        head = self._heads.get(row.number)
        return (row.base_version if head is None else head.event.version) + 1


def _places(view: View, thread: int, row: BranchRow) -> Iterator[_SourceVersion]:
    """Yield the beginning of a branch and its own versions, ascending by LSN."""
    begin = [] if row.parent is None else [_SourceVersion(row.lsn, row.number, 0, None)]
    versions = (
        _SourceVersion(entry.lsn, row.number, version, entry) for version, entry in view.entries(thread, row.number)
    )
    return chain(begin, versions)
