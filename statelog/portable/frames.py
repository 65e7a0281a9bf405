"""The frames of an export, which are written and read sequentially.

EXPORT.md draws them. A reader trusts nothing. It bounds a frame's size by its kind and reads bytes
in pieces as they arrive. A frame that was moved, repeated, removed or changed fails its checksum.
Every error names the byte offset in the stream.
"""

from __future__ import annotations

import struct
from io import TextIOBase, UnsupportedOperation
from typing import Any, NamedTuple, NoReturn, Protocol

from xxhash import xxh3_64

from statelog import kernels
from statelog.errors import CorruptionError, FormatError, NewerFormatError, UsageError
from statelog.format import cbor
from statelog.format.digests import blake2b
from statelog.format.header import STORE_ID_SIZE_BYTES
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.limits import RECORD_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX

MAGIC = b"\x89STLGX\r\n"
"""The first bytes of an export. A transfer in text mode changes them, so a reader detects the damage at once."""

EXPORT_FORMAT = 4
"""The format number of an export of a log, which may have records that earlier formats did not have."""
EXPORT_FORMAT_MIN = 1
"""The format number of an export of threads."""

HEADER = 0x48
RECORD = 0x52
NODE = 0x4E
EVENT = 0x45
TRAILER = 0x5A

LOG = "log"
THREADS = "threads"

_NAME = "statelog export"
_SMALL_SIZE_BYTES_MAX = 4096
_EVENT_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of an event. It is twice the size of the names and reducers of 65,536 channels."""

_SIZE_BYTES_MAX = {
    HEADER: _SMALL_SIZE_BYTES_MAX,
    RECORD: RECORD_SIZE_BYTES_MAX + 8,
    NODE: VALUE_SIZE_BYTES_MAX + _SMALL_SIZE_BYTES_MAX,
    EVENT: _EVENT_SIZE_BYTES_MAX,
    TRAILER: _SMALL_SIZE_BYTES_MAX,
}
_PIECE_SIZE_BYTES = 1024 * 1024
"""The maximum number of bytes requested at once, so that a false size cannot allocate more memory than this."""

_HEAD = struct.Struct(">BI")
_CHECK_SIZE_BYTES = 8


class ExportTarget(Protocol):
    """A destination of an export: a binary file, a pipe, or a file made from a socket."""

    def write(self, data: bytes, /) -> object:
        """Write bytes, and return how many were written."""


class ExportSource(Protocol):
    """A source of an export."""

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes; return no bytes at the end."""


class Frame(NamedTuple):
    """A frame with a valid checksum, and the offset in the stream where it begins."""

    kind: int
    payload: bytes
    offset: int


class Header(NamedTuple):
    """The header of an export.

    Attributes:
        kind: `LOG` or `THREADS`.
        store_id: id of the exported store.
        since: the LSN before the first record; 0 except in an incremental export.
        chain: chain digest of the record at `since`.
        last: the store's last LSN at the start of the export, for progress only.
    """

    kind: str
    store_id: bytes
    since: int
    chain: bytes
    last: int


def _is_open(stream: object, method: str) -> bool:
    """Return False if the stream is known not to support `method`. This does not call the method."""
    if not callable(getattr(stream, method, None)) or isinstance(stream, TextIOBase):
        return False
    return getattr(stream, "closed", False) is not True


def _target_error(target: object) -> UsageError:
    message = f"the target must be a file that is open for writing in binary mode, not {target!r}"
    return UsageError(message, argument="target", value=target)


def check_target(target: object) -> None:
    """Raise UsageError if bytes cannot be written to the target."""
    if not _is_open(target, "write"):
        raise _target_error(target)


def write_to(target: ExportTarget, data: bytes) -> None:
    """Write all of the bytes."""
    written = target.write(data)
    while isinstance(written, int) and written < len(data):  # A raw file may write only a part of the bytes.
        data = data[written:]
        written = target.write(data)


def _source_error(source: object) -> UsageError:
    message = f"the source must be a file that is open for reading in binary mode, not {source!r}"
    return UsageError(message, argument="source", value=source)


class FrameWriter:
    """Writes an export to a target, without seeking."""

    def __init__(self, target: ExportTarget, header: Header) -> None:
        """Write the magic and the header.

        Raises:
            UsageError: bytes cannot be written to the target.
        """
        check_target(target)
        self.size_bytes = 0
        self._target = target
        self._frames = 0
        self._digest = blake2b(digest_size=DIGEST_SIZE_BYTES)
        try:
            self._write(MAGIC)
        except (UnsupportedOperation, NotImplementedError) as error:  # Streams that cannot write raise these.
            raise _target_error(target) from error
        fields = {
            "magic": _NAME,
            "format": EXPORT_FORMAT if header.kind == LOG else EXPORT_FORMAT_MIN,
            "kind": header.kind,
            "store_id": header.store_id,
            "since": header.since,
            "chain": header.chain,
            "last": header.last,
        }
        self.put(HEADER, cbor.encode(fields))

    def put(self, kind: int, payload: bytes) -> None:
        """Write a frame."""
        head = _HEAD.pack(kind, len(payload))
        state = xxh3_64(head, seed=self._frames)
        state.update(payload)
        self._write(head + payload + state.digest() if len(payload) < _PIECE_SIZE_BYTES else head)
        if len(payload) >= _PIECE_SIZE_BYTES:
            self._write(payload)
            self._write(state.digest())
        self._frames += 1

    def finish(self, *, last: int, chain: bytes) -> None:
        """Write the trailer, which marks the export as complete.

        Args:
            last: LSN of the last record that was exported or examined.
            chain: chain digest of that record.
        """
        fields = {"frames": self._frames, "last": last, "chain": chain, "digest": self._digest.digest()}
        self.put(TRAILER, cbor.encode(fields))

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self.size_bytes += len(data)
        write_to(self._target, data)


class FrameReader:
    """Reads an export from its first byte.

    Attributes:
        header: the header of the export.
        offset: number of bytes read so far.
        trailer: the trailer, once it has been read.
    """

    def __init__(self, source: ExportSource, *, offset: int = 0, behind: bytes = b"") -> None:
        """Read the magic and the header.

        Args:
            source: the stream to read.
            offset: offset in the stream at which this export begins.
            behind: the first bytes of this export, which the caller has already read from `source`.

        Raises:
            FormatError: the stream is not an export, or its format is newer. Facts: offset, needed,
                supported.
            CorruptionError: the header is damaged. Facts: offset.
            UsageError: the source returns a str, or cannot be read.
        """
        if not _is_open(source, "read"):
            raise _source_error(source)
        self.offset = offset
        self.trailer: dict[str, Any] = {}
        self._source = source
        self._behind = behind
        self._frames = 0
        self._digest = blake2b(digest_size=DIGEST_SIZE_BYTES)
        try:
            start = self._take(len(MAGIC), "its first bytes", magic=True)
        except (UnsupportedOperation, NotImplementedError) as error:  # Streams that cannot read raise these.
            raise _source_error(source) from error
        if start != MAGIC:
            if offset:
                self.refuse(offset, "it is followed by further data")
            message = "this is not an export of a statelog store"
            raise FormatError(message, offset=0, needed=None, supported=EXPORT_FORMAT)
        frame = self._read_frame()
        if frame.kind != HEADER:
            self.refuse(frame.offset, "it does not begin with a header")
        self.header = _decode_header(self, frame)

    def read(self) -> Frame | None:
        """Return the next frame, or None after a valid trailer.

        Raises:
            CorruptionError: a frame is damaged, or the stream ends early. Facts: offset.
        """
        digest = self._digest.copy()
        frame = self._read_frame()
        if frame.kind == HEADER:
            self.refuse(frame.offset, "a second header")
        if frame.kind != TRAILER:
            return frame
        fields = self.decode_small(frame, {"frames": int, "last": int, "chain": bytes, "digest": bytes})
        if fields["frames"] != self._frames - 1 or fields["digest"] != digest.digest():
            self.refuse(frame.offset, "its trailer does not match the preceding frames")
        self.trailer = fields
        return None

    def following(self) -> FrameReader | None:
        """Return a reader of the export that follows this one in the stream, or None at the end of the stream.

        This export must have been read to its end.

        Raises:
            CorruptionError: the following bytes are not an export. Facts: offset. For other errors, see
                `FrameReader`.
        """
        behind = self._source.read(1)
        return FrameReader(self._source, offset=self.offset, behind=behind) if behind else None

    def check_end(self) -> None:
        """Check that the stream ends after this export. Raises CorruptionError."""
        if self._source.read(1):
            self.refuse(self.offset, "it is followed by further data")

    def refuse(self, offset: int, what: str) -> NoReturn:
        """Raise CorruptionError with the byte offset of the damage."""
        message = f"the export is damaged at byte {offset}: {what}"
        raise CorruptionError(message, offset=offset)

    def decode_small(self, frame: Frame, types: dict[str, type]) -> dict[str, Any]:
        """Decode the fields of a header or trailer, which must have exactly these names and types."""
        try:
            kernels.cbor_check(frame.payload)
            fields = cbor.decode(frame.payload)
        except CorruptionError:
            self.refuse(frame.offset, "a frame whose fields cannot be read")
        is_whole = isinstance(fields, dict) and fields.keys() == types.keys()
        if not is_whole or any(type(fields[name]) is not kind for name, kind in types.items()):
            self.refuse(frame.offset, "a frame with the wrong fields")
        assert isinstance(fields, dict)
        return fields

    def _read_frame(self) -> Frame:
        offset = self.offset
        head = self._take(_HEAD.size, "a frame")
        kind, size = _HEAD.unpack(head)
        if size > _SIZE_BYTES_MAX.get(kind, -1):
            what = f"a frame of {size} bytes" if kind in _SIZE_BYTES_MAX else f"a frame of unknown kind {kind:#04x}"
            self.refuse(offset, what)
        payload = self._take(size, f"a frame of {size} bytes")
        state = xxh3_64(head, seed=self._frames)
        state.update(payload)
        if self._take(_CHECK_SIZE_BYTES, "a frame") != state.digest():
            self.refuse(offset, "the checksum of a frame does not match")
        self._frames += 1
        return Frame(kind, payload, offset)

    def _take(self, size: int, what: str, *, magic: bool = False) -> bytes:
        """Read exactly `size` bytes, in pieces. `what` names them in errors."""
        pieces = []
        left = size
        while left:
            piece, self._behind = self._behind or self._source.read(min(left, _PIECE_SIZE_BYTES)), b""
            if not isinstance(piece, bytes | bytearray | memoryview) or len(piece) > left:
                raise _source_error(self._source)
            if not piece:
                if magic:
                    break
                self.refuse(self.offset, f"it ends within {what}")
            pieces.append(bytes(piece))
            self._digest.update(piece)
            self.offset += len(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decode_header(reader: FrameReader, frame: Frame) -> Header:
    _check_format(frame)
    fields = reader.decode_small(
        frame,
        {"magic": str, "format": int, "kind": str, "store_id": bytes, "since": int, "chain": bytes, "last": int},
    )
    is_sound = (
        fields["kind"] in (LOG, THREADS)
        and len(fields["chain"]) == DIGEST_SIZE_BYTES
        and len(fields["store_id"]) == STORE_ID_SIZE_BYTES
        and 0 <= fields["since"] <= fields["last"] < 1 << 62
    )
    if not is_sound:
        reader.refuse(frame.offset, "its header has invalid values")
    return Header(fields["kind"], fields["store_id"], fields["since"], fields["chain"], fields["last"])


def _check_format(frame: Frame) -> None:
    """Raise FormatError for a newer format, before any other field of the header is read."""
    try:
        kernels.cbor_check(frame.payload)
        fields = cbor.decode(frame.payload)
    except CorruptionError:
        return
    if not isinstance(fields, dict) or fields.get("magic") != _NAME:
        message = "this is not an export of a statelog store"
        raise FormatError(message, offset=frame.offset, needed=None, supported=EXPORT_FORMAT)
    needed = fields.get("format")
    if type(needed) is int and not EXPORT_FORMAT_MIN <= needed <= EXPORT_FORMAT:
        message = f"the export has format {needed}; this release reads up to format {EXPORT_FORMAT}"
        kind = NewerFormatError if needed > EXPORT_FORMAT else FormatError
        raise kind(message, offset=frame.offset, needed=needed, supported=EXPORT_FORMAT)
