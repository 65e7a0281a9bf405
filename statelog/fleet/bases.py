"""Bases. A base is an image of a store, cut into pieces, and the segments shipped since, merged into a few segments.

A new base refers to the pieces and segments of earlier bases instead of sending them again.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import zstandard

from statelog.errors import CorruptionError
from statelog.fleet import names
from statelog.fleet.head import BaseImage
from statelog.fleet.segments import inflate
from statelog.format import cbor
from statelog.portable.frames import FrameReader
from statelog.storage.file.disk import write_all
from statelog.store.session import session_of
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from statelog import Store

PIECE_SIZE_BYTES = 1024 * 1024
_DIGEST_SIZE_BYTES = 20
_LIST, _LOG = "list", "log"
_LEVEL = 3
_SIDE_BY_SIDE = 16
_WRITERS = 4
"""The number of threads that expand pieces and check their digests. Both operations release Python's lock."""


class ImagePiece(NamedTuple):
    """A piece of an image: its digest, and the name of the object that stores it."""

    digest: bytes
    name: str


class MergedSegment(NamedTuple):
    """A segment into which several shipped segments were merged.

    Attributes:
        name: name of its object.
        since: the LSN before its first record.
        size_bytes: size of the object.
    """

    name: str
    since: int
    size_bytes: int


class Listed(NamedTuple):
    """The list of a base: the pieces of its image, and its merged segments.

    Attributes:
        size_bytes: size of the image; 0 if there is no image. Then the logs begin at the start of the store's log.
        pieces: pieces of the image, in order.
        before: the encoded head that the base replaced, from which earlier states can be restored.
        time_us: time at which the base was made.
        logs: merged segments from the image up to the base's LSN.
    """

    size_bytes: int
    pieces: tuple[ImagePiece, ...]
    before: bytes
    time_us: int
    logs: tuple[MergedSegment, ...] = ()


NOTHING = Listed(0, (), b"", 0)
"""The list of a store without a base."""


def list_name(base: BaseImage) -> str:
    """Return the name of the object that stores a base's list."""
    return names.base(base.lsn, base.epoch) + _LIST


def log_name(base: BaseImage) -> str:
    """Return the name of the base's merged segment."""
    return names.base(base.lsn, base.epoch) + _LOG


def image(store: Store, path: Path, epoch: int) -> BaseImage:
    """Write an image of the store to a new file, and return its description."""
    store.image(path)
    key = session_of(store).owner.store_file.lmdb_file.key
    with open_for_records(path, read_only=True, key=key) as opened:
        lsn = opened.last_lsn
        target = io.BytesIO()
        opened.export(target, since=lsn)
    return BaseImage(lsn, epoch, FrameReader(io.BytesIO(target.getvalue())).header.chain)


def cut(path: Path, base: BaseImage, known: dict[bytes, str]) -> Iterator[tuple[ImagePiece, bytes | None]]:
    """Yield the pieces of an image, each with the data to put, or None if the storage already has the piece."""
    known = dict(known)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with path.open("rb") as file:
        for number, data in enumerate(iter(lambda: file.read(PIECE_SIZE_BYTES), b"")):
            digest = blake2b(data, digest_size=_DIGEST_SIZE_BYTES).digest()
            if digest in known:
                yield ImagePiece(digest, known[digest]), None
            else:
                known[digest] = f"{names.base(base.lsn, base.epoch)}{number:08}"
                yield ImagePiece(digest, known[digest]), compressor.compress(data)


def put_image(path: Path, base: BaseImage, known: Iterable[ImagePiece], put: Callable[[str, bytes], object]) -> Listed:
    """Put the missing pieces of an image. Return a base's list with only the image's size and pieces."""
    pieces = []
    for piece, data in cut(path, base, {each.digest: each.name for each in known}):
        if data is not None:
            put(piece.name, data)
        pieces.append(piece)
    return NOTHING._replace(size_bytes=path.stat().st_size, pieces=tuple(pieces))


def encode(listed: Listed) -> bytes:
    """Encode the list of a base."""
    fields = {
        "format": 1,
        "size_bytes": listed.size_bytes,
        "pieces": [list(piece) for piece in listed.pieces],
        "before": listed.before,
        "time_us": listed.time_us,
        "logs": [list(log) for log in listed.logs],
    }
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(cbor.encode(fields))


def decode(name: str, data: bytes) -> Listed:
    """Decode the list of a base. Raises CorruptionError if the list is damaged. Facts: object."""
    try:
        fields: Any = cbor.decode(inflate(name, data))
        pieces = tuple(ImagePiece(digest, object_name) for digest, object_name in fields["pieces"])
        logs = tuple(MergedSegment(*each) for each in fields["logs"])
        found = Listed(fields["size_bytes"], pieces, fields["before"], fields["time_us"], logs)
        is_sound = len(pieces) == -(-found.size_bytes // PIECE_SIZE_BYTES) and all(
            len(piece.digest) == _DIGEST_SIZE_BYTES and piece.name.startswith("base/") for piece in pieces
        )
        is_sound = is_sound and all(log.name.startswith("base/") and log.since >= 0 for log in logs)
    except (CorruptionError, KeyError, TypeError, ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        message = f"{name} is damaged, or does not list the pieces of a base"
        raise CorruptionError(message, object=name)
    return found


def join(listed: Listed, descriptor: int, read_all: Callable[[list[str]], list[bytes]]) -> None:
    """Write an image into an empty file. Pieces are expanded and written while the next ones are fetched.

    Raises:
        CorruptionError: a piece is missing, or does not match its digest. Facts: object.
    """
    pieces = iter(enumerate(listed.pieces))
    with ThreadPoolExecutor(_WRITERS, "statelog-fleet-write") as writers:
        writing: list[Future[None]] = []
        while some := list(islice(pieces, _SIDE_BY_SIDE)):
            fetched = read_all([piece.name for _number, piece in some])
            for each in writing:
                each.result()
            writing = [
                writers.submit(_write, listed, number, compressed, descriptor)
                for (number, _piece), compressed in zip(some, fetched, strict=True)
            ]
        for each in writing:
            each.result()
    os.ftruncate(descriptor, listed.size_bytes)


def _write(listed: Listed, number: int, compressed: bytes, descriptor: int) -> None:
    """Write one piece at its offset."""
    piece = listed.pieces[number]
    data = inflate(piece.name, compressed, size_bytes_max=PIECE_SIZE_BYTES)
    at = number * PIECE_SIZE_BYTES
    is_whole = len(data) == min(PIECE_SIZE_BYTES, listed.size_bytes - at)
    if not is_whole or blake2b(data, digest_size=_DIGEST_SIZE_BYTES).digest() != piece.digest:
        message = f"{piece.name} is damaged: it does not match its digest"
        raise CorruptionError(message, object=piece.name)
    write_all(descriptor, data, at)
