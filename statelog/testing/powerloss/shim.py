"""Builds, preloads, reads and controls the library that logs a process's file operations, and makes calls fail.

`shim.c` describes the log. The log is a sparse file that all these processes map. The layouts here match
`struct head` and `struct record` in `shim.c`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import TYPE_CHECKING, Self

from statelog.errors import StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

SOURCE = Path(__file__).with_name("shim.c")
LOG_VARIABLE = "STATELOG_SHIM_LOG"
DIRECTORY_VARIABLE = "STATELOG_SHIM_DIRECTORY"

LOG_CAPACITY_BYTES = 1 << 30
"""The length of the sparse file, and of its mapping. On the disk it takes only as much space as was logged."""

_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla")
_MAGIC = 0x314D494853474C53
_HEAD_SIZE_BYTES = 4096
_HEAD = struct.Struct("<QQQIIII")
_PAUSED_AT = 28
_OVERFLOW_AT = 32
_FAULT_AT = 40
_FAULT = struct.Struct("<IIiIqQ")
_CALLS_AT = _FAULT_AT + _FAULT.size
_RECORD = struct.Struct("<IHHIIQQqQ")
UNFINISHED = -(2**63)


class SystemCall(IntFlag):
    """System calls that can be made to fail."""

    WRITE = 1
    FLUSH = 2
    TRUNCATE = 4
    OPEN = 8
    RENAME = 16
    """Rename and link, which publish a file."""
    UNLINK = 32
    GROW = 64
    """A write or truncation beyond the end of the file, which a full disk refuses."""


class Action(IntEnum):
    """The effect of a fault on a call."""

    NONE = 0
    FAIL = 1
    """The call fails without effect."""
    FAIL_AFTER = 2
    """The call takes effect, and reports a failure."""
    SHORT = 3
    """Half of a write is made, and its size is reported. Other calls fail."""
    IGNORE = 4
    """The call has no effect, and reports success."""
    KILL = 5
    KILL_AFTER = 6


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the `nth` call among those named by `calls`. If `persistent`, all later calls also fail."""

    calls: SystemCall
    action: Action = Action.FAIL
    error: int = errno.EIO
    nth: int = 1
    persistent: bool = False

    def __str__(self) -> str:
        """Return a short description for reports."""
        how = " and all after it" if self.persistent else ""
        return f"{self.calls.name} {self.nth}{how}: {self.action.name} {errno.errorcode.get(self.error, self.error)}"


@dataclass(frozen=True, slots=True)
class ShimRecord:
    """One record of the log, as `shim.c` wrote it. `at` is its offset."""

    at: int
    kind: int
    flags: int
    process: int
    thread: int
    inode: int
    offset: int
    result: int
    payload: bytes


def is_supported() -> bool:
    """Return True if this machine can record: a 64-bit Linux with a C compiler."""
    return sys.platform == "linux" and sys.maxsize > 2**32 and find_compiler() is not None and SOURCE.exists()


def find_compiler() -> str | None:
    """Return the C compiler, or None if there is none."""
    named = os.environ.get("CC")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


@functools.cache
def build_shim() -> Path:
    """Compile the library once per process, and return its path.

    Raises:
        UsageError: this is not a 64-bit Linux, or there is no C compiler.
        StorageError: the compiler failed. The message has its output.
    """
    compiler = find_compiler()
    if not is_supported() or compiler is None:
        message = "recording writes needs a 64-bit Linux and a C compiler (cc, or what CC names)"
        raise UsageError(message, platform=sys.platform, compiler=compiler)
    directory = _lasting_directory()
    library = Path(directory.name) / "shim.so"
    command = [compiler, "-std=c11", *_WARNINGS, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", str(SOURCE)]
    command += ["-o", str(library), "-lpthread"]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - the command compiles our own source
    if done.returncode != 0:
        message = f"{compiler} failed: {done.stderr.decode(errors='replace')[-2000:]}"
        raise StorageError(message, path=str(SOURCE))
    return library


@functools.cache
def _lasting_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a directory that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="statelog-shim-")


class ShimLog:
    """The log of recorded processes, which also controls their faults.

    Args:
        path: the path of the log, which `create` has created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    @classmethod
    def create(cls, path: Path, *, capacity_bytes: int = LOG_CAPACITY_BYTES) -> Self:
        """Create an empty log at `path`."""
        with path.open("xb") as file:
            file.write(_HEAD.pack(_MAGIC, 0, 0, 0, 0, 0, 0))
            file.truncate(capacity_bytes)
        return cls(path)

    @classmethod
    def attached(cls) -> Self | None:
        """Return the log of this process, or None if the process is not recorded."""
        path = os.environ.get(LOG_VARIABLE)
        return None if path is None else cls(Path(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log, and remove its file."""
        self._map.close()
        self.path.unlink(missing_ok=True)

    def environment(self, directory: Path) -> dict[str, str]:
        """Return environment variables for a child process. They make the library record its calls in `directory`."""
        preloaded = os.environ.get("LD_PRELOAD", "")
        library = str(build_shim())
        return {
            **os.environ,
            "LD_PRELOAD": f"{library}:{preloaded}" if preloaded else library,
            LOG_VARIABLE: str(self.path),
            DIRECTORY_VARIABLE: str(directory),
        }

    # --- faults -------------------------------------------------------------------

    def arm(self, fault: Fault) -> None:
        """Make a call fail. At most one fault is armed, and a new one replaces it."""
        _FAULT.pack_into(self._map, _FAULT_AT, fault.calls, fault.action, fault.error, fault.persistent, fault.nth, 0)

    def disarm(self) -> None:
        """Disarm the fault, so that no call fails."""
        _FAULT.pack_into(self._map, _FAULT_AT, 0, 0, 0, 0, 0, self.strikes)

    @property
    def strikes(self) -> int:
        """The number of calls that the fault has hit since it was armed."""
        strikes: int = _FAULT.unpack_from(self._map, _FAULT_AT)[-1]
        return strikes

    def calls(self) -> dict[SystemCall, int]:
        """Return the number of calls of each kind since the last reset."""
        counts = struct.unpack_from(f"<{len(SystemCall)}Q", self._map, _CALLS_AT)
        return dict(zip(SystemCall, counts, strict=True))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the log and the faults during the `with` block."""
        struct.pack_into("<I", self._map, _PAUSED_AT, 1)
        try:
            yield
        finally:
            struct.pack_into("<I", self._map, _PAUSED_AT, 0)

    # --- records ------------------------------------------------------------------

    def reset(self) -> None:
        """Remove all records and counts. No process may write to the log during this call."""
        struct.pack_into("<Q", self._map, 16, 0)
        struct.pack_into("<I", self._map, _OVERFLOW_AT, 0)
        struct.pack_into(f"<{len(SystemCall)}Q", self._map, _CALLS_AT, *[0] * len(SystemCall))

    def records(self) -> Iterator[ShimRecord]:
        """Yield the records of the log, in order.

        Raises:
            StorageError: more was written than the log can hold.
        """
        if struct.unpack_from("<I", self._map, _OVERFLOW_AT)[0]:
            message = f"more was written than the log holds ({len(self._map)} bytes)"
            raise StorageError(message, path=str(self.path))
        end = struct.unpack_from("<Q", self._map, 16)[0]
        at = 0
        while at < end:
            start = _HEAD_SIZE_BYTES + at
            size, kind, flags, process, thread, inode, offset, result, payload_size = _RECORD.unpack_from(
                self._map, start
            )
            payload = self._map[start + _RECORD.size : start + _RECORD.size + payload_size]
            yield ShimRecord(at, kind, flags, process, thread, inode, offset, result, payload)
            at += size


@functools.cache
def _mark_function() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None).statelog_shim_mark
    function.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    return function


def mark(data: bytes) -> None:
    """Put a mark into the log of this process, in the order of its writes.

    Raises:
        StorageError: this process is not recorded, or its log is full.
    """
    try:
        result: int = _mark_function()(data, len(data))
    except AttributeError as error:
        message = "this process is not recorded"
        raise StorageError(message) from error
    if result != 0:
        message = "the log is full"
        raise StorageError(message)
