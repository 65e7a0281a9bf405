"""The header: what makes a file a statelog store. FORMAT.md section 2.

It is written once, at creation, and read at every open, before anything else of
the file is believed.
"""

from __future__ import annotations

from typing import Any

from statelog.errors import CorruptionError, FormatError, NewerFormatError
from statelog.format import cbor
from statelog.format.seal import seal, unseal

FORMAT_VERSION = 5
FORMAT_VERSION_READ_MIN = 1
"""Of this one and later ones all that is in a store is in a store of this release, too."""
HEADER_KEY = b"header"
STORE_ID_SIZE_BYTES = 16

_MAGIC = "statelog"
_DIGEST = "blake2b-160"
_CHECKSUM = "xxh3-64"


def encode_header(*, store_id: bytes, created_us: int) -> bytes:
    """Return the sealed header of a new store.

    Args:
        store_id: 16 random bytes.
        created_us: microseconds since 1970.
    """
    if len(store_id) != STORE_ID_SIZE_BYTES:
        message = f"a store id has {STORE_ID_SIZE_BYTES} bytes, not {len(store_id)}"
        raise ValueError(message)
    payload = cbor.encode(
        {
            "magic": _MAGIC,
            "format": FORMAT_VERSION,
            "store_id": store_id,
            "created_us": created_us,
            "digest": _DIGEST,
            "checksum": _CHECKSUM,
        }
    )
    return seal(HEADER_KEY, payload)


def decode_header(value: bytes | memoryview) -> dict[str, Any]:
    """Return the header's fields, each checked.

    Raises:
        CorruptionError: the seal does not hold, or a field is not what the format allows.
        NewerFormatError: a newer format; FormatError: not a store at all. Facts: needed, supported.
    """
    header = cbor.decode(unseal(HEADER_KEY, value))
    if not isinstance(header, dict) or header.get("magic") != _MAGIC:
        message = "the file is an LMDB file, but not a statelog store"
        raise FormatError(message, needed=None, supported=FORMAT_VERSION)
    needed = header.get("format")
    if type(needed) is int and needed > FORMAT_VERSION:
        message = f"the store has format {needed}; this release reads up to format {FORMAT_VERSION}"
        raise NewerFormatError(message, needed=needed, supported=FORMAT_VERSION)
    if not _is_sound(header):
        message = f"the header is damaged: {header!r}"
        raise CorruptionError(message, header=header)
    return header


def _is_sound(header: dict[str, Any]) -> bool:
    store_id, created_us = header.get("store_id"), header.get("created_us")
    return (
        header.keys() == {"magic", "format", "store_id", "created_us", "digest", "checksum"}
        and type(header["format"]) is int
        and header["format"] >= FORMAT_VERSION_READ_MIN
        and type(store_id) is bytes
        and len(store_id) == STORE_ID_SIZE_BYTES
        and type(created_us) is int
        and created_us >= 0
        and header["digest"] == _DIGEST
        and header["checksum"] == _CHECKSUM
    )
