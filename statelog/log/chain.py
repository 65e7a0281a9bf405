"""Chain digests of records. Most short records do not store the chain digest before them (L3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format.record import NO_DIGEST, Record, chain_digest, decode_record, record_contents_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    GetLog = Callable[[int], memoryview | bytes | None]


def read_chained(get_log: GetLog, lsn: int) -> tuple[Record, bytes] | None:
    """Return a record, with `previous_chain` set, and its own chain digest.

    The chain is computed from the nearest earlier record that stores it, which is at most `CHAINED_EVERY` records back.

    Args:
        get_log: returns the record of an LSN, or None.
        lsn: above 0.

    Returns:
        None if a needed record is missing.

    Raises:
        CorruptionError, FormatError: a needed record is damaged, or its format is newer.
    """
    pending: list[tuple[Record, bytes]] = []
    at = lsn
    while at and not (pending and pending[-1][0].previous_chain):
        data = get_log(at)
        if data is None:
            return None
        record = decode_record(data, at)
        pending.append((record, record_contents_digest(data, record)))
        at -= 1
    previous = chain = NO_DIGEST
    for record, contents in reversed(pending):
        previous = record.previous_chain or chain
        chain = chain_digest(record.type, record.flags, record.lsn, record.time_us, previous, contents)
    return pending[0][0]._replace(previous_chain=previous), chain
