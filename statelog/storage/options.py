"""The options with which a store is opened, and checks of paths."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from statelog.errors import UsageError
from statelog.limits import (
    INTERVAL_DEFAULT_MS,
    INTERVAL_MAX_MS,
    INTERVAL_MIN_MS,
    LOCK_TIMEOUT_DEFAULT_S,
    MAX_SIZE_BYTES_DEFAULT,
    MAX_SIZE_BYTES_MIN,
)
from statelog.redaction import redacted_url

if TYPE_CHECKING:
    from statelog.format.mac import StoreKey

Durability: TypeAlias = Literal["commit", "interval"]


class Options(NamedTuple):
    """The options with which a store is opened.

    Attributes:
        read_only: write nothing. The store must exist.
        durability: what a power failure can undo: with "commit", no acknowledged commit; with "interval", at most the
            commits of the last interval.
        interval_ms: with "interval", the longest time until the flush of an acknowledged commit begins.
        max_size_bytes: the quota: the file never grows beyond it.
        lock_timeout_s: how long to wait for a lock that another process holds.
        flush: False flushes nothing, for measurements.
        key: the key of the store, or None if it has no key.
    """

    read_only: bool = False
    durability: Durability = "commit"
    interval_ms: float = INTERVAL_DEFAULT_MS
    max_size_bytes: int = MAX_SIZE_BYTES_DEFAULT
    lock_timeout_s: float = LOCK_TIMEOUT_DEFAULT_S
    flush: bool = True
    key: StoreKey | None = None

    def check(self) -> Options:
        """Return the options. Raise UsageError if one is invalid."""
        if self.durability not in ("commit", "interval"):
            message = f"durability must be 'commit' or 'interval', not {self.durability!r}"
            raise UsageError(message, durability=self.durability)
        if not (_is_number(self.interval_ms) and INTERVAL_MIN_MS <= self.interval_ms <= INTERVAL_MAX_MS):
            message = (
                f"interval_ms must be an int from {INTERVAL_MIN_MS} to {INTERVAL_MAX_MS}, not {self.interval_ms!r}"
            )
            raise UsageError(message, interval_ms=self.interval_ms, limit=INTERVAL_MAX_MS)
        if type(self.max_size_bytes) is not int or not MAX_SIZE_BYTES_MIN <= self.max_size_bytes <= sys.maxsize:
            bounds = f"from {MAX_SIZE_BYTES_MIN} to {sys.maxsize}"
            message = f"max_size_bytes must be an int {bounds}, not {self.max_size_bytes!r:.40}"
            raise UsageError(message, max_size_bytes=self.max_size_bytes, limit=MAX_SIZE_BYTES_MIN)
        if not (_is_number(self.lock_timeout_s) and self.lock_timeout_s >= 0):
            message = f"lock_timeout_s must be a non-negative number of seconds, not {self.lock_timeout_s!r}"
            raise UsageError(message, lock_timeout_s=self.lock_timeout_s)
        return self

    @property
    def shared(self) -> tuple[bool, str, int, bool]:
        """The options that must be equal in all openings of one file in one process."""
        return (self.read_only, self.durability, self.max_size_bytes, self.flush)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_URL = r"[A-Za-z][A-Za-z0-9+.\-]+:/"


def check_path(path: object) -> None:
    """Raise UsageError if `path` cannot be the path of a file, or names something other than a file, such as a URL."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        message = f"a path must be a str or an os.PathLike of a str, not {path!r}"
        raise UsageError(message, argument="path", value=path)
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        name = b""
    if not name or b"\0" in name:
        message = f"{os.fspath(path)!r} cannot be the name of a file"
        raise UsageError(message, argument="path", value=path)
    text = os.fspath(path)
    advice = _advice(text)
    if advice:
        shown = redacted_url(text)
        message = f"{shown!r} is not the path of a file: {advice}"
        raise UsageError(message, argument="path", value=shown)


def _advice(name: str) -> str:
    """Return advice for a name that SQLite or a fleet accepts, but `open` does not; '' if `name` is a path."""
    if name == ":memory:":
        return "a store is a file. Create a temporary one in a tempfile.TemporaryDirectory()"
    if name.startswith("file:"):
        return "pass only the path, and options as arguments: open('agent.state', read_only=True)"
    if name.startswith("sqlite:"):
        return "give the store its own path, and copy the database: statelog import-langgraph sqlite:PATH STORE"
    if ":/" in name and re.match(_URL, name):
        return "statelog.fleet.connect opens a bucket, a folder or Postgres by its URL"
    return ""
