"""Decode events from untrusted bodies. `format.fields` defines the valid values of each field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.fields import DIGEST, DIGESTS, LSN, Field, read_fields, split_array
from statelog.format.record import (
    FLAG_CHAINED,
    FLAG_CONTINUES,
    FLAG_NAMED,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    Record,
    Redacted,
)
from statelog.log.kinds.kind import refuse
from statelog.log.kinds.table import decode_event, kind_of

if TYPE_CHECKING:
    from statelog.log.events import Event

_FLAGS = FLAG_CONTINUES | FLAG_VACUUMED | FLAG_REDACTED | FLAG_CHAINED | FLAG_NAMED
_REDACTED: tuple[Field, ...] = (LSN, DIGEST, DIGESTS)


def read_event(record: Record) -> Event | Redacted:
    """Return the event of a record whose checksum is valid. For a redacted record, return the `Redacted` that is left.

    Raises:
        CorruptionError: FORMAT.md does not allow the type, the flags or the body. Facts: lsn.
    """
    bodies = kind_of(record).bodies
    if record.flags & ~_FLAGS or (record.flags & FLAG_VACUUMED and not record.flags & FLAG_REDACTED):
        refuse(record.lsn, f"it has flags {record.flags:#x}")
    try:
        if record.flags & FLAG_REDACTED:
            thread, digest, borrowed = read_fields(split_array(record.body), _REDACTED)
            return Redacted(thread, digest, cbor.decode(borrowed))
        parts = split_array(record.body)
        read_fields(parts, next((body for body in bodies if len(body) == len(parts)), bodies[0]))
    except CorruptionError as error:
        if "lsn" in error.facts:
            raise
        refuse(record.lsn, error.message)
    return decode_event(record)
