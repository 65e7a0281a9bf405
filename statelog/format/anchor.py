"""The encoding of an anchor, which identifies the history of a store up to one record. FORMAT.md section 9."""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_digest

from statelog.errors import AnchorError, NewerFormatError
from statelog.format.record import NO_DIGEST

FORMAT_VERSION = 1
_ANCHOR = struct.Struct(">B16sQ20s")
_CHECKSUM_SIZE_BYTES = 8
_SHOWN_MAX = 100
"""The maximum number of characters of a wrong value that an error message shows."""


class Anchor(NamedTuple):
    """Identifies the history of a store up to one record.

    Attributes:
        store_id: the id of the store from which the anchor was taken.
        lsn: the LSN of the last record of the history, or 0 if the store was empty.
        chain: the chain digest of the last record, which covers the whole history.
    """

    store_id: bytes
    lsn: int
    chain: bytes


def encode_anchor(anchor: Anchor) -> bytes:
    """Return the bytes of an anchor."""
    data = _ANCHOR.pack(FORMAT_VERSION, *anchor)
    return data + xxh3_64_digest(data)


def decode_anchor(data: object) -> Anchor:
    """Return the anchor that these bytes encode.

    Raises:
        AnchorError: `data` is not the bytes of an anchor. Facts: argument, value.
        NewerFormatError: a later release has created the anchor. Facts: needed, supported.
    """
    if not isinstance(data, bytes):
        raise _not_an_anchor(data, "expect must be the bytes that store.anchor() returned")
    sealed, checksum = data[:-_CHECKSUM_SIZE_BYTES], data[-_CHECKSUM_SIZE_BYTES:]
    if not sealed or xxh3_64_digest(sealed) != checksum:
        raise _not_an_anchor(data, "these bytes are not an anchor, or they are incomplete or were changed")
    if data[0] > FORMAT_VERSION:
        message = f"the anchor has format {data[0]}; this release reads up to format {FORMAT_VERSION}"
        raise NewerFormatError(message, needed=data[0], supported=FORMAT_VERSION)
    if data[0] == FORMAT_VERSION and len(sealed) == _ANCHOR.size:
        anchor = Anchor(*_ANCHOR.unpack(sealed)[1:])
        if anchor.lsn or anchor.chain == NO_DIGEST:
            return anchor
    raise _not_an_anchor(data, "an anchor cannot have these fields")


def decode_anchor_text(text: str) -> bytes:
    """Return the bytes of an anchor that is given as a string. Raises the errors of `decode_anchor`."""
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise _not_an_anchor(text, "the text of an anchor must be 106 hexadecimal digits") from error
    decode_anchor(data)
    return data


def _not_an_anchor(value: object, what: str) -> AnchorError:
    shown = repr(value)
    if len(shown) > _SHOWN_MAX:
        shown = f"{shown[:_SHOWN_MAX]}..."
    return AnchorError(f"{what}: {shown}", argument="expect", value=value)
