"""Records and index changes that are staged for one transaction.

Invariant L1: LSNs are dense from 1. L2: the time of versions strictly ascends within a thread. L3: every record
includes the chain digest of the previous record. Only this module maintains these invariants.

A batch writes nothing until the function that fills it (`work`) has succeeded. It is then applied as a whole. A batch
over a read transaction only shows what a commit would do.
"""

from __future__ import annotations

from operator import gt, lt
from typing import TYPE_CHECKING, Any, NamedTuple

from xxhash import xxh3_64_digest

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.format.keys import VERSIONS_PER_PAGE
from statelog.format.record import (
    FLAG_CONTINUES,
    FLAG_NAMED,
    NO_DIGEST,
    NO_NODES,
    REST_SIZE_BYTES,
    TYPE_ENTRY,
    TYPE_FORK,
    TYPE_LOAN,
    TYPE_POLICY,
    TYPE_TAG,
    TYPE_THREAD,
    Nodes,
    encode_record,
    find_node,
    sealed,
)
from statelog.log.chain import read_chained
from statelog.log.events import CHECKPOINT_TYPES, read_checkpoint
from statelog.log.nodes import NodeCache, read_node
from statelog.log.prints import Prints
from statelog.log.times import now_us
from statelog.log.view import ThreadRow, View
from statelog.tree.node import ROOT, Node, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.guard.hook import Redactor
    from statelog.log.events import CheckpointEvent
    from statelog.log.kinds.entries import KnownEntry
    from statelog.log.transaction import IndexedLog
    from statelog.storage.notify.wake import Wake
    from statelog.storage.write_transaction import WriteTransaction


_new = tuple.__new__
"""Constructs a named tuple without calling its `__new__`, which is a slower Python function."""

HEADS_MAX = 1024
"""The maximum number of remembered heads. Some heads include the nodes that their next step reads (`Head.held`)."""

ENTRIES_MAX = 1024
"""The maximum number of remembered entries. A write to a remembered entry does not have to read its last record."""

JUMPS_MAX = 4096
"""The maximum number of remembered jump pointers. Most jump pointers lead to a recent checkpoint."""

FOLLOWED_MAX = 64
FOLLOWED_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The maximum number and total size of the records of other processes that `RememberedState.caught_up` reads.

Beyond these limits, reading the heads again costs less.
"""

_TYPES_OF_ROWS = frozenset((TYPE_FORK, TYPE_POLICY))
"""Record types that change only one fact in `RememberedState`: the row of the thread that their first field names."""

_TYPES_APART = frozenset((TYPE_THREAD, TYPE_TAG, TYPE_LOAN))
"""Record types that do not change anything in `RememberedState`."""

Jump = tuple[int | None, int | None, int]
"""The branch, version and depth that a checkpoint jumps to. It is a plain tuple, which the garbage collector does not
track.
"""


class LogEnd(NamedTuple):
    """The last record of the log."""

    lsn: int
    chain: bytes
    time_us: int


NOTHING_HELD = b""


class Head(NamedTuple):
    """The last checkpoint of a branch, with the data that the next checkpoint needs."""

    event: CheckpointEvent
    digest: bytes
    page: bytes | None = None
    """The version page that contains the checkpoint, or None if the page is not known. The head is valid as long as the
    index contains this page.
    """
    held: bytes = NOTHING_HELD
    """Encoded nodes that the next step reads, such as the root. Only `kernels.step` decodes these bytes."""

    @property
    def head(self) -> Head:
        """This head itself.

        Code that uses the outcome of a commit reads `outcome.head`, and a Head can stand in for an outcome.
        """
        return self

    def page_before(self, branch: int, version: int) -> bytes | None:
        """Return the version page to which the next checkpoint belongs: empty if it is new, None if it is not known."""
        page = self.page
        if page is None or self.event.branch != branch:
            return None
        return page if version % VERSIONS_PER_PAGE else b""


Made = tuple[bytes, bytes, int]
"""Three items: an encoded record that lacks only the checksum, the record's chain digest, and the offset at which its
body ends. A batch with such a record has no other staged record.
"""


class Staged(NamedTuple):
    """A staged record."""

    type: int
    time_us: int
    body: bytes
    nodes: Nodes
    made: Made | None = None
    """The record if a kernel has encoded it. In that case, `body` is empty."""


def read_log_end(transaction: IndexedLog) -> LogEnd:
    """Read the last record, and return the end of the log. Raises CorruptionError."""
    lsn = transaction.last_lsn()
    if not lsn:
        return LogEnd(0, NO_DIGEST, 0)
    found = read_chained(transaction.get_log, lsn)
    if found is None:
        message = f"record {lsn}, the last one, is missing"
        raise CorruptionError(message, lsn=lsn)
    record, chain = found
    return LogEnd(lsn, chain, record.time_us)


class RememberedState:
    """The state of the store that a process remembers after its last commit. `caught_up` adds commits of others."""

    __slots__ = (
        "end", "entries", "expiries_us", "greatest_ids", "heads", "identities", "jumps", "owners", "prints", "rows",
        "times_us",
    )  # fmt: skip

    def __init__(self, end: LogEnd) -> None:
        self.end = end
        self.heads: dict[tuple[int, int], Head] = {}
        """The heads of branches, keyed by thread and branch."""
        self.rows: dict[int, ThreadRow] = {}
        """Index rows of threads, keyed by thread."""
        self.times_us: dict[int, int] = {}
        """The time of the last version of each thread."""
        self.jumps: dict[tuple[int, int, int], Jump] = {}
        """Jump pointers of recent checkpoints, keyed by thread, branch and version.

        In threads with one branch, checkpoints whose version equals their depth are left out."""
        self.greatest_ids: dict[int, bytes] = {}
        """For some threads, an upper bound of the checkpoint ids that callers chose."""
        self.owners: dict[str, int] = {}
        """The LSN of each thread that owns board or lease records, keyed by thread id."""
        self.entries: dict[tuple[int, str], KnownEntry] = {}
        """Rows and events of recent entries and leases, keyed by owning thread and key."""
        self.expiries_us: dict[int, int] = {}
        """For each owning thread, a time before which no entry expires."""
        self.identities: dict[bytes, bytes] = {}
        """A cache that `tree.sequence.Identities` fills. Its content is always valid."""
        self.prints = Prints()
        """A cache that `log.step` fills. Its content is always valid."""

    def copy(self) -> RememberedState:
        """Return a copy that can change independently. It starts with an empty cache of keyed-list fingerprints."""
        copied = RememberedState(self.end)
        copied.heads, copied.jumps = self.heads.copy(), self.jumps.copy()
        copied.rows, copied.times_us = self.rows.copy(), self.times_us.copy()
        copied.greatest_ids, copied.identities = self.greatest_ids.copy(), self.identities
        copied.owners, copied.expiries_us = self.owners.copy(), self.expiries_us.copy()
        copied.entries = self.entries.copy()
        return copied

    def caught_up(self, transaction: WriteTransaction) -> RememberedState:
        """Return the remembered state as of the beginning of `transaction`, including the commits of other processes.

        If possible, update this object from the records that other processes have appended, and return it. If there are
        too many records, or they do not contain all changes, return a new object with only the facts that never change.
        """
        count = transaction.log_count() - self.end[0]
        # Follow only if this transaction has changed nothing, because its changes may be rolled back. If another
        # process committed without appending records, nothing shows what it changed, so do not follow either.
        if 0 < count <= FOLLOWED_MAX and not transaction.changes and self._follow(transaction, count):
            return self
        forgetful = RememberedState(read_log_end(transaction))
        forgetful.identities, forgetful.prints = self.identities, self.prints
        return forgetful

    def _follow(self, transaction: WriteTransaction, count: int) -> bool:
        """Update the remembered state from the next `count` records of the log.

        Return False if the records do not determine the new state.
        """
        end_lsn, chain, time_us = self.end
        heads, times_us, left_bytes = self.heads, self.times_us, FOLLOWED_SIZE_BYTES_MAX
        for lsn in range(end_lsn + 1, end_lsn + count + 1):
            lent = transaction.get_log(lsn)
            if lent is None or (left_bytes := left_bytes - len(lent)) < 0:
                return False
            data = bytes(lent)
            if xxh3_64_digest(data[8:]) != data[:8] or (found := kernels.record_next(data, lsn, chain)) is None:
                return False
            type_, thread, branch, time_us, chain = found
            if type_ in CHECKPOINT_TYPES:
                is_remembered = (thread, branch) in heads or thread in self.greatest_ids
                if is_remembered and not self._follow_checkpoint(data, lsn):
                    return False
                if thread in times_us:
                    times_us[thread] = max(times_us[thread], time_us)
            elif type_ in _TYPES_OF_ROWS:
                self.rows.pop(thread, None)
            elif type_ == TYPE_ENTRY:
                self.entries.clear()
                self.expiries_us.clear()
            elif type_ not in _TYPES_APART:
                return False
        self.end = _new(LogEnd, (end_lsn + count, chain, time_us))
        return True

    def _follow_checkpoint(self, data: bytes, lsn: int) -> bool:
        """Update the remembered head and id bound from a checkpoint record.

        Return False if the record does not determine them.
        """
        found = read_checkpoint(data, lsn)
        if found is None:
            return False
        event, digest = found
        thread, place = event.thread, (event.thread, event.branch)
        if event.id is not None and thread in self.greatest_ids:
            self.greatest_ids[thread] = max(self.greatest_ids[thread], event.id.encode())
        if place in self.heads:
            head = _next_head(self.heads[place], event, digest, data)
            if head is None:
                return False
            self.heads[place] = head
            self._note_jump(event)
        return True

    def take_over(self, batch: Batch) -> None:
        """Update the remembered state from an applied batch."""
        heads, staged = self.heads, batch.staged
        if batch.changes_threads or len(heads) > HEADS_MAX or len(self.jumps) > JUMPS_MAX:
            for each in (heads, self.jumps, self.rows, self.times_us, self.greatest_ids):
                each.clear()
            self.owners.clear()
            self.expiries_us.clear()
            self.entries.clear()
        for key in batch.index:
            if key[:1] == keys.THREAD_PREFIX:
                self.rows.pop(keys.decode_lsn(key[1:]), None)
        if staged:
            self.end = _new(LogEnd, (self.end[0] + len(staged), batch.chain, staged[-1][1]))
        self.times_us.update(batch.times_us)
        for place, head in batch.new_heads.items():
            heads[place] = head
            event = head[0]
            # If version and depth are equal in a thread with one branch, no reader needs the jump pointer: see
            # `operations.parent_links`.
            if event.version != event.depth or not (row := self.rows.get(event.thread)) or row.branch_count > 1:
                self._note_jump(event)
        if batch.entries:
            if len(self.entries) > ENTRIES_MAX:
                self.entries.clear()
            self.entries.update(batch.entries)
            self.expiries_us.update(batch.expiries_us)

    def _note_jump(self, event: CheckpointEvent) -> None:
        jump = (event.jump_branch, event.jump_version, event.jump_depth)
        self.jumps[event.thread, event.branch, event.version] = jump


def _next_head(former: Head, event: CheckpointEvent, digest: bytes, record: bytes) -> Head | None:
    """Return the head that follows `former`, with its version page and root, from the record of the checkpoint.

    Return None if the record does not determine the head.
    """
    if event.version != former.event.version + 1:
        return None
    page = former.page_before(event.branch, event.version)
    if page is not None:
        page = kernels.page_append(page, event.version, event.lsn, event.time_us)
    held = NOTHING_HELD
    if event.root_lsn == event.lsn:
        found = kernels.record_find(record, len(record), ROOT, (event.root_digest,), (event.root_node,))
        if not found:
            return None
        at, content_size, size = found[0]
        held = kernels.pack_held(ROOT, event.root_digest, event.lsn, size, content_size) + record[at : at + size]
    return Head(event, digest, page, held)


class Batch:
    """Staged records and index changes over a transaction. Its `view` reads them as if they were stored."""

    # Class attributes hold the initial values, which is faster, because every commit creates a batch.
    chain = NO_DIGEST
    """The chain digest of the last encoded record."""
    changes_threads = False
    """True if a thread is deleted or its schema grows. Then all remembered facts about threads become invalid."""
    wakes = 0
    """The mask of the waiters to wake after the commit: see `Wake.notify`."""
    calls: tuple[Callable[[Wake], object], ...] = ()
    """Functions to call after the commit. They wake the waiters that a mask cannot select."""
    guard: Redactor | None = None
    """The redactor that keeps secrets out of the records, or None if the store was opened without a guard."""
    _encoded: tuple[bytes, ...] = ()
    """The encoded records before the last staged one. Staging more records does not change them."""
    _encoded_chain = NO_DIGEST

    def __init__(self, transaction: IndexedLog, cache: NodeCache, memory: RememberedState) -> None:
        self._transaction = transaction
        self._cache = cache
        self._end = memory.end
        self.staged: list[Staged] = []
        self.index: dict[bytes, bytes | None] = {}
        """Staged index changes, keyed by index key. None deletes the key."""
        self.memory = memory
        self.new_heads: dict[tuple[int, int], Head] = {}
        self.times_us: dict[int, int] = {}
        """The time of the last staged version of each thread."""
        self.entries: dict[tuple[int, str], KnownEntry] = {}
        """Entries that the batch has read or staged, keyed by owning thread and key. Each entry is read only once."""
        self.expiries_us: dict[int, int] = {}
        """The changes of `RememberedState.expiries_us`."""

    @property
    def view(self) -> View:
        """A view of the stored data with the staged changes."""
        # Do not store the view: the reference cycle would delay freeing both until the garbage collector runs.
        return View(self)

    # --- reading ---------------------------------------------------------------

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload of a key, or None. A staged change takes precedence."""
        if key in self.index:
            return self.index[key]
        return self._transaction.get_index(key)

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that begins with `prefix`, and its payload, or None."""
        staged = [key for key, payload in self.index.items() if payload is not None and key.startswith(prefix)]
        found = self._transaction.last_index(prefix)
        if staged and (found is None or max(staged) >= found[0]):
            key = max(staged)
            return key, self.index[key] or b""
        return found

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with `prefix` and their payloads, from the key `start` on, or in reverse."""
        staged = {key: payload for key, payload in self.index.items() if key.startswith(prefix)}
        stored = self._transaction.scan_index(prefix, start=start, reverse=reverse)
        if not staged:
            yield from stored
            return
        is_behind = gt if not reverse else lt
        wanted = sorted((key for key in staged if not start or not is_behind(start, key)), reverse=reverse)
        at, found = 0, next(stored, None)
        while found is not None or at < len(wanted):
            if found is None or (at < len(wanted) and not is_behind(wanted[at], found[0])):
                key, at = wanted[at], at + 1
                if found is not None and found[0] == key:
                    found = next(stored, None)
                if (payload := staged[key]) is not None:
                    yield key, payload
            else:
                yield found
                found = next(stored, None)

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record of the log, or encode and return a staged record."""
        index = lsn - self._end.lsn - 1
        if 0 <= index < len(self.staged):
            return memoryview(self._record(index))
        return self._transaction.get_log(lsn)

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a record as `get_log` does, but without checking its MAC."""
        return self._transaction.lend_log(lsn) if lsn <= self._end.lsn else self.get_log(lsn)

    def last_lsn(self) -> int:
        """Return the last LSN, including staged records."""
        return self._end.lsn + len(self.staged)

    def read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node of the log or of a staged record."""
        node = self._cache.get(digest, lsn, number)
        if node is not None:
            return node
        return self.staged_node(digest, lsn, number) or read_node(
            self._transaction, self._cache, type_, digest, lsn, number
        )

    def staged_node(self, digest: bytes, lsn: int, number: int) -> Node | None:
        """Return a node of a staged record, or None if no staged record has a node with this digest."""
        index = lsn - self._end.lsn - 1
        if not 0 <= index < len(self.staged):
            return None
        _count, rows, data = self.staged[index].nodes
        found = find_node(rows, data, digest, number)
        return None if found is None else Node(*found, lsn)

    def workspace(self, thread: int, borrowed: list[bytes], known: Sequence[tuple[bytes, int, int]] = ()) -> Workspace:
        """Return a workspace for the nodes of one record of a thread.

        Args:
            thread: the thread.
            borrowed: a list to which the workspace appends the digests of nodes that it is the first to borrow from
                other threads.
            known: the (digest, LSN, number) of each node of the thread that the new state may reuse.
        """

        def find_large(digest: bytes) -> tuple[int, int] | None:
            payload = self.get_index(keys.encode_digest_key(digest))
            if payload is None:
                return None
            place = keys.decode_place(payload)
            if place.thread != thread and not place.is_borrowed:
                borrowed.append(digest)
            return place.lsn, place.node

        workspace = Workspace(self.read_node, find_large)
        for place in known:
            workspace.know(*place)
        return workspace

    def reader(self) -> Workspace:
        """Return a workspace that only reads."""
        return Workspace(self.read_node)

    def head(self, thread: int, branch: int) -> Head | None:
        """Return the head of a branch, or None if the branch has no checkpoint."""
        place = (thread, branch)
        found = self.new_heads.get(place) or self.memory.heads.get(place)
        if found is not None:
            return found
        read = self.view.head_checkpoint(thread, branch)
        return None if read is None else Head(*read)

    def find_thread(self, thread: int) -> ThreadRow | None:
        """Return the row of a thread, or None if the thread was deleted."""
        row = self.memory.rows.get(thread)
        is_staged = self.index and keys.encode_thread_key(thread) in self.index
        if row is None or is_staged:
            row = self.view.find_thread(thread)
            if not is_staged and row is not None:
                self.memory.rows[thread] = row
        return row

    def find_owner(self, id: str) -> int | None:
        """Return the LSN of the thread with this id, or None. Such a thread owns the board or lease records."""
        lsn = self.memory.owners.get(id)
        if lsn is None:
            lsn = self.view.thread_lsn(id)
            # Do not remember a staged thread, because its commit may fail.
            if lsn is not None and lsn <= self._end.lsn:
                self.memory.owners[id] = lsn
        return lsn

    def jump(self, thread: int, branch: int, version: int) -> Jump | None:
        """Return the jump pointer of a version, from memory if possible; None if the version has expired."""
        known = self.memory.jumps.get((thread, branch, version))
        if known is not None:
            return known
        head = self.new_heads.get((thread, branch))
        if head is not None and head.event.version == version:
            event = head.event
        else:
            read = self.view.checkpoint_of(thread, branch, version)
            if read is None:
                return None
            event = read[0]
        found = (event.jump_branch, event.jump_version, event.jump_depth)
        if event.lsn <= self._end.lsn:  # Do not remember a staged version, because its commit may fail.
            self.memory.jumps[thread, branch, version] = found
        return found

    def has_one_branch(self, thread: int) -> bool:
        """Return True if a thread has only one branch."""
        row = None if self.index else self.memory.rows.get(thread)
        if row is None:
            row = self.find_thread(thread)
        return row is not None and row.branch_count == 1

    def has_id(self, thread: int, id: str) -> bool:
        """Return True if a checkpoint of the thread has this id."""
        name, known = id.encode(), self.memory.greatest_ids.get(thread)
        if known is None:
            prefix = keys.encode_checkpoint_id_key(thread, "")
            last = self.last_index(prefix)
            known = self.memory.greatest_ids[thread] = b"" if last is None else last[0][len(prefix) :]
        return name <= known and self.get_index(keys.encode_checkpoint_id_key(thread, id)) is not None

    def note_id(self, thread: int, id: str) -> None:
        """Remember the id of a new checkpoint, even if it is never committed. Call `has_id` for the thread first."""
        greatest_ids = self.memory.greatest_ids
        greatest_ids[thread] = max(greatest_ids[thread], id.encode())

    # --- staging ---------------------------------------------------------------

    def next_lsn(self) -> int:
        """Return the LSN of the next record."""
        return self._end.lsn + len(self.staged) + 1

    def follows(self, snapshot_id: int | None) -> bool:
        """Return True if this batch reads the same data as a read transaction with this snapshot id."""
        transaction: Any = self._transaction
        return not transaction.changes and transaction.number - 1 == snapshot_id

    def next_end(self) -> tuple[int, bytes]:
        """Return the LSN of the next record, and the chain digest of the last stored record."""
        return self._end.lsn + len(self.staged) + 1, self._end.chain

    def next_place(self, thread: int, branch: int) -> tuple[int, int, bytes]:
        """Return the LSN and time of the next version of a branch, and the chain digest of the last stored record."""
        end_lsn, chain, _time_us = self._end
        last_us = self.times_us.get(thread) or self.memory.times_us.get(thread)
        time_us = self.next_time_us(thread, branch) if last_us is None else max(now_us(), last_us + 1)
        return end_lsn + len(self.staged) + 1, time_us, chain

    def next_time_us(self, thread: int, branch: int) -> int:
        """Return the time of the next version of a branch: the clock's time, or a later time if L2 requires it."""
        last_us = self.times_us.get(thread) or self.memory.times_us.get(thread)
        if last_us is None:
            last_us = self.memory.times_us[thread] = self._last_time_us(thread, branch)
        return max(now_us(), last_us + 1)

    def _last_time_us(self, thread: int, branch: int) -> int:
        head = self.memory.heads.get((thread, branch))
        if head is not None and self.has_one_branch(thread):
            return head.event.time_us
        return View(self._transaction).last_time_us(thread)

    def append(self, type_: int, time_us: int, body: bytes, nodes: Nodes = NO_NODES) -> None:
        """Stage a record."""
        self.staged.append(Staged(type_, time_us, body, nodes))

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Stage an index change."""
        self.index[key] = payload

    def delete_index(self, key: bytes) -> None:
        """Stage a deletion from the index."""
        self.index[key] = None

    def set_head(self, thread: int, branch: int, head: Head) -> None:
        """Stage the head of a branch, so that this batch and later commits find it in memory."""
        self.new_heads[thread, branch] = head
        self.times_us[thread] = max(head.event.time_us, self.times_us.get(thread, 0))

    def note_expiry(self, board: int, expires_us: int) -> None:
        """Remember when a staged entry expires, so that a later commit records the expiry in time."""
        next_us = self.expiries_us.get(board, self.memory.expiries_us.get(board))
        if next_us is not None:
            self.expiries_us[board] = min(next_us, expires_us)

    def forget_threads(self) -> None:
        """Make the commit clear everything that the process remembers about threads."""
        self.changes_threads = True

    # --- applying --------------------------------------------------------------

    def _record(self, index: int) -> bytes:
        """Encode and return a staged record. Records before the last one are encoded only once."""
        last = len(self.staged) - 1
        while len(self._encoded) < min(index + 1, last):
            record, self._encoded_chain = self._encode(len(self._encoded), FLAG_CONTINUES)
            self._encoded = (*self._encoded, record)
        if index < last:
            return self._encoded[index]
        record, self.chain = self._encode(last, 0)
        return record

    def _encode(self, index: int, flags: int) -> tuple[bytes, bytes]:
        """Encode a staged record, and return it with its chain digest. All records before it must be encoded."""
        type_, time_us, body, nodes, made = self.staged[index]
        if made is not None:
            rest, chain, body_end = made
            if index == 0 and not flags:
                return sealed(rest), chain
            body = rest[REST_SIZE_BYTES:body_end]
        lsn = self._end.lsn + index + 1
        if lsn == 1:
            flags |= FLAG_NAMED
        return encode_record(
            type_,
            lsn=lsn,
            time_us=time_us,
            previous_chain=self._encoded_chain if index else self._end.chain,
            body=body,
            nodes=nodes,
            flags=flags,
        )

    def apply(self, transaction: WriteTransaction) -> None:
        """Write all staged records and index changes into `transaction`.

        This fails only with a storage error, or with SecretError if the guard finds a secret in a name.
        """
        staged = self.staged
        if self.guard is not None:
            self._check_bodies(self.guard)
        if len(staged) == 1 and (made := staged[0].made) is not None:  # Almost all commits take this fast path.
            rest, self.chain, _body_end = made
            records = [xxh3_64_digest(rest) + rest]
        else:
            records = [self._record(index) for index in range(len(staged))]
        transaction.put(self._end.lsn + 1, records, self.index)
        if self.wakes:
            transaction.wakes |= self.wakes
        if self.calls:
            transaction.calls += self.calls

    def _check_bodies(self, guard: Redactor) -> None:
        """Let the guard check the names in the staged bodies. It has already checked the values."""
        for each in self.staged:
            made = each.made
            guard.check_body(each.body if made is None else made[0][REST_SIZE_BYTES : made[2]])

    def remember_nodes(self) -> None:
        """Add the new nodes to the cache. Call this after the commit has succeeded."""
        for lsn, staged in enumerate(self.staged, self._end.lsn + 1):
            count, rows, data = staged.nodes
            if count:
                self._cache.put_nodes(lsn, rows, data)


def settled_view(batch: Batch) -> View:
    """Return a view of the stored data if the batch has staged nothing; otherwise the view of the batch."""
    if batch.last_lsn() > batch.memory.end.lsn:
        return batch.view
    return View(batch._transaction)  # noqa: SLF001 - the class is in this file
