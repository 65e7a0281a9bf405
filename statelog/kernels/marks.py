"""Bases of the objects that commits look at and note: `native/python/marks.c`.

Members of a base lie in C, where `commit_alone` and `commit_flushed` read and set them without a look-up. They are
used as any attribute is; numbers are of 64 bits, flags of `bool`, and what was never set is 0, False or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class CommitterMarks:
        """Of `storage.commit.Committer`."""

        leader: Any
        groups: int
        commits: int
        expected: int
        _delivered_at_s: float

    class DeferredMarks:
        """Of `storage.deferred.Deferred`."""

        transaction: Any
        waiting: Any
        journaled: Any
        applied: Any
        settling_thread: int
        apart: int
        commits: int
        _size_bytes_max: int
        _pages_max: int
        _records_max: int
        number: int
        has_room: bool
        is_on: bool

    class EnvironmentMarks:
        """Of `storage.environment.Environment`."""

        locks: Any
        handles: Any
        map_address: int
        process_id: int
        writer_thread: int
        is_shut: bool

    class KeeperMarks:
        """Of `storage.keeper.Keeper`."""

        commits: int
        is_at_work: bool
        flushes: bool

    class LookMarks:
        """Of what is looked at again after a while."""

        descriptor: int
        place: int
        turn_us: int
        look_at_s: float

    class SteadyMarks:
        """Of `storage.steady.Steady`."""

        _session: bytes
        at: int
        end: int
        lsn: int
        flushed: int
        _epoch: int
        _descriptor: int
        _size_bytes: int
        is_broken: bool
        is_dirty: bool

    class TransactionMarks:
        """Of a transaction that waits."""

        appended: list[bytes]
        rows: dict[bytes, bytes]
        waiting: Any
        changes: int
        first_lsn: int
        size_bytes: int
        number: int
        is_flushed: bool

    class WaitingMarks:
        """Of `storage.waiting.Waiting`."""

        records: list[bytes]
        rows: dict[bytes, bytes]
        last: Any
        first_lsn: int
        size_bytes: int
        count: int

    class LastMarks:
        """Of an engine's last transaction."""

        transaction: Any
        memory: Any
        changes: int

    class CacheMarks:
        """Of `log.nodes.NodeCache`."""

        _young: dict[int, tuple[bytes, bytes]]
        _size: int
        _half: int
        _overhead: int

else:
    from statelog.kernels.objects import objects

    CacheMarks, CommitterMarks, DeferredMarks = objects.CacheMarks, objects.CommitterMarks, objects.DeferredMarks
    EnvironmentMarks, KeeperMarks = objects.EnvironmentMarks, objects.KeeperMarks
    LastMarks, LookMarks = objects.LastMarks, objects.LookMarks
    SteadyMarks, TransactionMarks, WaitingMarks = objects.SteadyMarks, objects.TransactionMarks, objects.WaitingMarks
