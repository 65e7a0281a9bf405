"""Traces: the logged file operations of a process as values, in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.testing.powerloss.shim import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from statelog.testing.powerloss.shim import ShimRecord

_SYNCHRONOUS = 1
_REFUSED = 2


@dataclass(frozen=True, slots=True)
class Write:
    """A write to a file. If `refused`, the call reported a failure, but the bytes may be in the file."""

    file: int
    offset: int
    data: bytes
    synchronous: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """A change of the length of a file: it was cut off, or extended with zeros."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class WriteFlushed:
    """The end of the O_DSYNC write with the event number `write`."""

    file: int
    write: int


@dataclass(frozen=True, slots=True)
class FlushBegin:
    """The start of a flush of a file."""

    file: int


@dataclass(frozen=True, slots=True)
class FlushEnd:
    """The end of the flush with the event number `begin`. If `failed`, the flush returned an error."""

    file: int
    begin: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """The creation of a file under a name."""

    file: int
    name: str


@dataclass(frozen=True, slots=True)
class Link:
    """A second name of a file. `old` is empty if the file came from another directory."""

    file: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A change of a file's name. The new name may have belonged to another file."""

    file: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """The removal of a name."""

    name: str


@dataclass(frozen=True, slots=True)
class DirectoryFlushBegin:
    """The start of a flush of a directory."""

    name: str


@dataclass(frozen=True, slots=True)
class DirectoryFlushEnd:
    """The end of the directory flush with the event number `begin`."""

    name: str
    begin: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of the recorded process."""

    data: bytes


Event = (
    Write
    | Truncate
    | WriteFlushed
    | FlushBegin
    | FlushEnd
    | Create
    | Link
    | Rename
    | Unlink
    | DirectoryFlushBegin
    | DirectoryFlushEnd
    | Mark
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording of one directory.

    Attributes:
        base: the names and contents of the files on the disk at the beginning.
        files: for each file in `base`, the number that identifies it in `events`.
        events: the events.
        unspecified: the names of files that were written as maps. After a power cut, they may contain anything.
    """

    base: Mapping[str, bytes]
    files: Mapping[str, int]
    events: tuple[Event, ...]
    unspecified: frozenset[str]


class _RecordKind(IntEnum):
    WRITE = 1
    FLUSH_BEGIN = 2
    FLUSH_END = 3
    WRITE_FLUSHED = 4
    TRUNCATE = 5
    CREATE = 6
    LINK = 7
    RENAME = 8
    UNLINK = 9
    DIRECTORY_BEGIN = 10
    DIRECTORY_END = 11
    MARK = 12
    MAPPED = 13
    MSYNC = 14
    OPEN = 15
    UNSEEN = 16


_NO_EVENT = {_RecordKind.MAPPED, _RecordKind.MSYNC, _RecordKind.OPEN}


class _TraceReader:
    """Turns records into events, inodes into file numbers, and offsets in the log into event numbers."""

    def __init__(self, base: Mapping[str, bytes]) -> None:
        self.files = {name: number for number, name in enumerate(base)}
        self.events: list[Event] = []
        self.unspecified: set[str] = set()
        self._by_inode: dict[int, int] = {}
        self._count = len(base)
        self._places: dict[int, int] = {}

    def take(self, record: ShimRecord) -> None:
        """Add one record."""
        kind = _RecordKind(record.kind)
        if kind is _RecordKind.MAPPED:
            self.unspecified.add(_text(record.payload))
        if kind is _RecordKind.OPEN and record.inode not in self._by_inode:
            self._by_inode[record.inode] = self._known(_text(record.payload))
        if kind is _RecordKind.UNSEEN:
            message = f"{_text(record.payload)} changes a file in a way that is not recorded"
            raise UsageError(message)
        is_end = kind in (_RecordKind.FLUSH_END, _RecordKind.DIRECTORY_END)
        if kind in _NO_EVENT or (not is_end and UNFINISHED != record.result < 0 and not _is_flush(kind)):
            return
        self._places[record.at] = len(self.events)
        self.events.append(self._event(kind, record))

    def _event(self, kind: _RecordKind, record: ShimRecord) -> Event:
        names = [_text(name) for name in record.payload.split(b"\0")] if kind is not _RecordKind.WRITE else []
        if kind is _RecordKind.MARK:
            return Mark(record.payload)
        if kind is _RecordKind.DIRECTORY_BEGIN:
            return DirectoryFlushBegin(names[0])
        if kind is _RecordKind.DIRECTORY_END:
            begin = self._places[record.offset]
            began = self.events[begin]
            assert isinstance(began, DirectoryFlushBegin)
            return DirectoryFlushEnd(began.name, begin, failed=record.result < 0)
        if kind is _RecordKind.UNLINK:
            return Unlink(names[0])
        if kind is _RecordKind.CREATE:
            self._by_inode[record.inode] = self._count
            self._count += 1
            return Create(self._count - 1, names[0])
        file = self._file(record.inode, names[0] if kind in (_RecordKind.LINK, _RecordKind.RENAME) else "")
        return self._file_event(kind, record, file, names)

    def _file_event(self, kind: _RecordKind, record: ShimRecord, file: int, names: list[str]) -> Event:
        if kind is _RecordKind.WRITE:
            size = len(record.payload) if record.result == UNFINISHED else record.result
            synchronous, refused = bool(record.flags & _SYNCHRONOUS), bool(record.flags & _REFUSED)
            return Write(file, record.offset, record.payload[:size], synchronous, refused)
        if kind is _RecordKind.WRITE_FLUSHED:
            return WriteFlushed(file, self._places[record.offset])
        if kind is _RecordKind.TRUNCATE:
            return Truncate(file, record.offset)
        if kind is _RecordKind.FLUSH_BEGIN:
            return FlushBegin(file)
        if kind is _RecordKind.FLUSH_END:
            return FlushEnd(file, self._places[record.offset], failed=record.result < 0)
        return (Link if kind is _RecordKind.LINK else Rename)(file, *names)

    def _file(self, inode: int, name: str) -> int:
        if inode not in self._by_inode:
            self._by_inode[inode] = self._known(name)
        return self._by_inode[inode]

    def _known(self, name: str) -> int:
        if name not in self.files:
            message = f"{name or 'a file'} existed before the recording began, but is not in the base of the recording"
            raise UsageError(message, path=name)
        return self.files[name]


def _is_flush(kind: _RecordKind) -> bool:
    return kind in (_RecordKind.FLUSH_BEGIN, _RecordKind.DIRECTORY_BEGIN)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def read_trace(records: Iterable[ShimRecord], base: Mapping[str, bytes] | None = None) -> Trace:
    """Read a log.

    Args:
        records: the records of the log.
        base: the names and contents of the files at the beginning of the log.

    Raises:
        UsageError: an operation cannot be logged, or the base lacks a file.
    """
    known = dict(base or {})
    reader = _TraceReader(known)
    for record in records:
        reader.take(record)
    return Trace(known, reader.files, tuple(reader.events), frozenset(reader.unspecified))
