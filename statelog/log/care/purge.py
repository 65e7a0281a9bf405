"""Purge: removes secrets from all records of a store.

The records are written into a new file, which replaces the old one.

A record keeps its LSN, its time, and the numbers of its nodes. From the first changed record on, the digests of changed
nodes, of checkpoints and of the chain are computed again, because anybody could test a guess of a short secret against
its old digest. The new index is derived from the new log (L4).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from statelog import kernels
from statelog.errors import LimitError, SecretError, UsageError
from statelog.format import cbor, keys
from statelog.format.fields import LIST, first_number, split_array
from statelog.format.record import (
    DIGEST_SIZE_BYTES,
    ENVELOPE_SIZE_BYTES,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    ROW,
    TYPE_THREAD,
    NodeRow,
    Nodes,
    Record,
    decode_record,
    encode_record,
    encode_short_record,
    pack_nodes,
    record_chain_digest,
    stored_type,
    with_previous_chain,
)
from statelog.guard.search import Purger, SecretFound, Sighting
from statelog.limits import ENTRY_ERROR_SIZE_BYTES_MAX, METADATA_SIZE_BYTES_MAX
from statelog.log.care.loans import ANYONE
from statelog.log.care.purge_nodes import NodeRewriter
from statelog.log.care.purge_places import SecretPlaces, checked_records
from statelog.log.care.rebuild import DerivedIndex
from statelog.log.care.secret_scan import IN_ERROR
from statelog.log.care.secret_search import sightings_in
from statelog.log.chain import read_chained
from statelog.log.events import NOTHING_BORROWED, LoanEvent, decode_checkpoint
from statelog.log.index import node_facts
from statelog.log.kinds.loans import LOAN_KIND
from statelog.log.kinds.table import apply_record, decode_event, kind_of, owner_of
from statelog.log.operations import METADATA
from statelog.log.times import now_us
from statelog.log.view import View
from statelog.storage.compaction import check_compactable
from statelog.storage.file.index_file import discard_index
from statelog.storage.file_rewrite import rewrite_file
from statelog.storage.mapped_pages import MappedPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.guard.detector import Detector
    from statelog.log.engine import Engine
    from statelog.log.transaction import IndexedLog
    from statelog.storage.file_rewrite import NewFile
    from statelog.storage.read_transaction import ReadTransaction

    Path = tuple[str, ...]
    Progress = Callable[[int, int], None]

_PROGRESS_RECORDS = 256


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The counts, sizes and duration of a purge."""

    records: int
    """The number of records in the log."""
    redactions: int
    """The number of places in which a secret was replaced, in all versions."""
    size_before_bytes: int
    size_after_bytes: int
    duration_s: float


def purge(
    engine: Engine, found: Iterable[SecretFound], detector: Detector, *, progress: Progress | None = None
) -> PurgeReport:
    """Replace secrets with their redactions in all versions. See `Store.purge`."""
    started_s = time.perf_counter()
    wanted = _checked(found)
    engine.check_alone()
    _refuse_remote(engine)
    file = engine.store_file.lmdb_file
    check_compactable(file, engine.store_file.wal)
    size_before_bytes = os.fstat(file.locks.descriptor).st_size
    if not wanted:
        return PurgeReport(0, 0, size_before_bytes, size_before_bytes, time.perf_counter() - started_s)
    work: _Purge | None = None

    def fill(old: ReadTransaction, new: NewFile) -> None:
        nonlocal work
        work = _Purge(engine, old, new, Purger(detector, _sightings(old, detector, wanted)), progress)
        work.run()

    def check(data: bytes) -> None:
        assert work is not None
        if work.purger.holds(data):
            message = "a secret is still in the new file, outside the records that had it. The store was not changed"
            raise SecretError(message, path=str(file.path))

    def swapped() -> None:
        assert work is not None
        engine.purged(work.last_lsn)

    discard_index(file.path)
    size_after_bytes = rewrite_file(file, engine.store_file.wal, fill, check, swapped)
    swapped()  # Drop the caches again, because another OS thread may have read old records since the first call.
    discard_index(file.path)  # Discard the text index again, because a search may have indexed the old file since.
    assert work is not None
    return PurgeReport(
        work.last_lsn, work.redactions, size_before_bytes, size_after_bytes, time.perf_counter() - started_s
    )


def _checked(found: Iterable[SecretFound]) -> list[SecretFound]:
    wanted = list(found) if hasattr(found, "__iter__") and not isinstance(found, str | bytes) else None
    if wanted is None or not all(isinstance(each, SecretFound) for each in wanted):
        message = f"found must be a list that find_secrets has returned, or a part of it, not {type(found).__name__}"
        raise UsageError(message, argument="found")
    return wanted


def _refuse_remote(engine: Engine) -> None:
    """Raise UsageError if a fleet ships the store, because the shipped segments also contain the secrets."""
    if engine.remote is not None:
        path = engine.store_file.path
        message = (
            f"{path} is shipped by a fleet, and the shipped segments would keep the secrets: restore the store to a"
            " file, purge the file, ship it under another name, and delete this store"
        )
        raise UsageError(message, path=str(path))


def _sightings(old: IndexedLog, detector: Detector, wanted: list[SecretFound]) -> list[Sighting]:
    """Read the texts of the wanted secrets from the records that contain them. Return the texts with their places.

    Raises:
        UsageError: a record does not contain its secret. Facts: lsn, rule, fingerprint.
    """
    at = {(each.lsn, each.rule, each.fingerprint) for each in wanted}
    found = {
        (lsn, each.rule, each.fingerprint): each
        for lsn, each in sightings_in(old, detector, sorted({lsn for lsn, _rule, _fingerprint in at}))
        if (lsn, each.rule, each.fingerprint) in at
    }
    for lsn, rule, fingerprint in sorted(at - found.keys()):
        message = (
            f"record {lsn} has no secret with rule {rule} and fingerprint {fingerprint}: the secret was found in"
            " another store or with another guard, or it was purged since"
        )
        raise UsageError(message, lsn=lsn, rule=rule, fingerprint=fingerprint)
    return [*found.values()]


class _Purge:
    """Purges in two passes: the first locates the secrets, and the second writes all records into the new file."""

    def __init__(
        self, engine: Engine, old: ReadTransaction, new: NewFile, purger: Purger, progress: Progress | None
    ) -> None:
        self._old = old
        self._new = new
        self.purger = purger
        self._progress = progress
        self._pages = MappedPages(engine.store_file.lmdb_file)
        self._view = View(old)
        self.last_lsn = old.last_lsn()
        self._places = SecretPlaces(old, purger, self._pages)
        self._hit = self._places.hit
        self._chain = b""
        """The chain digest of the last record in the new file. It is empty until the first changed record."""
        self._checkpoints: dict[bytes, bytes] = {}
        """The new digests of checkpoints, keyed by their previous digests."""
        self._changed_versions: set[int] = set()
        """The threads with a version whose digest has changed. The digests of their later versions change as well."""
        self._dirty: set[int] = set()
        """The owners of at least one changed node."""
        self._is_dirty_of_nobody = False
        """Whether a node of a deleted thread has changed. Any thread may have borrowed it before the deletion."""
        self._lenders = _lenders(old)
        self._alive: dict[int, bool] = {}
        places = self._places
        self._nodes = NodeRewriter(old, new, purger, places.edits, places.paths, places.blanks)
        self._redactions = 0

    @property
    def redactions(self) -> int:
        """The number of places in which a secret was replaced."""
        return self._redactions + self._nodes.redactions

    def run(self) -> None:
        """Fill the new file."""
        self._places.find(self._report_progress)
        self._new.copy_meta(self._old, self.last_lsn)
        for lsn, data in checked_records(self._old, self._pages):
            self._rewrite(lsn, data)
            self._report_progress(self.last_lsn + lsn)
        self._new.put_index(sorted((self._renamed_index() or self._derived_index()).items()))

    def _report_progress(self, done: int) -> None:
        if self._progress is not None and (done % _PROGRESS_RECORDS == 0 or done == 2 * self.last_lsn):
            self._progress(done, 2 * self.last_lsn)

    # --- one record ----------------------------------------------------------------------

    def _rewrite(self, lsn: int, data: bytes) -> None:
        """Append a record to the new file, without the secrets and with the new chain digest of the previous record."""
        record = decode_record(data, lsn)
        if not self._may_change(record):
            self._put(record, with_previous_chain(data, self._chain) if self._chain else data)
            return
        event = None if record.flags & FLAG_REDACTED else decode_event(record)
        owner = record.redacted().thread if event is None else owner_of(event, lsn)
        rows = self._rows(lsn, data, owner)
        body = self._body(record, event, owner)
        if rows is not None or body != record.body:
            if not self._chain:
                self._chain = _chain_before(self._old, record)
            data = _encoded(data, record, body, rows, self._chain)
            record = record._replace(body=body)
        elif self._chain:
            data = with_previous_chain(data, self._chain)
        self._put(record, data)

    def _may_change(self, record: Record) -> bool:
        """Return False if a record certainly stays the same, except for its chain digest."""
        if record.lsn in self._hit or record.flags & FLAG_REDACTED or self._nodes.has_renewed_large:
            return True
        if not self._nodes.renewed and not self._checkpoints:
            return False
        owner = record.lsn if record.type == TYPE_THREAD else first_number(record.body)
        return self._is_of_changed(owner) or owner in self._changed_versions

    def _put(self, record: Record, data: bytes) -> None:
        if self._chain:
            self._chain = _chain_digest(data, record, self._chain)
        if record.lsn in self._hit and self.purger.holds(data):
            message = f"a secret is still in record {record.lsn} of the new file. The store was not changed"
            raise SecretError(message, lsn=record.lsn, path=_place(data, record, self.purger))
        self._new.put_log(record.lsn, data)

    # --- the index (L4) ------------------------------------------------------------------------

    def _renamed_index(self) -> dict[bytes, bytes] | None:
        """Return the old index with new node digests, or None if more than the digests must change."""
        if self._nodes.is_reshaped:
            return None
        rows: dict[bytes, bytes] = {}
        count = 0
        for key, payload in self._old.scan_index(b""):
            at = _DIGEST_AT.get(key[:1])
            renewed = None if at is None else self._nodes.renewed_digests.get(key[at : at + DIGEST_SIZE_BYTES])
            if at is not None and renewed is not None:
                key = key[:at] + renewed.digest + key[at + DIGEST_SIZE_BYTES :]
            rows[key] = payload
            count += 1
        return rows if len(rows) == count else None  # If there are fewer rows, two different nodes have become equal.

    def _derived_index(self) -> dict[bytes, bytes]:
        """Return the index that follows from the new log, and lend the nodes that it no longer shows as borrowed.

        A borrowed node may have become too small for the index, or equal to a node in a later record, which the index
        then shows as borrowed in its place. The index does not say which threads refer to a borrowed node. So the loan
        is to any thread (V2).
        """
        index = DerivedIndex(self._new)
        for lsn in range(1, self.last_lsn + 1):
            self._apply(index, lsn)
        left = _borrowed_places(index)
        lenders = {owner for place, owner in _borrowed_places(self._old).items() if owner and place not in left}
        for lender in sorted(lenders):
            self._apply(index, self._lend(lender))
        return index.payloads

    def _apply(self, index: DerivedIndex, lsn: int) -> None:
        data = bytes(self._new.get_log(lsn) or b"")
        record = decode_record(data, lsn)
        event = None if record.flags & FLAG_REDACTED else decode_event(record)
        apply_record(index, record, event, node_facts(data))

    def _lend(self, lender: int) -> int:
        """Append a loan of the lender to any thread, and return its LSN."""
        lsn = self._new.last_lsn() + 1
        body = LOAN_KIND.encode(LoanEvent(ANYONE, lender, []), lsn)
        data, _chain = encode_record(LOAN_KIND.type, lsn=lsn, time_us=now_us(), previous_chain=self._chain, body=body)
        self._put(decode_record(data, lsn), data)
        return lsn

    # --- the parts of a record -------------------------------------------------------------------

    def _rows(self, lsn: int, data: bytes, owner: int) -> dict[int, NodeRow] | None:
        """Return all nodes of a record, keyed by number, or None if no node of the record changes."""
        if lsn not in self._hit and not (self._nodes.renewed and self._is_of_changed(owner)):
            return None
        rows = self._nodes.rewrite(lsn, owner, data, kernels.record_rows(data))
        if rows is not None:
            self._dirty.add(owner)
            self._is_dirty_of_nobody = self._is_dirty_of_nobody or not owner or not self._is_alive(owner)
            self._hit.add(lsn)
        return rows

    def _is_of_changed(self, owner: int) -> bool:
        """Return True if an owner has changed nodes, or may refer to changed nodes of others.

        Only the first record that borrows a node lists it. So once a node that can be borrowed has changed, any record
        may refer to it.
        """
        if self._nodes.has_renewed_large or self._is_dirty_of_nobody or not owner or owner in self._dirty:
            return True
        lenders = (self._lenders.get(each, ()) for each in (owner, ANYONE))
        return not self._is_alive(owner) or any(not self._dirty.isdisjoint(each) for each in lenders)

    def _is_alive(self, owner: int) -> bool:
        if owner not in self._alive:
            self._alive[owner] = self._view.is_alive(owner)
        return self._alive[owner]

    def _body(self, record: Record, event: Any, owner: int) -> bytes:
        """Return the body of a record without the secrets, and with new digests."""
        renewed = self._nodes.renewed_digests
        borrowed = [renewed[each].digest if each in renewed else each for each in _borrowed(record, event)]
        if event is None:
            redacted = record.redacted()
            digest = redacted.digest
            if redacted.had_event:  # Replace the digest, which could confirm a guess of the content.
                digest = blake2b(digest, digest_size=DIGEST_SIZE_BYTES, key=os.urandom(32)).digest()
            return cbor.encode([owner, digest, borrowed])
        kind = kind_of(record)
        is_version = kind.is_version
        changed: dict[str | int | None, bytes] = {}
        root = next((self._nodes.renewed.get((lsn, digest)) for _type, digest, lsn, _number in kind.roots(event)), None)
        if root is not None:
            changed[kind.root_field] = cbor.encode(root.digest)
        if borrowed and kind.borrowed_field is not None:
            changed[kind.borrowed_field] = cbor.encode(borrowed)
        if is_version and event.parent_digest in self._checkpoints:
            changed["parent_digest"] = cbor.encode(self._checkpoints[event.parent_digest])
        may_hold = record.lsn in self._hit and self.purger.may_hold(record.body)
        if not changed and not may_hold:
            return record.body
        parts = split_array(record.body)
        for at, (field, part) in enumerate(zip(event._fields, parts, strict=False)):
            if field in _USER_FIELDS and may_hold:
                parts[at] = self._redacted_field(record.lsn, field, part, event)
            else:
                parts[at] = changed.get(at, changed.get(field, part))
        body = cbor.head(LIST, len(parts)) + b"".join(parts)
        if is_version and body != record.body:
            self._changed_versions.add(owner)
            self._checkpoints[event.digest] = decode_checkpoint(record._replace(body=body)).digest
        return body

    def _redacted_field(self, lsn: int, field: str, part: bytes, event: Any) -> bytes:
        """Return metadata, or the error of a claim, without the secrets."""
        path = (METADATA,) if field == METADATA else (event.key, IN_ERROR)
        made = self.purger.redacted(part, path)
        self._redactions += made != part
        if field == METADATA and len(made) > METADATA_SIZE_BYTES_MAX:
            message = (
                f"the metadata of record {lsn} has {len(made)} bytes after redaction; at most {METADATA_SIZE_BYTES_MAX}"
            )
            raise LimitError(message, lsn=lsn, actual=len(made), limit=METADATA_SIZE_BYTES_MAX)
        if field != METADATA and made != part:
            text = cbor.decode(made).encode()[:ENTRY_ERROR_SIZE_BYTES_MAX].decode("utf-8", "ignore")
            return cbor.encode(text)
        return made


_DIGEST_AT = {b"d": 1, b"O": 1, b"o": 9}
"""The offset of a node's digest in an index key, by the first byte of the key."""

_USER_FIELDS = frozenset((METADATA, "error"))
"""The fields of events that hold values given by users."""


def _borrowed(record: Record, event: Any) -> list[bytes]:
    """Return the digests of the nodes that a record borrows."""
    if event is None:
        return record.redacted().borrowed
    field = kind_of(record).borrowed_field
    found = NOTHING_BORROWED if field is None else event[field]
    if type(found) is not bytes:
        return list(found)
    return [] if found == NOTHING_BORROWED else list(cbor.decode(found))


def _borrowed_places(index: DerivedIndex | IndexedLog) -> dict[tuple[int, int], int]:
    """Return the owner of each widely shared node that other threads may refer to, by LSN and number."""
    places = (keys.decode_place(payload) for prefix in (b"d", b"O") for _key, payload in index.scan_index(prefix))
    return {(place.lsn, place.node): place.thread for place in places if place.is_borrowed}


def _lenders(old: IndexedLog) -> dict[int, set[int]]:
    """Return each thread's lenders: the threads whose nodes it may refer to, directly or through other lenders."""
    lenders: dict[int, set[int]] = {}
    for key, _payload in old.scan_index(b"L"):
        lender = keys.decode_debt_lender(key)
        lenders.setdefault(keys.decode_debt_thread(key), set()).add(lender)
    for found in lenders.values():
        pending = [*found]
        while pending:
            new = lenders.get(pending.pop(), set()) - found
            found |= new
            pending += new
    return lenders


def _chain_before(old: IndexedLog, record: Record) -> bytes:
    """Return the chain digest before a record in the old log."""
    if record.previous_chain:
        return record.previous_chain
    found = read_chained(old.get_log, record.lsn)
    assert found is not None
    return found[0].previous_chain


def _nodes_in(data: bytes, record: Record) -> Nodes:
    """Return the encoded nodes of a record that was not vacuumed."""
    start = ENVELOPE_SIZE_BYTES + len(record.body)
    end = start + ROW.size * record.node_count
    return Nodes(record.node_count, data[start:end], data[end:])


def _encoded(data: bytes, record: Record, body: bytes, rows: dict[int, NodeRow] | None, previous: bytes) -> bytes:
    """Encode a record with a new body and the nodes `rows`. If `rows` is None, the record keeps its nodes."""
    lsn, time_us = record.lsn, record.time_us
    if record.flags & FLAG_VACUUMED:
        if rows is None:
            rows = {
                number: NodeRow(type_, digest, data[at : at + total_size], content_size)
                for number, (type_, digest, at, content_size, total_size) in kernels.record_rows(data).items()
            }
        return encode_short_record(
            record.type, record.flags, lsn, time_us, previous_chain=previous, body=body, nodes=rows
        )
    nodes = _nodes_in(data, record) if rows is None else pack_nodes([*rows.values()])
    return encode_record(
        record.type, lsn=lsn, time_us=time_us, previous_chain=previous, body=body, nodes=nodes, flags=record.flags
    )[0]


def _chain_digest(data: bytes, record: Record, previous: bytes) -> bytes:
    """Return the chain digest of an encoded record whose predecessor has the chain digest `previous`.

    Use `previous` and not `record.previous_chain`, which may be outdated.
    """
    if record.flags & FLAG_REDACTED:
        return record_chain_digest(data, record._replace(previous_chain=previous))
    start = ENVELOPE_SIZE_BYTES + len(record.body)
    count = int.from_bytes(data[ENVELOPE_SIZE_BYTES - 4 : ENVELOPE_SIZE_BYTES])
    rows = data[start : start + ROW.size * count]
    type_ = stored_type(record.type, record.flags)
    return kernels.chain_digest(type_, record.flags, record.lsn, record.time_us, previous, record.body, rows)


def _place(data: bytes, record: Record, purger: Purger) -> str:
    """Describe, for a message, where an encoded record contains a secret."""
    if purger.holds(record.body):
        return "body"
    for number, (_type, _digest, at, _content, total_size) in kernels.record_rows(data).items():
        if purger.holds(data[at : at + total_size]):
            return f"node {number}"
    return "between two nodes"
