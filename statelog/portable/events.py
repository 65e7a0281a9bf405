"""Check untrusted events. Each event must be possible at its position in the log (invariant L5).

`verify` checks whether events can be applied. This module also checks the threads, branches,
versions and parents that events name, because readers follow each of these references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.log.kinds.kind import refuse
from statelog.log.kinds.table import kind_of_event

if TYPE_CHECKING:
    from statelog.log.events import Event
    from statelog.log.kinds.kind import Recent
    from statelog.log.view import View
    from statelog.portable.nodes import Identity, Read

TIME_US_MAX = 253_402_300_799_999_999
"""The last microsecond of year 9999, which is the latest datetime."""


def check_event(view: View, event: Event, lsn: int, recent: Recent) -> None:
    """Check an event against everything before it.

    Args:
        view: the store up to the previous record.
        event: a well-formed event.
        lsn: LSN of its record.
        recent: checkpoints read earlier, by LSN. Checkpoints read now are added.

    Raises:
        CorruptionError: the event is not possible at this position. Facts: lsn.
    """
    kind = kind_of_event(event)
    owner = kind.owner(event, lsn)
    if owner not in (0, lsn) and not kind.outlives and not view.is_alive(owner):
        refuse(lsn, f"there is no thread {owner}")
    kind.check(view, event, lsn, recent)


def check_roots(event: Event, lsn: int, *, identity: Identity, read: Read) -> None:
    """Check that the roots of an event exist. The root of a checkpoint must be the root of a dict.

    Raises:
        CorruptionError: a root is missing or of the wrong kind. Facts: lsn.
    """
    kind = kind_of_event(event)
    for type_, digest, root_lsn, number in kind.roots(event):
        if root_lsn > lsn or identity(root_lsn, number) != bytes((type_,)) + digest:
            refuse(lsn, "the root of its state is not at the stated location", refers_to=root_lsn)
        if kind.is_version and read(type_, digest, root_lsn, number).data[0] != kernels.KIND_DICT:
            refuse(lsn, "the root of its state is not a dict")
