"""Records and index changes on their way into one transaction.

Invariant L1: LSNs are dense from 1. L2: the time of versions strictly ascends within a thread. L3: every record
holds the chain digest of the one before. All three are kept here and nowhere else.

A batch is applied as a whole after everything that can be refused has been: until then
nothing is written. Over a read transaction it serves as a rehearsal.
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

    from statelog.log.events import CheckpointEvent
    from statelog.log.kinds.entries import KnownEntry
    from statelog.log.transaction import Transaction
    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.storage.notify.wake import Wake


_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

HEADS_MAX = 1024
"""Heads in memory, some of them with the nodes that the next step begins with."""

ENTRIES_MAX = 1024
"""Entries in memory: a counter, or a claim and its end, goes on from the last record."""

JUMPS_MAX = 4096
"""Jump pointers of checkpoints in memory: one mostly leads to a recent one."""

FOLLOWED_MAX = 64
FOLLOWED_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The maximum number of other processes' records that are read one by one, and their total size.

If there are more, reading the heads again costs less.
"""

_TYPES_OF_ROWS = frozenset((TYPE_FORK, TYPE_POLICY))
"""Types of records that change only the row of the thread in their first field, of all that `Memory` has."""

_TYPES_APART = frozenset((TYPE_THREAD, TYPE_TAG, TYPE_LOAN))
"""Types of records that do not change anything in `Memory`."""

Jump = tuple[int | None, int | None, int]
"""Branch, version and depth that a checkpoint jumps to. A bare tuple, which the garbage collector need not go over."""


class LogEnd(NamedTuple):
    """The last record of the log."""

    lsn: int
    chain: bytes
    time_us: int


NOTHING_HELD = b""


class Head(NamedTuple):
    """The last checkpoint of a branch, with what the next one needs of it."""

    event: CheckpointEvent
    digest: bytes
    page: bytes | None = None
    """The version page it stands on, None if that is not known. As long as the index has it, this is the head."""
    held: bytes = NOTHING_HELD
    """What the next step begins with, as the last one has left it: only `kernels.step` looks into it."""

    @property
    def head(self) -> Head:
        """Itself: what a write has made, where that is final; see `session.Outcome`."""
        return self

    def page_before(self, branch: int, version: int) -> bytes | None:
        """Return the version page that the next checkpoint is entered on, empty for a new one; None if not known."""
        page = self.page
        if page is None or self.event.branch != branch:
            return None
        return page if version % VERSIONS_PER_PAGE else b""


Made = tuple[bytes, bytes, int]
"""A record as it is if nothing else is staged, but for its checksum; its chain digest; where its body ends."""


class Staged(NamedTuple):
    """A record on its way."""

    type: int
    time_us: int
    body: bytes
    nodes: Nodes
    made: Made | None = None
    """If it is there, it holds the body."""


def read_log_end(transaction: Transaction) -> LogEnd:
    """Read the last record."""
    lsn = transaction.last_lsn()
    if not lsn:
        return LogEnd(0, NO_DIGEST, 0)
    found = read_chained(transaction.get_log, lsn)
    if found is None:
        message = f"record {lsn}, the last one, is missing"
        raise CorruptionError(message, lsn=lsn)
    record, chain = found
    return LogEnd(lsn, chain, record.time_us)


class Memory:
    """The state of the store that a process remembers after its last commit. It follows commits of other processes."""

    __slots__ = (
        "end", "entries", "expiries_us", "greatest_ids", "heads", "identities", "jumps", "owners", "prints", "rows",
        "times_us",
    )  # fmt: skip

    def __init__(self, end: LogEnd) -> None:
        self.end = end
        self.heads: dict[tuple[int, int], Head] = {}
        """Of branches, by thread and branch."""
        self.rows: dict[int, ThreadRow] = {}
        """Of threads."""
        self.times_us: dict[int, int] = {}
        """Of the last version of threads."""
        self.jumps: dict[tuple[int, int, int], Jump] = {}
        """Of recent checkpoints, by thread, branch and version; but for those of threads of one branch whose version is
        their depth."""
        self.greatest_ids: dict[int, bytes] = {}
        """The greatest id that callers gave checkpoints of a thread, or a greater one: of threads it was asked of."""
        self.owners: dict[str, int] = {}
        """LSNs of the threads that own the records of the board and of leases, by id."""
        self.entries: dict[tuple[int, str], KnownEntry] = {}
        """Of recent entries and leases, by board and key."""
        self.expiries_us: dict[int, int] = {}
        """By board: no entry expires before this time."""
        self.identities: dict[bytes, bytes] = {}
        """As `tree.sequence.Identities` fills it; right for ever, as the next."""
        self.prints = Prints()
        """As `log.step` fills it."""

    def copy(self) -> Memory:
        """Return what can be changed by itself; of keyed lists the copy knows nothing yet."""
        copied = Memory(self.end)
        copied.heads, copied.jumps = self.heads.copy(), self.jumps.copy()
        copied.rows, copied.times_us = self.rows.copy(), self.times_us.copy()
        copied.greatest_ids, copied.identities = self.greatest_ids.copy(), self.identities
        copied.owners, copied.expiries_us = self.owners.copy(), self.expiries_us.copy()
        copied.entries = self.entries.copy()
        return copied

    def caught_up(self, transaction: WriteTransaction) -> Memory:
        """Return the memory for a transaction, after commits of other processes.

        If possible, this memory is updated from the records that they appended. If these records are too many or do not
        contain all changes, the result is a new memory with only those facts that never change.
        """
        count = transaction.log_count() - self.end[0]
        # Changes of this transaction may be rolled back. A process that appended no record has made another change.
        if 0 < count <= FOLLOWED_MAX and not transaction.changes and self._follow(transaction, count):
            return self
        forgetful = Memory(read_log_end(transaction))
        forgetful.identities, forgetful.prints = self.identities, self.prints
        return forgetful

    def _follow(self, transaction: WriteTransaction, count: int) -> bool:
        """Apply the next records of the log to the memory. Return False if they do not determine its content."""
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
        """Apply the head and the id of a checkpoint record."""
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
            self._set_head(place, head)
        return True

    def take_over(self, batch: Batch) -> None:
        """Go on from what a batch has staged."""
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
            self._set_head(place, head)
        if batch.entries:
            if len(self.entries) > ENTRIES_MAX:
                self.entries.clear()
            self.entries.update(batch.entries)
            self.expiries_us.update(batch.expiries_us)

    def _set_head(self, place: tuple[int, int], head: Head) -> None:
        self.heads[place] = head
        event = head[0]
        # In all other cases, no reader needs the jump: see `lines`.
        if event.version != event.depth or not (row := self.rows.get(event.thread)) or row.branch_count > 1:
            self.jumps[*place, event.version] = (event.jump_branch, event.jump_version, event.jump_depth)


def _next_head(former: Head, event: CheckpointEvent, digest: bytes, record: bytes) -> Head | None:
    """Return the head after a checkpoint record, with page and root, or None if the record does not determine it."""
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
    """Staged changes over a transaction, readable through `view` as if made."""

    # What each begins with stands here, once: one is made for every commit.
    chain = NO_DIGEST
    """Chain digest of the last record that was encoded."""
    changes_threads = False
    """Whether a thread ends or its schema grows: then nothing that is remembered of threads holds."""
    wakes = 0
    """Masks of whom it concerns, of the transaction that it is applied to."""
    calls: tuple[Callable[[Wake], object], ...] = ()
    """As that transaction's."""
    _encoded: tuple[bytes, ...] = ()
    """Records that stay as they are when more is staged."""
    _encoded_chain = NO_DIGEST

    def __init__(self, transaction: Transaction, cache: NodeCache, memory: Memory) -> None:
        self._transaction = transaction
        self._cache = cache
        self._end = memory.end
        self.staged: list[Staged] = []
        self.index: dict[bytes, bytes | None] = {}
        """Changes of it, by key; None where something goes."""
        self.memory = memory
        self.new_heads: dict[tuple[int, int], Head] = {}
        self.times_us: dict[int, int] = {}
        """Of the last version of threads, staged."""
        self.entries: dict[tuple[int, str], KnownEntry] = {}
        """Entries that were read or staged, by board and key: none is read twice."""
        self.expiries_us: dict[int, int] = {}
        """As `Memory.expiries_us`, where the batch changes it."""

    @property
    def view(self) -> View:
        """Look-ups in what was there and what is staged."""
        return View(self)  # not kept: a batch that leads to itself would be garbage

    # --- reading ---------------------------------------------------------------

    def get_index(self, key: bytes) -> bytes | None:
        """Return a payload, staged ones first."""
        if key in self.index:
            return self.index[key]
        return self._transaction.get_index(key)

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key with a prefix."""
        staged = [key for key, payload in self.index.items() if payload is not None and key.startswith(prefix)]
        found = self._transaction.last_index(prefix)
        if staged and (found is None or max(staged) >= found[0]):
            key = max(staged)
            return key, self.index[key] or b""
        return found

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with a prefix, from a key on, ascending or descending."""
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
        """Return a record that is in the log already or, encoded for the purpose, a staged one."""
        index = lsn - self._end.lsn - 1
        if 0 <= index < len(self.staged):
            return memoryview(self._record(index))
        return self._transaction.get_log(lsn)

    def last_lsn(self) -> int:
        """Return the last LSN, staged ones included."""
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
        """Return a node of a staged record, None if there is none of that digest."""
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
            borrowed: gets the digests of other threads' nodes that it is the first to borrow.
            known: nodes of the thread to find again, as (digest, LSN, number).

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
        """Return a branch's head."""
        place = (thread, branch)
        found = self.new_heads.get(place) or self.memory.heads.get(place)
        if found is not None:
            return found
        read = self.view.head_checkpoint(thread, branch)
        return None if read is None else Head(*read)

    def find_thread(self, thread: int) -> ThreadRow | None:
        """Return a thread's row, None if it is not there: deleted."""
        row = self.memory.rows.get(thread)
        is_staged = self.index and keys.encode_thread_key(thread) in self.index
        if row is None or is_staged:
            row = self.view.find_thread(thread)
            if not is_staged and row is not None:
                self.memory.rows[thread] = row
        return row

    def find_owner(self, id: str) -> int | None:
        """Return the LSN of the thread with an id of `OWN_IDS`, or None."""
        lsn = self.memory.owners.get(id)
        if lsn is None:
            lsn = self.view.thread_lsn(id)
            if lsn is not None and lsn <= self._end.lsn:  # A staged thread may be given up.
                self.memory.owners[id] = lsn
        return lsn

    def jump(self, thread: int, branch: int, version: int) -> Jump | None:
        """Return where a version jumps to, of recent ones from memory; None if it has expired."""
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
        if event.lsn <= self._end.lsn:  # else it is staged, and may come to nothing
            self.memory.jumps[thread, branch, version] = found
        return found

    def has_one_branch(self, thread: int) -> bool:
        """Whether a thread has one branch alone."""
        row = None if self.index else self.memory.rows.get(thread)
        if row is None:
            row = self.find_thread(thread)
        return row is not None and row.branch_count == 1

    def has_id(self, thread: int, id: str) -> bool:
        """Whether a checkpoint of the thread has that id."""
        name, known = id.encode(), self.memory.greatest_ids.get(thread)
        if known is None:
            prefix = keys.encode_checkpoint_id_key(thread, "")
            last = self.last_index(prefix)
            known = self.memory.greatest_ids[thread] = b"" if last is None else last[0][len(prefix) :]
        return name <= known and self.get_index(keys.encode_checkpoint_id_key(thread, id)) is not None

    def note_id(self, thread: int, id: str) -> None:
        """Note that a checkpoint of the thread gets an id, whatever becomes of it. `has_id` was asked."""
        greatest_ids = self.memory.greatest_ids
        greatest_ids[thread] = max(greatest_ids[thread], id.encode())

    # --- staging ---------------------------------------------------------------

    def next_lsn(self) -> int:
        """Return the LSN the next record will get."""
        return self._end.lsn + len(self.staged) + 1

    def follows(self, snapshot_id: int | None) -> bool:
        """Return True if the batch of a commit reads just what a transaction with this snapshot has read."""
        transaction: Any = self._transaction
        return not transaction.changes and transaction.number - 1 == snapshot_id

    def next_end(self) -> tuple[int, bytes]:
        """Return the LSN of the next record, and the chain digest of the last record that is not staged."""
        return self._end.lsn + len(self.staged) + 1, self._end.chain

    def next_place(self, thread: int, branch: int) -> tuple[int, int, bytes]:
        """Return LSN and time of the next version of a branch, and the chain digest of the last record not staged."""
        end_lsn, chain, _time_us = self._end
        last_us = self.times_us.get(thread) or self.memory.times_us.get(thread)
        time_us = self.next_time_us(thread, branch) if last_us is None else max(now_us(), last_us + 1)
        return end_lsn + len(self.staged) + 1, time_us, chain

    def next_time_us(self, thread: int, branch: int) -> int:
        """Return the time that the next version of a branch will bear: what the clock says, where L2 allows it."""
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
        """Remember the head of a branch as staged."""
        self.new_heads[thread, branch] = head
        self.times_us[thread] = max(head.event.time_us, self.times_us.get(thread, 0))

    def note_expiry(self, board: int, expires_us: int) -> None:
        """Note that an entry expires."""
        next_us = self.expiries_us.get(board, self.memory.expiries_us.get(board))
        if next_us is not None:
            self.expiries_us[board] = min(next_us, expires_us)

    def forget_threads(self) -> None:
        """Let nothing be remembered of threads."""
        self.changes_threads = True

    # --- applying --------------------------------------------------------------

    def _record(self, index: int) -> bytes:
        """Return a staged record, encoded: those before the last stay as they are when more is staged."""
        last = len(self.staged) - 1
        while len(self._encoded) < min(index + 1, last):
            record, self._encoded_chain = self._encode(len(self._encoded), FLAG_CONTINUES)
            self._encoded = (*self._encoded, record)
        if index < last:
            return self._encoded[index]
        record, self.chain = self._encode(last, 0)
        return record

    def _encode(self, index: int, flags: int) -> tuple[bytes, bytes]:
        """Return the staged record behind those encoded, and its chain digest."""
        type_, time_us, body, nodes, made = self.staged[index]
        if made is not None:
            rest, chain, body_end = made
            if index == 0 and not flags:
                return sealed(rest), chain
            body = rest[REST_SIZE_BYTES:body_end]
        return encode_record(
            type_,
            lsn=self._end.lsn + index + 1,
            time_us=time_us,
            previous_chain=self._encoded_chain if index else self._end.chain,
            body=body,
            nodes=nodes,
            flags=flags,
        )

    def apply(self, transaction: WriteTransaction) -> None:
        """Put everything staged into `transaction`. Only an error of storage can stop this."""
        staged = self.staged
        if len(staged) == 1 and (made := staged[0].made) is not None:  # as for nearly every commit
            rest, self.chain, _body_end = made
            records = [sealed(rest)]
        else:
            records = [self._record(index) for index in range(len(staged))]
        transaction.put(self._end.lsn + 1, records, self.index)
        if self.wakes:
            transaction.wakes |= self.wakes
        if self.calls:
            transaction.calls += self.calls

    def remember_nodes(self) -> None:
        """Put the new nodes into the cache. Call after the commit has succeeded."""
        for lsn, staged in enumerate(self.staged, self._end.lsn + 1):
            count, rows, data = staged.nodes
            if count:
                self._cache.put_nodes(lsn, rows, data)


def settled_view(batch: Batch) -> View:
    """Return look-ups in what a batch reads from, which is all there is until it has staged something; else its own."""
    if batch.last_lsn() > batch.memory.end.lsn:
        return batch.view
    return View(batch._transaction)  # noqa: SLF001 - of this file
