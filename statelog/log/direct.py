"""The common commit and rollback in one piece each: one record, straight into the transaction.

Three quarters of a commit are the interpreter, whatever it is divided into. So what most commits are, a step (`step`)
or a rollback, alone in its record, of a thread whose head this process has just made, is written out here. T6: what it
makes is what the same makes in a batch; where what is remembered does not suffice, or something is to be refused,
nothing is done, and a batch is used.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.format.keys import VERSIONS_PER_PAGE, encode_page_key
from statelog.format.record import Nodes, sealed
from statelog.kernels import pack_numbers
from statelog.log.batch import HEADS_MAX, JUMPS_MAX, NO_LISTS, Batch, Head, LogEnd
from statelog.log.events import NOTHING_BORROWED, NOTHING_WRITTEN, NULL_ITEM, CheckpointEvent, found_checkpoint
from statelog.log.lines import line_from_memory
from statelog.log.names import channel_key
from statelog.log.step import NO_ROOT, NO_TARGET, NOTHING_GROWN, PUTS, changes_of, lists_after
from statelog.log.view import View
from statelog.tree.node import ROOT, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.kernels import Change
    from statelog.log.batch import Memory
    from statelog.log.nodes import NodeCache
    from statelog.log.step import StepWrite
    from statelog.storage.writing import WriteTransaction

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""


class DirectCommit(NamedTuple):
    """Writes to a branch, all that is known of it found before."""

    thread: int
    branch: int
    writes: Sequence[StepWrite]
    metadata: bytes
    written: bytes
    expected_version: int | None
    is_open: bool
    """Whether the thread has no schema, as far as is known."""

    def run(self, transaction: WriteTransaction, memory: Memory, cache: NodeCache) -> Head | None:
        """Put the checkpoint into the transaction; None if a batch must."""
        thread, branch, writes, metadata, written, expected_version, is_open = self
        head = memory.heads.get((thread, branch))
        if head is None or not writes or (is_open and thread not in memory.open_threads):
            return None
        event, parent_digest, page, state, lists = head
        version = event.version + 1
        line = line_from_memory(memory, thread, branch, version, head)
        if line is None or page is None or event.branch != branch or not _is_as_expected(expected_version, version):
            return None
        root_digest, root_lsn, root_node = event.root_digest, event.root_lsn, event.root_node
        if state is None:
            state = Batch(transaction, cache, memory).read_node(ROOT, root_digest, root_lsn, root_node)
        write = writes[0].step
        grown = NOTHING_GROWN
        changes: Sequence[Change] | None
        if len(writes) == 1 and write is not None and write[0] in PUTS and type(write[1]) is bytes:
            changes = ((write[0], channel_key(writes[0].channel), write[1], 0, 0, NO_ROOT),)
        else:
            grown = {}
            changes = changes_of(Batch(transaction, cache, memory), head, state, writes, grown)
            if changes is None:
                return None
        lsn, chain, time_us = memory.end
        lsn += 1
        now_us = time.time_ns() // 1000
        time_us = now_us if now_us > time_us else time_us + 1
        made = kernels.step(
            state, root_digest, changes,
            pack_numbers(*line[:5], *line[6:], root_lsn, root_node, NO_TARGET, time_us),
            parent_digest, NULL_ITEM, metadata, written, lsn, chain, page if version % VERSIONS_PER_PAGE else b"",
        )  # fmt: skip
        if made is None:
            return None
        digest, chain, root_digest, record, page, count, rows_at, nodes_at, places = made
        if count:
            rows, data = record[rows_at:nodes_at], record[nodes_at:]
            root_node, at, content_end, end = places.pop()
            root_lsn = lsn
            state = _new(Node, (data[at:end], content_end - at, lsn))
            if lists or places:
                lists = lists_after(memory, lists, changes, _new(Nodes, (count, rows, data)), places, lsn, grown)
            transaction.callbacks += (partial(cache.put_nodes, lsn, rows, data),)
        root = (root_digest, root_lsn, root_node)
        ends = (None, metadata, written, NOTHING_BORROWED, NO_TARGET, lsn, time_us)
        event = _new(CheckpointEvent, (*line, *root, *ends))
        return _put(transaction, memory, record, chain, _new(Head, (event, digest, page, state, lists)))


class DirectRollback(NamedTuple):
    """A rollback of a branch."""

    thread: int
    branch: int
    target: object
    """What the caller has named."""
    find: Callable[[View, int, int, Any], Head]
    """Looks the target up in a branch of a thread. It may raise: then nothing was done."""
    metadata: bytes
    expected_version: int | None

    def run(self, transaction: WriteTransaction, memory: Memory, _cache: NodeCache) -> Head | None:
        """Put the checkpoint into the transaction; None if a batch must."""
        thread, branch, named, find, metadata, expected_version = self
        head = memory.heads.get((thread, branch))
        if head is None or head.page is None or head.event.branch != branch:
            return None
        version = head.event.version + 1
        if not _is_as_expected(expected_version, version):
            return None
        found = read = None
        if type(named) is int and 0 <= named < version:  # mostly: and what `find` does first
            found = kernels.version_find(*transaction.mapped(), thread, branch, named)
        if found is not None:
            read = found_checkpoint(found)
        if read is not None:
            target = _new(Head, (*read, None, None, NO_LISTS))
        else:
            target = find(View(transaction), thread, branch, named)
        line = line_from_memory(memory, thread, branch, version, target)
        if line is None:
            return None
        lsn, chain, time_us = memory.end
        lsn += 1
        now_us = time.time_ns() // 1000
        time_us = now_us if now_us > time_us else time_us + 1
        old = target.event
        root_digest, root_lsn, root_node = old.root_digest, old.root_lsn, old.root_node
        made = kernels.step(
            NO_ROOT, root_digest, (),
            pack_numbers(*line[:5], *line[6:], root_lsn, root_node, old.lsn, time_us),
            target.digest, NULL_ITEM, metadata, NOTHING_WRITTEN, lsn, chain,
            head.page if version % VERSIONS_PER_PAGE else b"",
        )  # fmt: skip
        if made is None:
            return None
        root = (root_digest, root_lsn, root_node)
        ends = (None, metadata, NOTHING_WRITTEN, NOTHING_BORROWED, old.lsn, lsn, time_us)
        event = _new(CheckpointEvent, (*line, *root, *ends))
        return _put(
            transaction, memory, made.record, made.chain, _new(Head, (event, made.digest, made.page, None, NO_LISTS))
        )


def _is_as_expected(expected_version: int | None, version: int) -> bool:
    """Tell whether nothing is to be refused of a commit of that version; what is no number is."""
    return expected_version is None or (type(expected_version) is int and expected_version == version - 1)


def _put(transaction: WriteTransaction, memory: Memory, record: bytes, chain: bytes, head: Head) -> Head:
    """Put a record, and its checkpoint's version page, into the transaction, and remember it."""
    event, _digest, page, _state, _lists = head
    thread, branch, version = event[:3]
    transaction.put(event.lsn, (sealed(record),), {encode_page_key(thread, branch, version): page})
    memory.end = _new(LogEnd, (event.lsn, chain, event.time_us))
    heads, jumps = memory.heads, memory.jumps
    if len(heads) > HEADS_MAX or len(jumps) > JUMPS_MAX:
        heads.clear()
        jumps.clear()
    heads[thread, branch] = head
    if version != event.depth or not memory.one_branch.get(thread):  # elsewhere nobody asks: see `lines`
        jumps[thread, branch, version] = (event.jump_branch, event.jump_version, event.jump_depth)
    return head
