"""The common commit and rollback in one piece each: one record, straight into the transaction.

Three quarters of a commit are the interpreter, whatever it is divided into. So what most commits are, a step (`step`)
or a rollback, alone in its record, of a thread whose head this process has just made, is written out here. T6: what it
makes is what the same makes in a batch; where what is remembered does not suffice, or something is to be refused,
nothing is done, and a batch is used.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.format.seal import seal
from statelog.kernels import checkpoint, plain_changes
from statelog.limits import VERSIONS_MAX
from statelog.log.batch import HEADS_MAX, JUMPS_MAX, NO_LISTS, Batch, Head, LogEnd
from statelog.log.events import NOTHING_BORROWED, NOTHING_WRITTEN
from statelog.log.names import channel_keys
from statelog.log.step import NO_ROOT, NOTHING_GROWN, are_new, changes_of, place_rows, read_state, remember_grown
from statelog.log.view import View
from statelog.tree.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.kernels import Change
    from statelog.log.batch import Memory
    from statelog.log.nodes import NodeCache
    from statelog.log.operations import Write
    from statelog.storage.commit.transaction import WriteTransaction

kernels.bind_checkpoint(
    Head, Node, LogEnd, NO_LISTS, NOTHING_BORROWED, VERSIONS_MAX, HEADS_MAX, JUMPS_MAX,
)  # fmt: skip


_GOES_ON, _GOES_BACK = False, True

_LARGE_MAX = 8
"""So many large leaves a direct commit brings at most: each is an entry of the index."""

Made = tuple[Head, int, bytes, bytes, bytes, bytes, bytes | None, bytes | None, dict[bytes, bytes] | None]
"""A checkpoint: what is remembered of it; LSN, its key, record; key and sealed value of its version page; rows and data
of the record's nodes, if it has any; sealed values of more entries of the index, by key, if there are any."""


class DirectCommit(NamedTuple):
    """Writes to a branch, all that is known of it found before."""

    thread: int
    branch: int
    writes: Sequence[Write]
    metadata: bytes
    written: bytes
    expected_version: int | None
    is_open: bool
    """Whether the thread has no schema, as far as is known."""
    id: str | None
    """The checkpoint's, which was checked as a name; it is committed so only if it is the thread's greatest."""
    changes: list[Change] | None
    """What the writes do, if that is known already."""
    time_us: int | None
    """The time it must bear, because the writes say it; None for that of the commit."""

    def make(self, transaction: WriteTransaction, memory: Memory, cache: NodeCache) -> Made | None:  # noqa: C901 - one frame
        """Make the checkpoint, and remember it; None, and nothing was done, if a batch must."""
        thread, branch, writes, metadata, written, expected_version, is_open, id, changes, time_us = self
        head = memory.heads.get((thread, branch))
        if head is None or not (writes or changes) or (is_open and thread not in memory.open_threads):
            return None
        if time_us is not None and time_us <= memory.end.time_us:
            return None
        event, _digest, page, state, lists, opens = head
        if page is None or event.branch != branch:
            return None
        if expected_version is not None and not _is_as_expected(expected_version, event.version):
            return None
        if state is None:
            state, opens = read_state(Batch(transaction, cache, memory), event)
        grown = NOTHING_GROWN
        if changes is None:
            changes = plain_changes(writes, lists, channel_keys)
        if changes is None:
            grown = {}
            changes = changes_of(Batch(transaction, cache, memory), head, state, writes, grown)
            if changes is None:
                return None
        arguments = (
            memory, thread, branch, head, head, state, opens, changes, _GOES_ON, metadata, written,
            time.time_ns() // 1000 if time_us is None else time_us,
        )  # fmt: skip
        made = checkpoint(*arguments, None, id)
        large = made if type(made) is bytes else None
        if large is not None:
            leaves = [large[at : at + DIGEST_SIZE_BYTES] for at in range(0, len(large), DIGEST_SIZE_BYTES)]
            is_new = len(leaves) <= _LARGE_MAX and are_new(transaction, leaves)
            made = checkpoint(*arguments, large, id) if is_new else None
        if grown and made is not None:
            remember_grown(memory, grown, made[0].lists)
        return _with_large(made, thread) if large is not None and made is not None else made


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

    def make(self, transaction: WriteTransaction, memory: Memory, _cache: NodeCache) -> Made | None:
        """Make the checkpoint, and remember it; None, and nothing was done, if a batch must."""
        thread, branch, named, find, metadata, expected_version = self
        head = memory.heads.get((thread, branch))
        if head is None or head.page is None or head.event.branch != branch:
            return None
        version = head.event.version
        if expected_version is not None and not _is_as_expected(expected_version, version):
            return None
        target: bytes | Head | None = None
        if type(named) is int and 0 <= named <= version:  # mostly: and what `find` does first
            target = kernels.version_found(*transaction.mapped(), thread, branch, named)
        if target is None:
            target = find(View(transaction), thread, branch, named)
        made: Made | None = checkpoint(
            memory, thread, branch, head, target, NO_ROOT, (), (), _GOES_BACK, metadata, NOTHING_WRITTEN,
            time.time_ns() // 1000, None, None,
        )  # fmt: skip
        return made


def _with_large(made: Made, thread: int) -> Made:
    """Enter a checkpoint's large leaves into the index, too."""
    rows = place_rows(kernels.find_large(made[6] or b""), made[1], thread)
    return (*made[:8], {**(made[8] or {}), **{key: seal(key, payload) for key, payload in rows.items()}})


def _is_as_expected(expected: object, version: int) -> bool:
    """Tell whether nothing is to be refused of a commit on that head; what is no number is."""
    return type(expected) is int and expected == version
