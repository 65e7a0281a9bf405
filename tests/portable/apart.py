"""Splits exports and joins them with correct checksums, so that the faults are deeper."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

from xxhash import xxh3_64

from statelog.format import cbor
from statelog.portable.frames import HEADER, MAGIC, TRAILER


class Piece(NamedTuple):
    """A frame of a split export."""

    kind: int
    payload: bytes


def split(data):
    """Return the frames of an export, including header and trailer."""
    at = len(MAGIC)
    pieces = []
    while at < len(data):
        kind, size = struct.unpack_from(">BI", data, at)
        pieces.append(Piece(kind, data[at + 5 : at + 5 + size]))
        at += 5 + size + 8
    return pieces


def join(pieces):
    """Return an export of frames with correct checksums and a correct trailer."""
    out = bytearray(MAGIC)
    for number, (kind, payload) in enumerate(pieces):
        whole = _trailer(payload, number, out) if kind == TRAILER else payload
        head = struct.pack(">BI", kind, len(whole))
        state = xxh3_64(head, seed=number)
        state.update(whole)
        out += head + whole + state.digest()
    return bytes(out)


def _trailer(payload, number, out):
    fields = cbor.decode(payload)
    if not isinstance(fields, dict) or "digest" not in fields:
        return payload
    return cbor.encode({**fields, "frames": number, "digest": blake2b(out, digest_size=20).digest()})


def with_header(data, **fields):
    """Return an export with changed fields in its header."""
    header, *rest = split(data)
    assert header.kind == HEADER
    return join([Piece(HEADER, cbor.encode({**cbor.decode(header.payload), **fields})), *rest])
