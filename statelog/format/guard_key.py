"""The mark of a store that was opened with a guard. It contains the key of the store's fingerprints.

FORMAT.md section 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError, GuardError
from statelog.format import cbor

if TYPE_CHECKING:
    from statelog.format.meta_reader import MetaReader

GUARD_KEY = b"guard"
SIZE_BYTES = 32
_FIELD = "fingerprint_key"


def encode_guard_key(key: bytes) -> bytes:
    """Encode the mark of a guarded store. The mark contains the key of the store's fingerprints: 32 random bytes."""
    return cbor.encode({_FIELD: key})


def read_guard_key(transaction: MetaReader) -> bytes | None:
    """Return the key of a store's fingerprints, or None if the store was never opened with a guard.

    Raises:
        CorruptionError: the mark is damaged. Facts: key.
    """
    value = transaction.get_meta(GUARD_KEY)
    if value is None:
        return None
    fields = cbor.decode(value)
    key = fields.get(_FIELD) if isinstance(fields, dict) else None
    if type(key) is not bytes or len(key) != SIZE_BYTES:
        message = "the guard's marker is damaged"
        raise CorruptionError(message, key=GUARD_KEY)
    return key


def unguarded_error(path: object) -> GuardError:
    """Return the error for a writer that has no guard, although the store was opened with a guard."""
    message = f"{path} was previously opened with a guard: open it with guard= to write, or with read_only=True"
    return GuardError(message, path=str(path))
