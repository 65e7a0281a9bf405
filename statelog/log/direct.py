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
from statelog.format.record import Nodes
from statelog.kernels import checkpoint
from statelog.limits import VERSIONS_MAX
from statelog.log.batch import HEADS_MAX, JUMPS_MAX, NO_LISTS, Batch, Head, LogEnd
from statelog.log.events import NOTHING_BORROWED, NOTHING_WRITTEN
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

kernels.bind_checkpoint(
    Head, Node, Nodes, LogEnd, NO_LISTS, NOTHING_BORROWED, lists_after, VERSIONS_MAX, HEADS_MAX,
    JUMPS_MAX,
)  # fmt: skip


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
        event, _digest, page, state, _lists = head
        if page is None or event.branch != branch or not _is_as_expected(expected_version, event.version):
            return None
        if state is None:
            state = Batch(transaction, cache, memory).read_node(
                ROOT, event.root_digest, event.root_lsn, event.root_node
            )
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
        made = checkpoint(
            memory, thread, branch, head, head, state, changes, grown, NO_TARGET, metadata, written,
            time.time_ns() // 1000,
        )  # fmt: skip
        if made is None:
            return None
        made_head: Head
        made_head, lsn, log_key, record, page_key, page_value, rows, data = made
        if rows is not None:
            transaction.callbacks += (partial(cache.put_nodes, lsn, rows, data),)
        transaction.put_checkpoint(lsn, log_key, record, page_key, page_value)
        return made_head


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
        version = head.event.version
        if not _is_as_expected(expected_version, version):
            return None
        read = None
        if type(named) is int and 0 <= named <= version:  # mostly: and what `find` does first
            read = kernels.version_checkpoint(*transaction.mapped(), thread, branch, named)
        if read is not None:
            target = _new(Head, (*read, None, None, NO_LISTS))
        else:
            target = find(View(transaction), thread, branch, named)
        made = checkpoint(
            memory, thread, branch, head, target, NO_ROOT, (), NOTHING_GROWN, target.event.lsn, metadata,
            NOTHING_WRITTEN, time.time_ns() // 1000,
        )  # fmt: skip
        if made is None:
            return None
        made_head: Head
        made_head, lsn, log_key, record, page_key, page_value, _rows, _data = made
        transaction.put_checkpoint(lsn, log_key, record, page_key, page_value)
        return made_head


def _is_as_expected(expected: int | None, version: int) -> bool:
    """Tell whether nothing is to be refused of a commit on that head; what is no number is."""
    return expected is None or (type(expected) is int and expected == version)
