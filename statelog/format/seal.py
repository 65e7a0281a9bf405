"""Sealed values of the index and meta tables. FORMAT.md section 6.

LMDB does not detect flipped bits. Records have their own checksums. All other values in the file are sealed: the
payload is followed by the XXH3-64 of key and payload. The checksum covers the key, so a value under the wrong key is
detected.
"""

from __future__ import annotations

from xxhash import xxh3_64_digest

from statelog.errors import CorruptionError

SEAL_SIZE_BYTES = 8

RECORD_MAC_SIZE_BYTES = 16
"""The size of the MAC that follows each record of a store with a key (`format/mac.py`)."""


def seal(key: bytes, payload: bytes) -> bytes:
    """Return the value to store under `key`: payload, then its checksum as a big-endian u64."""
    return payload + xxh3_64_digest(key + payload)


def unseal(key: bytes, value: bytes | memoryview) -> bytes:
    """Check the checksum of `value`, found under `key`. Return a copy of its payload.

    Raises:
        CorruptionError: the checksum does not match the bytes. Facts: key.
    """
    stored = bytes(value)
    payload = stored[:-SEAL_SIZE_BYTES]
    if not stored.endswith(xxh3_64_digest(key + payload)) or len(stored) < SEAL_SIZE_BYTES:
        message = f"the value under key {key!r} is damaged: its checksum does not match"
        raise CorruptionError(message, key=key)
    return payload
