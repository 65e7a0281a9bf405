"""What this process remembers, brought up to date with what others have appended.

Each commit of another process would else make this one forget all it knows, and read it again.

Invariant: what was appended is all that was done (`WriteTransaction.appended_since`). So what no record tells of holds
still; of what one tells of, this forgets what it may have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import StatelogError
from statelog.format.record import decode_record
from statelog.log.batch import LogEnd
from statelog.log.chain import read_chained
from statelog.log.events import (
    CheckpointEvent,
    ForkEvent,
    PolicyEvent,
    StorePolicyEvent,
    TagEvent,
    ThreadEvent,
    decode_event,
    read_checkpoint,
)

if TYPE_CHECKING:
    from statelog.log.batch import Memory
    from statelog.log.events import Event
    from statelog.storage.commit.transaction import WriteTransaction

_NOT_REMEMBERED = (StorePolicyEvent, TagEvent, ThreadEvent)


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
    if isinstance(event, CheckpointEvent):
        memory.heads.pop((event.thread, event.branch), None)
        if event.time_us > memory.end.time_us:  # and other heads of the thread may stay
            memory.end = memory.end._replace(time_us=event.time_us)
        if event.id is not None:
            memory.greatest_ids.pop(event.thread, None)
    elif isinstance(event, ForkEvent):
        memory.one_branch.pop(event.thread, None)
    elif isinstance(event, PolicyEvent):
        memory.unruled.discard(event.thread)
    else:
        return isinstance(event, _NOT_REMEMBERED)
    return True
