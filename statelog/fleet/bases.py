"""Bases: images of a store, cut in pieces, and what was shipped since as few large segments.

Pieces and segments that an earlier base has are named, and not sent again.
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
from statelog.fleet.head import Base
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
"""Threads that expand pieces and check their digests, without holding Python's lock."""


class Piece(NamedTuple):
    """Of an image: its digest, and the object that holds it."""

    digest: bytes
    name: str


class Log(NamedTuple):
    """A segment that holds what was shipped as many.

    Attributes:
        name: of its object.
        since: the LSN behind which it begins.
        size_bytes: of the object.

    """

    name: str
    since: int
    size_bytes: int


class Listed(NamedTuple):
    """What a base's list says.

    Attributes:
        size_bytes: of the image; 0 if there is none, and the logs begin with the store.
        pieces: in their order.
        before: the encoded head that the base has taken the place of: its base and its tail lead to earlier states.
        time_us: when the base was made.
        logs: what is behind the image, up to the base's LSN.

    """

    size_bytes: int
    pieces: tuple[Piece, ...]
    before: bytes
    time_us: int
    logs: tuple[Log, ...] = ()


NOTHING = Listed(0, (), b"", 0)
"""Of a store that has no base."""


def list_name(base: Base) -> str:
    """Return the name of the object that lists a base's pieces."""
    return names.base(base.lsn, base.epoch) + _LIST


def log_name(base: Base) -> str:
    """Return the name of the segment that is put for a base."""
    return names.base(base.lsn, base.epoch) + _LOG


def image(store: Store, path: Path, epoch: int) -> Base:
    """Write an image to a new file, and return what it is of."""
    store.image(path)
    key = session_of(store).owner.store_file.lmdb_file.key
    with open_for_records(path, read_only=True, key=key) as opened:
        lsn = opened.last_lsn
        target = io.BytesIO()
        opened.export(target, since=lsn)
    return Base(lsn, epoch, FrameReader(io.BytesIO(target.getvalue())).header.chain)


def cut(path: Path, base: Base, known: dict[bytes, str]) -> Iterator[tuple[Piece, bytes | None]]:
    """Yield the pieces of an image, with what has to be put of each; None for one that is there."""
    known = dict(known)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with path.open("rb") as file:
        for number, data in enumerate(iter(lambda: file.read(PIECE_SIZE_BYTES), b"")):
            digest = blake2b(data, digest_size=_DIGEST_SIZE_BYTES).digest()
            if digest in known:
                yield Piece(digest, known[digest]), None
            else:
                known[digest] = f"{names.base(base.lsn, base.epoch)}{number:08}"
                yield Piece(digest, known[digest]), compressor.compress(data)


def put_image(path: Path, base: Base, known: Iterable[Piece], put: Callable[[str, bytes], object]) -> Listed:
    """Put the pieces of an image that are not known to be there; return a list of all of them, of no time as yet."""
    pieces = []
    for piece, data in cut(path, base, {each.digest: each.name for each in known}):
        if data is not None:
            put(piece.name, data)
        pieces.append(piece)
    return NOTHING._replace(size_bytes=path.stat().st_size, pieces=tuple(pieces))


def encode(listed: Listed) -> bytes:
    """Return the bytes of a list."""
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
    """Return what a list says. Raises CorruptionError: it is damaged. Facts: object."""
    try:
        fields: Any = cbor.decode(inflate(name, data))
        pieces = tuple(Piece(digest, object_name) for digest, object_name in fields["pieces"])
        logs = tuple(Log(*each) for each in fields["logs"])
        found = Listed(fields["size_bytes"], pieces, fields["before"], fields["time_us"], logs)
        is_sound = len(pieces) == -(-found.size_bytes // PIECE_SIZE_BYTES) and all(
            len(piece.digest) == _DIGEST_SIZE_BYTES and piece.name.startswith("base/") for piece in pieces
        )
        is_sound = is_sound and all(log.name.startswith("base/") and log.since >= 0 for log in logs)
    except (CorruptionError, KeyError, TypeError, ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        message = f"{name} is damaged, or no list of a base"
        raise CorruptionError(message, object=name)
    return found


def join(listed: Listed, descriptor: int, read_all: Callable[[list[str]], list[bytes]]) -> None:
    """Write an image into an empty file. Some pieces are expanded and written while the next ones are fetched.

    Raises:
        CorruptionError: a piece is missing, or not what its digest says. Facts: object.

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
    """Write a piece in its place."""
    piece = listed.pieces[number]
    data = inflate(piece.name, compressed, size_bytes_max=PIECE_SIZE_BYTES)
    at = number * PIECE_SIZE_BYTES
    is_whole = len(data) == min(PIECE_SIZE_BYTES, listed.size_bytes - at)
    if not is_whole or blake2b(data, digest_size=_DIGEST_SIZE_BYTES).digest() != piece.digest:
        message = f"{piece.name} is damaged: it is not what its digest says"
        raise CorruptionError(message, object=piece.name)
    write_all(descriptor, data, at)
