"""Keys of entries, and patterns of keys."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from statelog.errors import UsageError
from statelog.limits import ENTRY_KEY_SIZE_BYTES_MAX
from statelog.log.names import check_name

RESERVED = "durable/"
"""Keys that begin so are the library's own: all may read them, and who may write them is a matter of `Rights`."""

_PLAIN = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[-+.,:;=@\w]+/)*(?!\.{1,2}\Z)[-+.,:;=@\w]+", re.ASCII)
"""Matches most keys, and only keys. What it does not match is checked one rule after the other."""

_WILD = re.compile(r"[*?\[\]\\]")


class Pattern(NamedTuple):
    """A pattern of keys, ready to match."""

    text: str
    prefix: str
    """What all keys that it fits begin with."""
    expression: re.Pattern[str]

    def fits(self, key: str) -> bool:
        """Whether it fits a key."""
        return self.expression.fullmatch(key) is not None

    @property
    def is_key(self) -> bool:
        """Whether the pattern has no wildcard, so that it matches only one key."""
        return self.prefix == self.text


def check_key(key: str) -> None:
    """Refuse what is no key.

    Raises:
        UsageError: it is no text, is not in normal form (NFC), has an empty segment, `.` or `..`, or one of `*?[]`
            and the backslash in it. Facts: argument, value.
        LimitError: it is longer than 400 bytes.

    """
    if type(key) is str and len(key) <= ENTRY_KEY_SIZE_BYTES_MAX and _PLAIN.fullmatch(key):
        return
    check_name("key", key, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    wild = _WILD.search(key)
    if wild is not None:
        raise _error("key", key, f"has {wild[0]!r} in it, which is for patterns")
    _check_segments("key", key)


def check_prefix(prefix: str) -> None:
    """Refuse what keys cannot begin with. An empty one is that of all keys. Raises UsageError, LimitError."""
    if prefix != "":
        check_key(prefix.removesuffix("/") if isinstance(prefix, str) and len(prefix) > 1 else prefix)


def check_directory(argument: str, prefix: str) -> None:
    """Refuse what entries cannot be moved below: it ends in a slash. Raises UsageError, LimitError."""
    check_prefix(prefix)
    if not prefix.endswith("/"):
        message = f"{argument} {prefix!r} does not end in '/'"
        raise UsageError(message, argument=argument, value=prefix)


def _check_segments(what: str, text: str) -> None:
    if unicodedata.normalize("NFC", text) != text:
        raise _error(what, text, "is not in Unicode's normal form C: unicodedata.normalize('NFC', key) is")
    for segment in text.split("/"):
        if segment in ("", ".", ".."):
            raise _error(what, text, f"has {'an empty segment' if not segment else f'the segment {segment!r}'}")


def _error(what: str, value: str, why: str) -> UsageError:
    return UsageError(f"{what} {value!r} {why}", argument=what, value=value)


def compile_pattern(pattern: str) -> Pattern:
    """Return a pattern: `*` and `?` within a segment, `**` for any number of whole segments.

    `tasks/**` is everything below `tasks`; `**` is everything.

    Raises:
        UsageError: it is no text, or cannot fit a key. Facts: argument, value.
        LimitError: it is longer than a key may be.

    """
    if type(pattern) is not str:
        check_name("pattern", pattern, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    return _compiled(pattern)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Pattern:
    check_name("pattern", pattern, size_bytes_max=ENTRY_KEY_SIZE_BYTES_MAX)
    for sign in "[]\\":
        if sign in pattern:
            raise _error("pattern", pattern, f"has {sign!r} in it: it may have * and ?")
    _check_segments("pattern", pattern)
    segments = pattern.split("/")
    parts = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if segment == "**":
            parts.append(".+" if is_last else "(?:[^/]+/)*")
            continue
        if "**" in segment:
            raise _error("pattern", pattern, "has ** beside other text: it stands for whole segments")
        literal = "".join({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign) for sign in segment)
        parts.append(literal if is_last else literal + "/")
    wild = _WILD.search(pattern)
    if segments[0] != RESERVED[:-1]:  # what is the library's own is found by who asks for it
        parts.insert(0, f"(?!{RESERVED})")
    return Pattern(pattern, pattern if wild is None else pattern[: wild.start()], re.compile("".join(parts), re.DOTALL))
