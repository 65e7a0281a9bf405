"""Keys of entries, and patterns of keys."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache, partial
from typing import NamedTuple

from statelog.errors import UsageError
from statelog.limits import ENTRY_KEY_SIZE_BYTES_MAX
from statelog.log.names import check_name

RESERVED = "durable/"
"""The prefix of the library's own keys. All handles may read these keys; `Rights` decides which may write them."""

_WILD = re.compile(r"[*?\[\]\\]")


class KeyPattern(NamedTuple):
    """A compiled pattern of keys."""

    text: str
    prefix: str
    """The common prefix of all keys that match the pattern."""
    expression: re.Pattern[str]

    def fits(self, key: str) -> bool:
        """Return True if the key matches the pattern."""
        return self.expression.fullmatch(key) is not None

    @property
    def is_key(self) -> bool:
        """Whether the pattern has no wildcard, so that it matches only one key."""
        return self.prefix == self.text


def check_key(key: str) -> None:
    """Raise an error if `key` is not a valid key.

    Raises:
        UsageError: the key is not a str, is not in normal form (NFC), has an empty segment, `.` or `..`, or contains
            one of `*?[]` or a backslash. Facts: argument, value.
        LimitError: the key is longer than 400 bytes.
    """
    if type(key) is str:
        _check_text(key)
    else:
        check_bound("key", key)


def check_bound(argument: str, key: str) -> None:
    """Check a key like `check_key`. The error calls it `argument`."""
    check_name(argument, key, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    wild = _WILD.search(key)
    if wild is not None:
        raise _error(argument, key, f"contains {wild[0]!r}, which only patterns may contain")
    _check_segments(argument, key)


_check_text = lru_cache(maxsize=1024)(partial(check_bound, "key"))
"""Checks a key. Keys that have passed recently are not checked again, because programs use the same keys repeatedly."""


def check_prefix(prefix: str) -> None:
    """Raise UsageError or LimitError if no key can begin with `prefix`. The empty prefix is valid."""
    if prefix != "":
        check_key(prefix.removesuffix("/") if isinstance(prefix, str) and len(prefix) > 1 else prefix)


def check_directory(argument: str, prefix: str) -> None:
    """Raise UsageError or LimitError unless `prefix` is a valid prefix that ends with a slash."""
    check_prefix(prefix)
    if not prefix.endswith("/"):
        message = f"{argument} {prefix!r} does not end in '/'"
        raise UsageError(message, argument=argument, value=prefix)


def _check_segments(what: str, text: str) -> None:
    if unicodedata.normalize("NFC", text) != text:
        raise _error(what, text, "is not in Unicode's normal form C: convert it with unicodedata.normalize('NFC', key)")
    for segment in text.split("/"):
        if segment in ("", ".", ".."):
            raise _error(what, text, f"has {'an empty segment' if not segment else f'the segment {segment!r}'}")


def _error(what: str, value: str, why: str) -> UsageError:
    return UsageError(f"{what} {value!r} {why}", argument=what, value=value)


def compile_pattern(pattern: str) -> KeyPattern:
    """Compile a pattern. `*` and `?` match within a segment, and `**` matches any number of whole segments.

    `tasks/**` matches everything below `tasks`, and `**` matches every key.

    Raises:
        UsageError: the pattern is not a str, or cannot match any key. Facts: argument, value.
        LimitError: the pattern is longer than the longest key.
    """
    if type(pattern) is not str:
        check_name("pattern", pattern, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    return _compiled(pattern)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> KeyPattern:
    check_name("pattern", pattern, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    for sign in "[]\\":
        if sign in pattern:
            raise _error("pattern", pattern, f"contains {sign!r}: the only wildcards are * and ?")
    _check_segments("pattern", pattern)
    segments = pattern.split("/")
    parts = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if segment == "**":
            parts.append(".+" if is_last else "(?:[^/]+/)*")
            continue
        if "**" in segment:
            raise _error("pattern", pattern, "has ** next to other text: ** must be a whole segment")
        literal = "".join({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign) for sign in segment)
        parts.append(literal if is_last else literal + "/")
    wild = _WILD.search(pattern)
    if segments[0] != RESERVED[:-1]:  # Reserved keys match only patterns that begin with RESERVED.
        parts.insert(0, f"(?!{RESERVED})")
    return KeyPattern(
        pattern, pattern if wild is None else pattern[: wild.start()], re.compile("".join(parts), re.DOTALL)
    )
