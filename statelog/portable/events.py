"""Events that nobody vouches for: each must be possible where it stands (invariant L5).

`verify` asks whether events can be applied. Here it is asked besides whether what they say of threads,
branches, versions and parents is true, since every one of these leads a reader somewhere.
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
"""The last microsecond of year 9999: later ones are no datetime."""


def check_event(view: View, event: Event, lsn: int, recent: Recent) -> None:
    """Check an event against everything before it.

    Args:
        view: of the store up to the record before.
        event: well-formed.
        lsn: of its record.
        recent: checkpoints read before, by LSN, to which those read now are added.

    Raises:
        CorruptionError: it is not possible here. Facts: lsn.

    """
    kind = kind_of_event(event)
    owner = kind.owner(event, lsn)
    if owner not in (0, lsn) and not kind.outlives and not view.is_alive(owner):
        refuse(lsn, f"there is no thread {owner}")
    kind.check(view, event, lsn, recent)


def check_roots(event: Event, lsn: int, *, identity: Identity, read: Read) -> None:
    """Check that the roots of an event are there; that of a checkpoint is the root of a dict.

    Raises:
        CorruptionError: one is not. Facts: lsn.

    """
    kind = kind_of_event(event)
    for type_, digest, root_lsn, number in kind.roots(event):
        if root_lsn > lsn or identity(root_lsn, number) != bytes((type_,)) + digest:
            refuse(lsn, "the root of its state is not where it says", refers_to=root_lsn)
        if kind.is_version and read(type_, digest, root_lsn, number).data[0] != kernels.KIND_DICT:
            refuse(lsn, "the root of its state is not that of a dict")
