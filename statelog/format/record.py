"""Records of the log, as bytes: envelope, body, node table and nodes, and short records. FORMAT.md section 3."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from statelog import kernels
from statelog.errors import CorruptionError, LimitError, NewerFormatError
from statelog.format import cbor
from statelog.format.digests import blake2b
from statelog.limits import RECORD_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Rows = Mapping[int, tuple[int, bytes, int, int, int]]

FORMAT_VERSION = 1
DIGEST_SIZE_BYTES = 20
NO_DIGEST = bytes(DIGEST_SIZE_BYTES)

TYPE_THREAD = 1
TYPE_CHECKPOINT = 2
TYPE_ROLLBACK = 3
TYPE_FORK = 4
TYPE_SCHEMA = 5
TYPE_TAG = 6
TYPE_DELETE = 7
TYPE_POLICY = 8
TYPE_LOAN = 9
TYPE_ENTRY = 10
TYPE_REMOVAL = 11
BORROWED_FIELD = 16
"""The index of the field with borrowed digests in the body of a checkpoint or rollback."""

FLAG_CONTINUES = 1
FLAG_VACUUMED = 2
FLAG_REDACTED = 4
FLAG_CHAINED = 8
"""A flag of short records: the record stores the chain digest of the previous record."""
FLAG_NAMED = 256
"""A flag of record 1: the log lists every redacted record. In the file, this flag is the high bit of the type, because
the chain covers the type, and a redacted record keeps its type.
"""
_FLAGS_FULL = FLAG_CONTINUES | FLAG_REDACTED
_FLAGS_SHORT = FLAG_CONTINUES | FLAG_VACUUMED | FLAG_REDACTED | FLAG_CHAINED
CHAINED_EVERY = 64
"""A short record stores the chain digest of the previous record if its own LSN is a multiple of this number."""

_CHECKSUM = struct.Struct(">Q")
ROW = struct.Struct(">B20sII")
"""A row of `Nodes`: type, digest, the end of the content, and the end of the node."""
_END = struct.Struct(">I")
_ENDS = struct.Struct(">II")
_ENVELOPE = struct.Struct(">QBBHIQQ20sI")
_REST = struct.Struct(">BBHIQQ20sI")
_SHORT = struct.Struct(">QBBHQ")
_SHORT_REST = struct.Struct(">BBHQ")
_CHAINED = struct.Struct(">BBHQQ20s20s")
ENVELOPE_SIZE_BYTES = _ENVELOPE.size
REST_SIZE_BYTES = _REST.size
"""The size of the envelope after the checksum."""
RECORD_SIZE_BYTES_MIN = _SHORT.size + 2
"""The minimum size of a record. A body and a table take at least a byte each."""
TYPE_AT = 9
TYPE_MASK = 127
"""The bits of the byte at `TYPE_AT` that contain the type."""
FLAGS_AT = 11
"""The offset of the low byte of the flags."""
PREVIOUS_CHAIN_AT = 32
_LSN_FACTOR = 0x9E3779B97F4A7C15
_LSN_FACTOR_INVERSE = pow(_LSN_FACTOR, -1, 1 << 64)
_U64_MAX = (1 << 64) - 1
_CHAIN_START = blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-chain-1")
_PART_START = blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-part-1")
_CHECKPOINT_START = blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-checkpt-1")


class NodeRow(NamedTuple):
    """A node to be stored in a record. It is a tuple, because a commit creates several within microseconds."""

    type: int
    digest: bytes
    data: bytes
    content_size: int


class Nodes(NamedTuple):
    """The nodes of a record in their stored form."""

    number: int
    """The number of nodes."""
    rows: bytes
    """The rows of the node table."""
    data: bytes

    def digest(self, number: int) -> bytes:
        """Return the digest of a node, or empty bytes if it does not exist."""
        at = ROW.size * number + 1
        return self.rows[at : at + DIGEST_SIZE_BYTES]


NO_NODES = Nodes(0, b"", b"")


def find_node(rows: bytes, data: bytes, digest: bytes, number: int) -> tuple[bytes, int] | None:
    """Return the data and content size of a node, or None if the node with this number has a different digest."""
    at = ROW.size * number + 1
    if rows[at : at + DIGEST_SIZE_BYTES] != digest:
        return None
    content_end, end = _ENDS.unpack_from(rows, at + DIGEST_SIZE_BYTES)
    start = _END.unpack_from(rows, at - 5)[0] if number else 0
    return data[start:end], content_end - start


def pack_nodes(rows: Sequence[NodeRow]) -> Nodes:
    """Return the stored form of nodes."""
    table = []
    end = 0
    for node_type, digest, data, content_size in rows:
        start = end
        end += len(data)
        table.append(ROW.pack(node_type, digest, start + content_size, end))
    return Nodes(len(rows), b"".join(table), b"".join([row.data for row in rows]))


class Redacted(NamedTuple):
    """The remains of a redacted event: its thread, and the data that the chain and the index need."""

    thread: int
    digest: bytes
    """The part digest of the body. If nodes were vacuumed, it is the contents digest."""
    borrowed: list[bytes]

    @property
    def had_event(self) -> bool:
        """Whether the record had an event. Salvage, and imports that only add nodes, create records without an event.

        The digests of such records are special values. The chain covers them, so no other record can be given one.
        """
        return self.digest not in _NO_EVENT_DIGESTS


class Record(NamedTuple):
    """A record's envelope and body. Its nodes are read one at a time by `kernels.record_node`."""

    type: int
    flags: int
    lsn: int
    time_us: int
    previous_chain: bytes
    """The chain digest of the previous record. It is empty if a short record does not store it: see `log.chain`."""
    body: bytes
    node_count: int
    """The number of nodes, including vacuumed nodes before the last remaining node."""
    size_bytes: int

    def fields(self) -> list[Any]:
        """Return the decoded body."""
        fields = cbor.decode(self.body)
        if not isinstance(fields, list):
            message = f"record {self.lsn}: the body is not an array"
            raise CorruptionError(message, lsn=self.lsn)
        return fields

    def redacted(self) -> Redacted:
        """Return the decoded body of a redacted record."""
        fields = self.fields()
        is_whole = len(fields) == 3 and type(fields[0]) is int and 0 <= fields[0] <= _U64_MAX
        is_whole = is_whole and type(fields[2]) is list and all(_is_digest(each) for each in (fields[1], *fields[2]))
        if not is_whole or not self.flags & FLAG_REDACTED:
            message = f"record {self.lsn}: the body is not valid for a redacted record"
            raise CorruptionError(message, lsn=self.lsn)
        return Redacted(*fields)


def _is_digest(field: object) -> bool:
    return type(field) is bytes and len(field) == DIGEST_SIZE_BYTES


def varint(number: int) -> bytes:
    """Return a number as unsigned LEB128."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def part_digest(data: bytes) -> bytes:
    """Return the digest of a body, or of the joined identities of nodes, for the chain."""
    state = _PART_START.copy()
    state.update(data)
    return state.digest()


_NO_EVENT_DIGESTS = (NO_DIGEST, part_digest(b""))


def stored_type(type_: int, flags: int) -> int:
    """Return the byte that stores a record's type."""
    return type_ | (flags & FLAG_NAMED) >> 1


def redact_record(
    data: bytes,
    lsn: int,
    thread: int,
    *,
    alive: Collection[int] | None,
    rows: Rows | None = None,
    borrowed_field: int | None = BORROWED_FIELD,
) -> bytes:
    """Return a record without its event and its dead nodes. Its chain digest does not change.

    Args:
        data: the record, which may already be redacted.
        lsn: the LSN of the record.
        thread: the thread that owns the record.
        alive: the numbers of the nodes to keep. None keeps all.
        rows: the result of `kernels.record_rows` for the record, if known.
        borrowed_field: the index of the body's field with borrowed digests, or None.
    """
    record = decode_record(data, lsn)
    rows = kernels.record_rows(data) if rows is None else rows
    body_digest, contents = _digests(record, rows)
    borrowed = record.redacted().borrowed if record.flags & FLAG_REDACTED else _borrowed(record, borrowed_field)
    left = {
        number: NodeRow(type_, digest, data[at : at + total_size], content_size)
        for number, (type_, digest, at, content_size, total_size) in rows.items()
        if alive is None or number in alive
    }
    if len(left) < len(rows) or record.flags & FLAG_VACUUMED:
        body = cbor.encode([thread, contents, borrowed])
        return encode_short_record(
            record.type, record.flags, lsn, record.time_us, previous_chain=record.previous_chain, body=body, nodes=left
        )
    body = cbor.encode([thread, body_digest, borrowed])
    count, table, nodes = pack_nodes(list(left.values()))
    envelope = _REST.pack(
        FORMAT_VERSION,
        stored_type(record.type, record.flags),
        record.flags & ~FLAG_NAMED | FLAG_REDACTED,
        len(body),
        lsn,
        record.time_us,
        record.previous_chain,
        count,
    )
    return sealed(envelope + body + table + nodes)


def encode_short_record(
    type_: int,
    flags: int,
    lsn: int,
    time_us: int,
    *,
    previous_chain: bytes,
    body: bytes,
    nodes: Mapping[int, NodeRow],
) -> bytes:
    """Return the bytes of a short record, which is redacted and vacuumed.

    Args:
        type_: the type of the record.
        flags: its previous flags, of which `FLAG_CONTINUES` and `FLAG_NAMED` are kept.
        lsn: its LSN.
        time_us: its time.
        previous_chain: the chain digest of the previous record. It may be empty if the short record does not store it.
        body: the body of a redacted record.
        nodes: the remaining nodes by number, ascending.
    """
    type_ = stored_type(type_, flags)
    flags = flags & FLAG_CONTINUES | FLAG_VACUUMED | FLAG_REDACTED
    if lsn % CHAINED_EVERY:
        previous_chain = b""
    else:
        assert len(previous_chain) == DIGEST_SIZE_BYTES
        flags |= FLAG_CHAINED
    size = sum(len(row.data) for row in nodes.values())
    width = max(1, -(-max([size, *nodes]).bit_length() // 8))
    table = [varint(len(nodes) << 2 | width - 1)]
    end = 0
    for number, (node_type, _digest, data, content_size) in nodes.items():
        ends = (end + content_size).to_bytes(width) + (end + len(data)).to_bytes(width)
        table.append(number.to_bytes(width) + bytes((node_type,)) + ends)
        end += len(data)
    envelope = _SHORT_REST.pack(FORMAT_VERSION, type_, flags, time_us)
    rest = b"".join((envelope, previous_chain, body, *table, *[row.data for row in nodes.values()]))
    return _CHECKSUM.pack(_short_checksum(rest, lsn)) + rest


def with_previous_chain(data: bytes, chain: bytes) -> bytes:
    """Return the record with `chain` as its previous chain digest. Return it unchanged if it stores no such digest."""
    flags = data[FLAGS_AT]
    if not flags & FLAG_VACUUMED:
        at = PREVIOUS_CHAIN_AT
        return sealed(data[_CHECKSUM.size : at] + chain + data[at + DIGEST_SIZE_BYTES :])
    if not flags & FLAG_CHAINED:
        return data
    at = _SHORT.size
    rest = data[_CHECKSUM.size : at] + chain + data[at + DIGEST_SIZE_BYTES :]
    return _CHECKSUM.pack(_short_checksum(rest, record_lsn(data))) + rest


def record_lsn(data: bytes | memoryview) -> int:
    """Return the LSN in an unchecked record. If the record is damaged, the result may be any number."""
    if data[FLAGS_AT] & FLAG_VACUUMED:
        checksum: int = _CHECKSUM.unpack_from(data)[0]
        return (checksum - xxh3_64_intdigest(memoryview(data)[_CHECKSUM.size :])) * _LSN_FACTOR_INVERSE & _U64_MAX
    lsn: int = _ENVELOPE.unpack_from(data)[5]
    return lsn


def sealed(rest: bytes) -> bytes:
    """Return a record: the checksum of `rest`, followed by `rest`."""
    return xxh3_64_digest(rest) + rest


def _short_checksum(rest: bytes | memoryview, lsn: int) -> int:
    return (xxh3_64_intdigest(rest) + lsn * _LSN_FACTOR) & _U64_MAX


def _borrowed(record: Record, field: int | None) -> list[bytes]:
    if field is None:
        return []
    # Decode only this field, because metadata may have values of unregistered codecs.
    _kind, _first, ends = kernels.cbor_split(record.body)
    borrowed = cbor.decode(record.body[ends[field - 1] : ends[field]])
    assert isinstance(borrowed, list)
    return borrowed


def contents_digest(body_digest: bytes, identities: bytes) -> bytes:
    """Return the contents digest of a record, from the part digest of its body and the identities of its nodes."""
    return part_digest(body_digest + identities)


def chain_digest(type_: int, flags: int, lsn: int, time_us: int, previous: bytes, contents: bytes) -> bytes:
    """Compute a record's chain digest from its contents digest."""
    state = _CHAIN_START.copy()
    type_, flags = stored_type(type_, flags), flags & FLAG_CONTINUES
    state.update(_CHAINED.pack(FORMAT_VERSION, type_, flags, lsn, time_us, previous, contents))
    return state.digest()


def encode_record(
    type_: int,
    *,
    lsn: int,
    time_us: int,
    previous_chain: bytes,
    body: bytes,
    nodes: Nodes = NO_NODES,
    flags: int = 0,
) -> tuple[bytes, bytes]:
    """Return a record and its chain digest."""
    number, rows, data = nodes
    type_, flags = stored_type(type_, flags), flags & ~FLAG_NAMED
    envelope = _REST.pack(FORMAT_VERSION, type_, flags, len(body), lsn, time_us, previous_chain, number)
    rest = b"".join((envelope, body, rows, data))
    if len(rest) > RECORD_SIZE_BYTES_MAX:
        message = f"a commit has {len(rest)} bytes; at most {RECORD_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, actual=len(rest), limit=RECORD_SIZE_BYTES_MAX)
    chain = kernels.chain_digest(type_, flags, lsn, time_us, previous_chain, body, rows)
    return sealed(rest), chain


def decode_record(data: memoryview | bytes, lsn: int) -> Record:
    """Check the checksum of a record, and return the envelope and body.

    Args:
        data: the record. It may be a view of LMDB's memory, because no reference to it is kept.
        lsn: the key under which the record was found.

    Raises:
        CorruptionError: the checksum, the LSN or the sizes are wrong.
        NewerFormatError: a newer statelog has written the record.
    """
    size = len(data)
    if size > FLAGS_AT and data[FLAGS_AT] & FLAG_VACUUMED:
        return _decode_short(data, lsn)
    if size < ENVELOPE_SIZE_BYTES:
        message = f"record {lsn}: {size} bytes are too few for an envelope"
        raise CorruptionError(message, lsn=lsn)
    checksum, version, type_, flags, body_size, stored_lsn, time_us, previous, node_count = _ENVELOPE.unpack_from(data)
    if checksum != xxh3_64_intdigest(memoryview(data)[8:]):
        message = f"record {lsn}: checksum mismatch"
        raise CorruptionError(message, lsn=lsn)
    _check_format(lsn, version, is_known=not flags & ~_FLAGS_FULL, flags=flags)
    if type_ > TYPE_MASK:
        type_, flags = _type_and_flag(lsn, type_, flags)
    if stored_lsn != lsn or body_size > size - ENVELOPE_SIZE_BYTES or version == 0:
        message = f"record {lsn}: its envelope states LSN {stored_lsn} and a body of {body_size} bytes"
        raise CorruptionError(message, lsn=lsn)
    body = bytes(data[ENVELOPE_SIZE_BYTES : ENVELOPE_SIZE_BYTES + body_size])
    return Record(type_, flags, lsn, time_us, previous, body, node_count, size)


def _decode_short(data: memoryview | bytes, lsn: int) -> Record:
    size = len(data)
    if size < RECORD_SIZE_BYTES_MIN:
        message = f"record {lsn}: {size} bytes are too few for an envelope"
        raise CorruptionError(message, lsn=lsn)
    checksum, version, type_, flags, time_us = _SHORT.unpack_from(data)
    if checksum != _short_checksum(memoryview(data)[_CHECKSUM.size :], lsn):
        message = f"record {lsn}: checksum mismatch, or the data is another record"
        raise CorruptionError(message, lsn=lsn)
    is_chained = bool(flags & FLAG_CHAINED)
    is_known = flags & FLAG_REDACTED and not flags & ~_FLAGS_SHORT and is_chained == (lsn % CHAINED_EVERY == 0)
    _check_format(lsn, version, is_known=bool(is_known), flags=flags)
    if type_ > TYPE_MASK:
        type_, flags = _type_and_flag(lsn, type_, flags)
    try:
        body_at, body_size, node_count, _rows, end = kernels.record_open(data)
    except CorruptionError:
        end = 0
    if end != size or version == 0:
        message = f"record {lsn}: damaged body or node table"
        raise CorruptionError(message, lsn=lsn)
    body = bytes(data[body_at : body_at + body_size])
    return Record(type_, flags, lsn, time_us, bytes(data[_SHORT.size : body_at]), body, node_count, size)


def _check_format(lsn: int, version: int, *, is_known: bool, flags: int) -> None:
    if version > FORMAT_VERSION:
        message = f"record {lsn} has format {version}; this release reads up to format {FORMAT_VERSION}"
        raise NewerFormatError(message, needed=version, supported=FORMAT_VERSION)
    if not is_known:
        message = f"record {lsn}: flags {flags:#06x} are not valid in format {version}"
        raise CorruptionError(message, lsn=lsn)


def _type_and_flag(lsn: int, type_: int, flags: int) -> tuple[int, int]:
    """Return the type and the flags of a record whose type byte has the high bit set."""
    if lsn != 1:
        message = f"record {lsn}: only record 1 may have type {type_}"
        raise CorruptionError(message, lsn=lsn)
    return type_ & TYPE_MASK, flags | FLAG_NAMED


def record_chain_digest(data: memoryview | bytes, record: Record, before: bytes = b"") -> bytes:
    """Return the chain digest of a decoded record.

    Args:
        data: the record.
        record: the decoded record.
        before: the chain digest of the previous record, for a short record that does not store it.
    """
    previous = record.previous_chain or before
    assert len(previous) == DIGEST_SIZE_BYTES
    contents = record_contents_digest(data, record)
    return chain_digest(record.type, record.flags, record.lsn, record.time_us, previous, contents)


def record_contents_digest(data: memoryview | bytes, record: Record) -> bytes:
    """Return the contents digest that a record had when it was written. The chain covers this digest."""
    return _digests(record, {} if record.flags & FLAG_VACUUMED else kernels.record_rows(data))[1]


def _digests(record: Record, rows: Rows) -> tuple[bytes, bytes]:
    """Return the part digest of a record's body (empty if nodes were vacuumed), and the record's contents digest.

    Args:
        record: the record.
        rows: the result of `kernels.record_rows` for it. It is not used if nodes were vacuumed.
    """
    if record.flags & FLAG_REDACTED:
        digest = record.redacted().digest
        if record.flags & FLAG_VACUUMED:
            return b"", digest
    else:
        digest = part_digest(record.body)
    identities = b"".join([bytes((type_,)) + node for type_, node, _at, _content, _total in rows.values()])
    return digest, contents_digest(digest, identities)


def checkpoint_digest(parent: bytes | None, root: bytes, time_us: int, caller_id: str | None, metadata: bytes) -> bytes:
    """Return a checkpoint's digest (FORMAT.md section 5). `metadata` is its CBOR item."""
    state = _CHECKPOINT_START.copy()
    state.update(
        b"".join(
            (
                b"\x85",
                b"\xf6" if parent is None else b"\x54" + parent,
                b"\x54",
                root,
                cbor.encode_unsigned(time_us),
                b"\xf6" if caller_id is None else cbor.encode(caller_id),
                metadata,
            )
        )
    )
    return state.digest()
