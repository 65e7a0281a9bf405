"""MACs of the records and rows of a store that has a key. FORMAT.md section 10.

A checksum finds damage. Anybody can compute a checksum, so it does not find a deliberate change. A message
authentication code (MAC) finds such a change, because only a process with the key can compute it. The MACs here are
keyed BLAKE2b (RFC 7693).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from statelog.errors import ForgeryError, KeyArgumentError
from statelog.format.seal import RECORD_MAC_SIZE_BYTES, SEAL_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_SIZE_BYTES_MIN = 16
CHECK_SIZE_BYTES = 16
SEGMENT_MAC_SIZE_BYTES = 16
_SUBKEY_SIZE_BYTES = 32
_NUMBER = Struct(">Q").pack
_KEY_SIZE = Struct(">H").pack


class StoreKey:
    """A key given by a user.

    Its repr hides it, and it cannot be pickled, so that it does not reach another process.

    Args:
        key: bytes or a str of at least 16 bytes. It should be random, because anybody with the file can test guesses.

    Raises:
        KeyArgumentError: `key` has the wrong type, or is too short. Facts: argument.
    """

    __slots__ = ("_secret",)

    def __init__(self, key: object) -> None:
        data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
        if not isinstance(data, bytes):
            message = f"key must be bytes, a str, or a function that returns either, not {type(key).__name__}"
            raise KeyArgumentError(message, argument="key")
        if len(data) < KEY_SIZE_BYTES_MIN:
            message = f"a key must have at least {KEY_SIZE_BYTES_MIN} bytes, not {len(data)}"
            raise KeyArgumentError(message, argument="key")
        self._secret = blake2b(data, digest_size=64, person=b"stlg-key-1").digest()

    def __repr__(self) -> str:
        return "<StoreKey>"

    def __reduce__(self) -> NoReturn:
        message = "the key of a store cannot be pickled"
        raise TypeError(message)

    def for_store(self, store_id: bytes) -> StoreMac:
        """Return the MACs of the store `store_id`. Two stores with the same key have different MACs."""
        person = b"stlg-subkey-1"
        return StoreMac(blake2b(store_id, digest_size=_SUBKEY_SIZE_BYTES, key=self._secret, person=person).digest())

    def segment_mac(self, segment: bytes) -> bytes:
        """Return the MAC of a segment that a fleet ships."""
        person = b"stlg-segmac-1"
        return blake2b(segment, digest_size=SEGMENT_MAC_SIZE_BYTES, key=self._secret, person=person).digest()


Key: TypeAlias = bytes | str | StoreKey | Callable[[], bytes | str]
"""The key of a store, or a function that returns it, such as `guard.env("STATE_KEY")`."""


def as_store_key(key: object) -> StoreKey:
    """Return the `StoreKey` of a caller's argument: bytes, a str, a function that returns either, or a `StoreKey`.

    Raises:
        KeyArgumentError: the errors of `StoreKey`. Errors that the function raises pass through.
    """
    if isinstance(key, StoreKey):
        return key
    return StoreKey(key() if callable(key) else key)


class StoreMac:
    """Computes and checks the MACs of one store.

    Attributes:
        row_key: the key of the MACs of rows, for `kernels.rows_read`.
        check: a digest of the key that the header stores. It distinguishes a wrong key from a forged header.
    """

    __slots__ = ("_header", "_records", "_rows", "check", "row_key")

    def __init__(self, subkey: bytes) -> None:
        self.row_key = subkey
        self.check = blake2b(b"", digest_size=CHECK_SIZE_BYTES, key=subkey, person=b"stlg-keycheck-1").digest()
        self._records = blake2b(digest_size=RECORD_MAC_SIZE_BYTES, key=subkey, person=b"stlg-recmac-1")
        self._rows = blake2b(digest_size=SEAL_SIZE_BYTES, key=subkey, person=b"stlg-rowmac-1")
        self._header = blake2b(digest_size=CHECK_SIZE_BYTES, key=subkey, person=b"stlg-headmac-1")

    def __repr__(self) -> str:
        return "<StoreMac>"

    # --- records ------------------------------------------------------------------

    def record_mac(self, lsn: int, record: bytes | memoryview) -> bytes:
        """Return the MAC of a record, which covers the LSN and the record."""
        state = self._records.copy()
        state.update(_NUMBER(lsn))
        state.update(record)
        return state.digest()

    def seal_record(self, lsn: int, record: bytes | memoryview) -> bytes:
        """Return a record followed by its MAC, as it is stored."""
        return bytes(record) + self.record_mac(lsn, record)

    def check_record(self, lsn: int, stored: bytes | memoryview) -> None:
        """Raise ForgeryError if the MAC of a stored record does not match. Facts: lsn."""
        end = len(stored) - RECORD_MAC_SIZE_BYTES
        if end < 0 or not compare_digest(self.record_mac(lsn, stored[:end]), bytes(stored[end:])):
            message = f"record {lsn} is damaged or forged: its MAC does not match"
            raise ForgeryError(message, lsn=lsn)

    def open_record(self, lsn: int, stored: bytes) -> bytes:
        """Return a stored record without its MAC. Raises the errors of `check_record`."""
        self.check_record(lsn, stored)
        return stored[:-RECORD_MAC_SIZE_BYTES]

    def open_records(self, lsn: int, stored: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return consecutive stored records without their MACs. `lsn` is the first LSN.

        Raises the errors of `check_record`.
        """
        return tuple([self.open_record(number, each) for number, each in enumerate(stored, lsn)])

    # --- rows ---------------------------------------------------------------------

    def row_mac(self, key: bytes, payload: bytes) -> bytes:
        """Return the MAC of a row of `index` or `meta`.

        The MAC covers the size of the key, so that no byte can move from the payload to the key.
        """
        state = self._rows.copy()
        state.update(_KEY_SIZE(len(key)) + key + payload)
        return state.digest()

    def seal(self, key: bytes, payload: bytes) -> bytes:
        """Return the value to store under `key`: the payload, then its MAC."""
        return payload + self.row_mac(key, payload)

    def unseal(self, key: bytes, value: bytes | memoryview) -> bytes:
        """Check the MAC of `value`, which is stored under `key`. Return a copy of its payload.

        Raises:
            ForgeryError: the MAC does not match. Facts: key.
        """
        stored = bytes(value)
        payload, found = stored[:-SEAL_SIZE_BYTES], stored[-SEAL_SIZE_BYTES:]
        if not compare_digest(self.row_mac(key, payload), found):
            message = f"the value under key {key!r} is damaged or forged: its MAC does not match"
            raise ForgeryError(message, key=key)
        return payload

    # --- the header ---------------------------------------------------------------

    def header_mac(self, fields: bytes) -> bytes:
        """Return the MAC of the encoded fields of a header."""
        state = self._header.copy()
        state.update(fields)
        return state.digest()
