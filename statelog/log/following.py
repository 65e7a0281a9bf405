"""What this process remembers, brought up to date with what others have appended.

Each commit of another process would else make this one forget all it knows, and read it again.

Invariant: what was appended is all that was done (`WriteTransaction.appended_since`). So what no record tells of holds
still; of what one tells of, this forgets what it may have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import StatelogError
from statelog.format.record import decode_record
from statelog.log.batch import LogEnd
from statelog.log.chain import read_chained
from statelog.log.events import (
    CheckpointEvent,
    DeleteEvent,
    ForkEvent,
    LoanEvent,
    PolicyEvent,
    SchemaEvent,
    read_checkpoint,
)
from statelog.log.kinds.table import decode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.batch import Memory
    from statelog.log.events import Event
    from statelog.storage.commit.transaction import WriteTransaction


def follow_others(memory: Memory, last: WriteTransaction, transaction: WriteTransaction) -> bool:
    """Bring up to date what was remembered after one transaction of this process, for the next.

    Returns:
        False if too much may be otherwise: then nothing of it holds.

    """
    first = memory.end.lsn + 1
    records = transaction.appended_since(last, first - 1)
    if records is None:
        return False
    lsn = first + len(records) - 1
    try:
        is_known = all(_follow(memory, memoryview(record), at) for at, record in enumerate(records, first))
        found = read_chained(lambda at: records[at - first] if at >= first else transaction.get_log(at), lsn)
    except StatelogError:  # who reads it is told
        return False
    if found is None or not is_known:
        return False
    memory.end = LogEnd(lsn, found[1], max(memory.end.time_us, found[0].time_us))
    return True


def _follow(memory: Memory, record: memoryview, lsn: int) -> bool:
    found = read_checkpoint(record, lsn)
    event: Event = decode_event(decode_record(record, lsn)) if found is None else found[0]
    forget = _FORGETTING.get(type(event))
    if forget is not None:
        forget(memory, event)
    return type(event) not in _TOO_MUCH


def _forget_head(memory: Memory, event: CheckpointEvent) -> None:
    memory.heads.pop((event.thread, event.branch), None)
    if event.time_us > memory.end.time_us:  # and other heads of the thread may stay
        memory.end = memory.end._replace(time_us=event.time_us)
    if event.id is not None:
        memory.greatest_ids.pop(event.thread, None)


_FORGETTING: dict[type, Callable[[Memory, Any], object]] = {
    CheckpointEvent: _forget_head,
    ForkEvent: lambda memory, event: memory.one_branch.pop(event.thread, None),
    PolicyEvent: lambda memory, event: memory.unruled.discard(event.thread),
}
"""What events make untrue of what is remembered: those of other kinds nothing."""
_TOO_MUCH = (SchemaEvent, DeleteEvent, LoanEvent)
"""After these nothing of it holds."""
