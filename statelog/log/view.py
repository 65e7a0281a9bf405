"""Look-ups over one transaction: threads, branches, versions, checkpoints, nodes."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor, keys
from statelog.format.record import FLAG_REDACTED, Record, decode_record, part_digest
from statelog.log.care.policies import PolicyRow, decode_policies
from statelog.log.events import (
    CHECKPOINT_TYPES,
    CheckpointEvent,
    DeleteEvent,
    decode_as,
    decode_checkpoint,
    read_checkpoint,
)
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.kernels import VersionEntry
    from statelog.log.events import Digested
    from statelog.log.transaction import IndexedLog


_LARGE_SIZE_BYTES_MIN = 64 * 1024
_ROWS_MAX = 256
_EVENTS_MAX = 256
"""The maximum number of cached checkpoints of large records."""


class ThreadRow(NamedTuple):
    """The index row of a thread."""

    lsn: int
    id: str
    specs: dict[str, str]
    branch_count: int
    policy: dict[str, Any]


class BranchRow(NamedTuple):
    """The index row of a branch."""

    number: int
    name: str
    parent: int | None
    base_version: int
    lsn: int


class View:
    """A view for look-ups over a transaction. Its results do not borrow from the transaction."""

    __slots__ = ("_events", "transaction")

    def __init__(self, transaction: IndexedLog, events: dict[tuple[int, int], Digested] | None = None) -> None:
        """Create a view of a transaction.

        Args:
            transaction: the transaction.
            events: a cache of checkpoints of large records, by LSN and time. Their checksums are
                slow to compute.
        """
        self.transaction = transaction
        self._events = events

    # --- threads and branches --------------------------------------------------

    def thread_lsn(self, thread_id: str) -> int | None:
        """Return the LSN of the thread called `thread_id`, or None."""
        payload = self.transaction.get_index(keys.encode_thread_id_key(thread_id))
        return None if payload is None else keys.decode_lsn(payload)

    def thread(self, lsn: int) -> ThreadRow:
        """Return a thread's row. Raises CorruptionError if the index has none."""
        row = self.find_thread(lsn)
        if row is None:
            raise missing("thread", lsn)
        return row

    def find_thread(self, lsn: int) -> ThreadRow | None:
        """Return a thread's row, or None if the thread was deleted."""
        payload = self.transaction.get_index(keys.encode_thread_key(lsn))
        return None if payload is None else decode_thread(lsn, payload)

    def is_alive(self, thread: int) -> bool:
        """Return True if a thread exists."""
        return self.transaction.get_index(keys.encode_thread_key(thread)) is not None

    def is_deleted(self, thread_id: str) -> bool:
        """Return True if the id has no thread because its thread was deleted."""
        return self.thread_lsn(thread_id) is None and len(self._deletions(thread_id)) > 0

    def deleted_lives(self, thread_id: str) -> list[int]:
        """Return the LSNs of the deleted threads that had the id `thread_id`, in the order of their deletion."""
        return list(map(self._thread_of_deletion, self._deletions(thread_id)))

    def died_us(self, thread_id: str) -> int | None:
        """Return the time when a thread called `thread_id` was last deleted, or None."""
        deletions = self._deletions(thread_id)
        return self.record(deletions[-1]).time_us if deletions else None

    def _deletions(self, thread_id: str) -> list[int]:
        payload = self.transaction.get_index(keys.encode_tombstone_key(part_digest(thread_id.encode())))
        return keys.decode_lsns(payload or b"")

    def deleted_threads(self) -> Iterator[int]:
        """Yield the LSNs of deleted threads."""
        for _key, payload in self.transaction.scan_index(b"x"):
            yield from map(self._thread_of_deletion, keys.decode_lsns(payload))

    def _thread_of_deletion(self, lsn: int) -> int:
        return decode_as(self.record(lsn), lambda record: DeleteEvent(*record.fields())).thread

    def lent_below(self, thread: int) -> int:
        """Return the LSN below which other threads may reach the nodes of a thread's records, or 0."""
        found = self.transaction.last_index(keys.encode_loan_prefix(thread))
        return 0 if found is None else keys.decode_loan_lsn(found[0])

    def threads(self) -> Iterator[ThreadRow]:
        """Yield all threads in order of creation."""
        for key, payload in self.transaction.scan_index(b"T"):
            yield decode_thread(keys.decode_lsn(key[1:]), payload)

    def policies(self) -> list[PolicyRow]:
        """Return the policies for future threads, in the order in which they were set."""
        return decode_policies(self.transaction.get_index(keys.POLICIES_KEY))

    def branch_number(self, thread: int, name: str) -> int | None:
        """Return the number of the thread's branch called `name`, or None."""
        payload = self.transaction.get_index(keys.encode_branch_name_key(thread, name))
        return None if payload is None else keys.decode_u32(payload)

    def branch(self, thread: int, number: int) -> BranchRow:
        """Return a branch's row. Raises CorruptionError if the index has none."""
        payload = self.transaction.get_index(keys.encode_branch_key(thread, number))
        if payload is None:
            raise missing(f"branch {number} of thread", thread)
        return decode_branch(number, payload)

    def branches(self, thread: int) -> Iterator[BranchRow]:
        """Yield a thread's branches in order of creation."""
        for key, payload in self.transaction.scan_index(keys.encode_branch_prefix(thread)):
            yield decode_branch(keys.decode_u32(key[9:]), payload)

    def branches_named(self, thread: int, prefix: str) -> list[BranchRow]:
        """Return the branches of a thread whose names begin with a prefix, in order of creation."""
        found = self.transaction.scan_index(keys.encode_branch_name_key(thread, prefix))
        return [self.branch(thread, number) for number in sorted(keys.decode_u32(payload) for _key, payload in found)]

    # --- versions -----------------------------------------------------------------

    def owner(self, thread: int, branch: int, version: int) -> int:
        """Return the branch on which a version of `branch` was committed: `branch` itself or an ancestor."""
        while branch:
            row = self.branch(thread, branch)
            if version > row.base_version or row.parent is None:
                break
            branch = row.parent
        return branch

    def head_version(self, thread: int, branch: int) -> int:
        """Return the last version of a branch, or -1."""
        found = self.transaction.last_index(keys.encode_page_prefix(thread, branch))
        if found is not None:
            return kernels.page_range(found[1])[1]
        return self.branch(thread, branch).base_version if branch else -1

    def head_checkpoint(self, thread: int, branch: int) -> Digested | None:
        """Return the last checkpoint of a branch and its digest, from the branch's last page."""
        last = self.last_entry(thread, branch)
        if last is None:
            if branch and not self.is_alive(thread):  # The thread was deleted, so it has no row for this branch.
                return None
            version = self.branch(thread, branch).base_version if branch else -1
            return self.checkpoint_of(thread, branch, version) if version >= 0 else None
        return self.checkpoint_at(thread, *last)

    def last_entry(self, thread: int, branch: int) -> tuple[int, VersionEntry] | None:
        """Return the last version committed on the branch itself, and its entry, or None."""
        found = self.transaction.last_index(keys.encode_page_prefix(thread, branch))
        if found is None:
            return None
        version = kernels.page_range(found[1])[1]
        return version, kernels.page_read(found[1], version)

    def pages(self, thread: int, branch: int, version: int, *, at_most: int) -> list[tuple[int, bytes]]:
        """Return (number, payload) of the branch's own version pages from `version` on, up to `at_most` pages."""
        prefix, start = keys.encode_page_prefix(thread, branch), keys.encode_page_key(thread, branch, version)
        found = islice(self.transaction.scan_index(prefix, start=start), at_most)
        return [(keys.page_number(key), payload) for key, payload in found]

    def entry(self, thread: int, branch: int, version: int) -> VersionEntry | None:
        """Return the entry of a version in the history of `branch`, or None if it does not exist or has expired."""
        if branch:
            if not self.is_alive(thread):  # The thread was deleted, so it has no row for this branch.
                return None
            branch = self.owner(thread, branch, version)
        return self._own_entry(thread, branch, version)

    def _own_entry(self, thread: int, branch: int, version: int) -> VersionEntry | None:
        payload = self.transaction.get_index(keys.encode_page_key(thread, branch, version))
        if payload is None:
            return None
        entry = kernels.page_find(payload, version)
        return entry if entry is not None and entry.lsn else None

    def version_at_time(self, thread: int, branch: int, time_us: int) -> int:
        """Return the last version of a branch committed at or before a time, or -1.

        This is a binary search over pages and then in the page: O(log versions).
        """
        if time_us < 0:
            return -1
        last = self.head_version(thread, branch)
        while last >= 0:
            owner = self.owner(thread, branch, last)
            first = self.branch(thread, owner).base_version + 1 if owner else 0
            version = self._search_time(thread, owner, last, time_us)
            if version >= first:
                return version
            last = first - 1
        return -1

    def _search_time(self, thread: int, branch: int, last: int, time_us: int) -> int:
        """Return the last version of the branch itself, up to `last`, that was committed at or before a time, or -1.

        Some pages may have expired.
        """
        prefix = keys.encode_page_prefix(thread, branch)
        low, high = 0, last // keys.VERSIONS_PER_PAGE
        best = -1
        has_all = True
        while low <= high:
            middle = (low + high) // 2
            start = keys.encode_page_key(thread, branch, middle * keys.VERSIONS_PER_PAGE)
            page = self.transaction.get_index(start) if has_all else None
            if page is None:
                has_all = False
                found = next(self.transaction.scan_index(prefix, start=start, reverse=True), None)
                if found is None:
                    low = middle + 1
                    continue
                start, page = found
            version = kernels.page_find_time(page, time_us)
            if version >= kernels.page_range(page)[0]:
                best = max(best, min(version, last))
                low = middle + 1
            else:
                high = keys.page_number(start) - 1
        return best

    def last_time_us(self, thread: int) -> int:
        """Return the time of a thread's last version, which is its latest head (L2), or 0."""
        latest_us = 0
        for key, _payload in self.transaction.scan_index(keys.encode_branch_prefix(thread)):
            found = self.last_entry(thread, keys.decode_u32(key[9:]))
            if found is not None:
                latest_us = max(latest_us, found[1].time_us)
        return latest_us

    def entries(self, thread: int, branch: int) -> Iterator[tuple[int, VersionEntry]]:
        """Yield (version, entry) of a branch's own versions that have not expired, ascending."""
        for _key, payload in self.transaction.scan_index(keys.encode_page_prefix(thread, branch)):
            first, last = kernels.page_range(payload)
            for version in range(first, last + 1):
                entry = kernels.page_read(payload, version)
                if entry.lsn:
                    yield version, entry

    def entries_after(self, thread: int, branch: int, lsn: int) -> Iterator[tuple[int, VersionEntry]]:
        """Yield (version, entry) of a branch's own versions whose LSN is above `lsn`, descending."""
        for version, entry in self.entries_up_to(thread, branch, keys.VERSION_MAX):
            if entry.lsn <= lsn:
                return
            yield version, entry

    def entries_up_to(self, thread: int, branch: int, last: int) -> Iterator[tuple[int, VersionEntry]]:
        """Yield (version, entry) of a branch's own versions up to `last`, descending."""
        if last < 0:
            return
        prefix = keys.encode_page_prefix(thread, branch)
        start = keys.encode_page_key(thread, branch, last)
        for _key, payload in self.transaction.scan_index(prefix, start=start, reverse=True):
            low, high = kernels.page_range(payload)
            for version in range(min(high, last), low - 1, -1):
                entry = kernels.page_read(payload, version)
                if entry.lsn:
                    yield version, entry

    def previous_version(self, thread: int, branch: int, version: int) -> int:
        """Return the last unexpired version in the history of a branch that is at most `version`, or -1."""
        while version >= 0:
            owner = self.owner(thread, branch, version)
            first = self.branch(thread, owner).base_version + 1 if owner else 0
            prefix = keys.encode_page_prefix(thread, owner)
            start = keys.encode_page_key(thread, owner, version)
            for _key, payload in self.transaction.scan_index(prefix, start=start, reverse=True):
                low, high = kernels.page_range(payload)
                for candidate in range(min(high, version), low - 1, -1):
                    if kernels.page_read(payload, candidate).lsn:
                        return candidate
            version = first - 1
        return -1

    # --- the log ----------------------------------------------------------------------

    def record(self, lsn: int) -> Record:
        """Return a record's checked envelope and body. Raises CorruptionError if the record is missing."""
        data = self.transaction.get_log(lsn)
        if data is None:
            raise missing("record", lsn)
        return decode_record(data, lsn)

    def checkpoint(self, lsn: int) -> CheckpointEvent:
        """Return the checkpoint or rollback in a record. Raises CorruptionError if the record has a different type."""
        return checkpoint_in(self.record(lsn))

    def find_checkpoint(self, lsn: int) -> CheckpointEvent | None:
        """Return the checkpoint or rollback in a record, or None if it has expired.

        A tag or an id may still name an expired checkpoint.
        """
        record = self.record(lsn)
        return None if record.flags & FLAG_REDACTED else checkpoint_in(record)

    def checkpoint_of(self, thread: int, branch: int, version: int) -> Digested | None:
        """Return the checkpoint of a version and its digest. Check that the record agrees with the index."""
        entry = self.entry(thread, branch, version)
        return None if entry is None else self.checkpoint_at(thread, version, entry)

    def snapshot_id(self) -> int | None:
        """Return the number of the last commit in the snapshot that the view reads, or None for a batch."""
        return self.transaction.snapshot_id if type(self.transaction) is ReadTransaction else None

    def checkpoint_at(self, thread: int, version: int, entry: VersionEntry) -> Digested:
        """Return the checkpoint of a version's entry and its digest. Check that the record agrees with the index."""
        found = self._events.get(entry) if self._events else None
        if found is None:
            found = self._read_checkpoint(entry)
        event = found[0]
        if event.thread != thread or event.version != version or event.time_us != entry.time_us:
            message = (
                f"record {entry.lsn} is not version {version} of thread {thread},"
                " but the index lists it as that version"
            )
            raise CorruptionError(message, lsn=entry.lsn)
        return found

    def _read_checkpoint(self, entry: VersionEntry) -> Digested:
        lsn, events = entry.lsn, self._events
        data = self.transaction.get_log(lsn)
        found = None if data is None else read_checkpoint(data, lsn)
        if data is None or found is None:
            event = self.checkpoint(lsn)
            return event, event.digest
        if events is not None and len(data) >= _LARGE_SIZE_BYTES_MIN:
            if len(events) >= _EVENTS_MAX:
                events.clear()
            events[entry] = found
        return found


def checkpoint_in(record: Record) -> CheckpointEvent:
    """Return the checkpoint or rollback in a record. Raises CorruptionError for another type."""
    if record.type not in CHECKPOINT_TYPES:
        message = f"record {record.lsn} is not a checkpoint"
        raise CorruptionError(message, lsn=record.lsn)
    return decode_as(record, decode_checkpoint)


def ordered(found: dict[bytes, bytes], start: bytes, *, reverse: bool) -> list[tuple[bytes, bytes]]:
    """Return what `scan_index` yields, for index rows in memory."""
    if not start:
        return sorted(found.items(), reverse=reverse)
    kept = [item for item in found.items() if (item[0] <= start if reverse else item[0] >= start)]
    return sorted(kept, reverse=reverse)


def missing(what: str, number: int) -> CorruptionError:
    """Return the error for a missing record or index row."""
    message = f"{what} {number} is missing: run `statelog verify`, then `statelog rebuild-index`"
    return CorruptionError(message, lsn=number)


@lru_cache(_ROWS_MAX)
def decode_thread(lsn: int, payload: bytes) -> ThreadRow:
    """Return a thread's row from its payload. The result must not be changed."""
    thread_id, specs, branch_count, policy = _fields(payload, 4)
    return ThreadRow(lsn, thread_id, specs, branch_count, policy)


def encode_thread(row: ThreadRow) -> bytes:
    """Return the payload of a thread's row: the inverse of `decode_thread`."""
    return cbor.encode([row.id, row.specs, row.branch_count, row.policy])


def decode_branch(number: int, payload: bytes) -> BranchRow:
    """Return a branch's row from its payload."""
    name, parent, base_version, lsn = _fields(payload, 4)
    return BranchRow(number, name, parent, base_version, lsn)


def encode_branch(row: BranchRow) -> bytes:
    """Return the payload of a branch's row: the inverse of `decode_branch`."""
    return cbor.encode([row.name, row.parent, row.base_version, row.lsn])


def _fields(payload: bytes, count: int) -> list[Any]:
    fields = cbor.decode(payload)
    if not isinstance(fields, list) or len(fields) != count:
        message = "an index payload does not have the expected fields"
        raise CorruptionError(message)
    return fields
