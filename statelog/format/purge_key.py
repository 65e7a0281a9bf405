"""The mark of a store whose history was rewritten by a purge. FORMAT.md section 2.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.format import cbor

if TYPE_CHECKING:
    from statelog.format.meta_reader import MetaReader

PURGE_KEY = b"purge"
_FIELD = "upto"


def encode_purged_lsn(lsn: int) -> bytes:
    """Encode the mark of a purge that has rewritten the records up to an LSN."""
    return cbor.encode({_FIELD: lsn})


def read_purged_lsn(transaction: MetaReader) -> int:
    """Return the LSN up to which the last purge rewrote the history, or 0 if the store was never purged.

    Raises:
        CorruptionError: the mark is damaged. Facts: key.
    """
    value = transaction.get_meta(PURGE_KEY)
    if value is None:
        return 0
    fields = cbor.decode(value)
    lsn = fields.get(_FIELD) if isinstance(fields, dict) else None
    if type(lsn) is not int or lsn < 0:
        message = "the purge marker is damaged"
        raise CorruptionError(message, key=PURGE_KEY)
    return lsn
