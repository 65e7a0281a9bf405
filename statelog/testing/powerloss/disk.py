"""The possible contents of a disk after a power cut, given what was written and flushed before it.

The rules are POSIX's rules. A file system on a disk with a volatile cache guarantees no more:

- A file has everything that was written before its last completed flush began.
- Of later writes, each page of 4 KiB is on the disk or not, independently of all other pages of any file. A page that
  was written several times has its content before these writes, or after the first n of them. A page that was being
  written may be torn: each of its sectors of 512 bytes is the old or the new one.
- The pages of an O_DSYNC write are on the disk when it has returned. It flushes nothing else.
- A file may already have its new length, with zeros for missing pages.
- A change of a name (create, link, rename, remove) is on the disk after a flush of the directory, and perhaps before.
- After a failed flush, the unflushed pages may never get to the disk, whatever later flushes report, unless they are
  written again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import xxhash

from statelog.testing.powerloss.trace import (
    Create,
    DirectoryFlushEnd,
    FlushEnd,
    Link,
    Rename,
    Truncate,
    Unlink,
    Write,
    WriteFlushed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from statelog.testing.powerloss.trace import Event, Trace

PAGE_SIZE_BYTES = 4096
SECTOR_SIZE_BYTES = 512
SECTORS = PAGE_SIZE_BYTES // SECTOR_SIZE_BYTES
ALL_SECTORS = (1 << SECTORS) - 1


@dataclass(slots=True)
class _Fragment:
    """The part of a write that is in one page."""

    at: int
    offset: int
    data: bytes
    is_doomed: bool = False
    """True if a flush of the fragment has failed. No later flush then makes it durable."""


@dataclass(slots=True)
class _Resize:
    at: int
    size: int


@dataclass(slots=True)
class _File:
    content: bytearray = field(default_factory=bytearray)
    """The content that is certainly on the disk."""
    pages: dict[int, list[_Fragment]] = field(default_factory=dict)
    resizes: list[_Resize] = field(default_factory=list)
    frozen: bytes | None = None
    """`content` as bytes, or None until it is first needed after a change."""

    @property
    def is_pending(self) -> bool:
        return bool(self.pages or self.resizes)


_NameEvent = Create | Link | Rename | Unlink


@dataclass(frozen=True, slots=True)
class _Naming:
    at: int
    event: _NameEvent

    @property
    def directory(self) -> str:
        name = self.event.new if isinstance(self.event, Link | Rename) else self.event.name
        return str(PurePosixPath(name).parent)


@dataclass(frozen=True, slots=True)
class Unit:
    """A change that may have reached the disk.

    Attributes:
        levels: the number of writes to a page, of which only the first ones may have reached the disk; 1 for others.
        file: the file's number; None for a name.
        page: the page's number; None for a length or a name.
        at: the number of the event that changes a length or a name.
    """

    levels: int
    file: int | None
    page: int | None
    at: int = -1

    def __str__(self) -> str:
        """Return a short description for reports."""
        if self.page is not None:
            return f"page {self.page} of file {self.file}"
        if self.file is None:
            return f"name of event {self.at}"
        return f"length of file {self.file}" + (f" of event {self.at}" if self.at >= 0 else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """The changes that reached the disk: a level for each unit, and the sectors of the next write for torn pages."""

    levels: tuple[int, ...]
    torn: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """The files of a directory after a power cut, each with its content and all its names."""

    files: tuple[tuple[tuple[str, ...], bytes], ...]

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the image."""
        state = xxhash.xxh3_128()
        for names, content in self.files:
            state.update(f"{len(content)} {names!r}".encode("utf-8", "surrogateescape"))
            state.update(content)
        return state.digest()

    def write(self, directory: Path) -> None:
        """Put the files into a directory."""
        for names, content in self.files:
            for name in names:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
            first = directory / names[0]
            first.write_bytes(content)
            for name in names[1:]:
                (directory / name).hardlink_to(first)

    def as_base(self) -> dict[str, bytes]:
        """Return the contents, keyed by name, as the base of another recording."""
        return {name: content for names, content in self.files for name in names}


class Disk:
    """The state of a disk at one point of a trace: the certain and the possible contents.

    Args:
        trace: the trace. The disk begins with its base.
    """

    def __init__(self, trace: Trace) -> None:
        self._files = {trace.files[name]: _File(bytearray(content)) for name, content in trace.base.items()}
        self._names = dict(trace.files)
        self._namings: list[_Naming] = []
        self._unspecified = trace.unspecified
        self._writes: dict[int, Write] = {}

    def apply(self, at: int, event: Event) -> None:
        """Apply the event with the number `at`."""
        match event:
            case Write():
                self._write(at, event)
            case Truncate():
                self._file(event.file).resizes.append(_Resize(at, event.size))
            case WriteFlushed():
                self._flush_write(event)
            case FlushEnd(failed=True):
                self._doom(self._file(event.file), event.begin)
            case FlushEnd():
                self._flush(self._file(event.file), event.begin)
            case Create() | Link() | Rename() | Unlink():
                self._namings.append(_Naming(at, event))
            case DirectoryFlushEnd(failed=False):
                self._flush_directory(event)
            case _:
                pass

    # --- events -------------------------------------------------------------------

    def _file(self, number: int) -> _File:
        return self._files.setdefault(number, _File())

    def _write(self, at: int, event: Write) -> None:
        self._writes[at] = event
        pages = self._file(event.file).pages
        done = 0
        while done < len(event.data):
            offset = event.offset + done
            size = PAGE_SIZE_BYTES - offset % PAGE_SIZE_BYTES
            fragment = _Fragment(at, offset, event.data[done : done + size], event.refused and event.synchronous)
            pages.setdefault(offset // PAGE_SIZE_BYTES, []).append(fragment)
            done += size

    def _flush_write(self, event: WriteFlushed) -> None:
        write = self._writes[event.write]
        file = self._file(event.file)
        first, end = write.offset // PAGE_SIZE_BYTES, -(-(write.offset + len(write.data)) // PAGE_SIZE_BYTES)
        self._settle(file, range(first, end), event.write + 1)

    def _flush(self, file: _File, begin: int) -> None:
        self._settle(file, list(file.pages), begin)

    def _settle(self, file: _File, pages: Iterable[int], before: int) -> None:
        """Apply to the certain content all resizes, and all writes to `pages`, that precede event `before`."""
        settled: list[_Fragment | _Resize] = [resize for resize in file.resizes if resize.at < before]
        file.resizes = [resize for resize in file.resizes if resize.at >= before]
        for page in pages:
            fragments = file.pages.get(page, [])
            count = max(
                (n for n, each in enumerate(fragments, 1) if each.at < before and not each.is_doomed), default=0
            )
            settled += fragments[:count]
            if fragments[count:]:
                file.pages[page] = fragments[count:]
            else:
                file.pages.pop(page, None)
        for change in sorted(settled, key=lambda each: each.at):
            _change(file.content, change)
        file.frozen = None

    @staticmethod
    def _doom(file: _File, begin: int) -> None:
        for fragments in file.pages.values():
            for fragment in fragments:
                fragment.is_doomed = fragment.is_doomed or fragment.at < begin

    def _flush_directory(self, event: DirectoryFlushEnd) -> None:
        left = []
        for naming in self._namings:
            if naming.at < event.begin and naming.directory == event.name:
                _name(self._names, naming.event)
            else:
                left.append(naming)
        self._namings = left

    # --- images -------------------------------------------------------------------

    def units(self) -> tuple[Unit, ...]:
        """Return the uncertain changes. `Choice.levels` has a level for each change, in this order."""
        units: list[Unit] = []
        for number, file in self._files.items():
            units += [Unit(len(fragments), number, page) for page, fragments in file.pages.items()]
            units += [Unit(1, number, None, resize.at) for resize in file.resizes]
            if not file.resizes and self._length_written(file) > len(file.content):
                units.append(Unit(1, number, None))
        units += [Unit(1, None, None, naming.at) for naming in self._namings]
        return tuple(units)

    def image(self, units: Sequence[Unit], choice: Choice) -> Image:
        """Return the contents of the disk if the changes of `choice` among `units` have reached it."""
        changes: dict[int, list[_Fragment | _Resize]] = {}
        lengths: dict[int, int] = {}
        names = dict(self._names)
        for position, (unit, level) in enumerate(zip(units, choice.levels, strict=True)):
            if unit.file is None:
                if level:
                    _name(names, next(naming.event for naming in self._namings if naming.at == unit.at))
                continue
            file = self._files[unit.file]
            if unit.page is not None:
                fragments = file.pages[unit.page]
                into = changes.setdefault(unit.file, [])
                into += fragments[:level]
                if (sectors := choice.torn.get(position)) is not None and level < len(fragments):
                    into += _torn(fragments[level], sectors)
            elif level and unit.at >= 0:
                changes.setdefault(unit.file, []).extend(each for each in file.resizes if each.at == unit.at)
            elif level:
                lengths[unit.file] = self._length_written(file)
        return self._assemble(names, changes, lengths)

    def _assemble(
        self, names: Mapping[str, int], changes: Mapping[int, list[_Fragment | _Resize]], lengths: Mapping[int, int]
    ) -> Image:
        by_file: dict[int, list[str]] = {}
        for name, number in names.items():
            if name not in self._unspecified:
                by_file.setdefault(number, []).append(name)
        files = []
        for number, its_names in sorted(by_file.items()):
            file = self._file(number)
            if file.frozen is None:
                file.frozen = bytes(file.content)
            content = file.frozen
            if number in changes or number in lengths:
                changed = bytearray(content)
                for change in sorted(changes.get(number, ()), key=lambda each: each.at):
                    _change(changed, change)
                changed += bytes(max(lengths.get(number, 0) - len(changed), 0))
                content = bytes(changed)
            files.append((tuple(sorted(its_names)), content))
        return Image(tuple(files))

    @staticmethod
    def _length_written(file: _File) -> int:
        ends = (each.offset + len(each.data) for fragments in file.pages.values() for each in fragments)
        return max(ends, default=0)


def _change(content: bytearray, change: _Fragment | _Resize) -> None:
    if isinstance(change, _Resize):
        del content[change.size :]
        content += bytes(change.size - len(content))
        return
    if len(content) < change.offset:
        content += bytes(change.offset - len(content))
    content[change.offset : change.offset + len(change.data)] = change.data


def _torn(fragment: _Fragment, sectors: int) -> list[_Fragment]:
    """Return the parts of a fragment that are in the chosen sectors of its page."""
    parts = []
    end = fragment.offset + len(fragment.data)
    at = fragment.offset
    while at < end:
        stop = min(end, (at // SECTOR_SIZE_BYTES + 1) * SECTOR_SIZE_BYTES)
        if sectors >> (at % PAGE_SIZE_BYTES // SECTOR_SIZE_BYTES) & 1:
            data = fragment.data[at - fragment.offset : stop - fragment.offset]
            parts.append(_Fragment(fragment.at, at, data))
        at = stop
    return parts


def _name(names: dict[str, int], event: _NameEvent) -> None:
    match event:
        case Create():
            names[event.name] = event.file
        case Link():
            names[event.new] = event.file
        case Rename():
            if names.get(event.old) == event.file:
                del names[event.old]
            names[event.new] = event.file
        case Unlink():
            names.pop(event.name, None)
