"""Regular expressions that run in linear time: a wrapper of google-re2 that fails closed.

Patterns are bytes, and are matched against bytes. A pattern never matches an empty text, and is tested when it is
compiled. If google-re2 is missing or does not work as expected, a store with a guard cannot be opened.
"""

from __future__ import annotations

from typing import Any

from statelog.errors import GuardError

_MEMORY_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum memory of one compiled pattern."""

_PROBE = b"statelog-guard-probe"
"""A text that every compiled pattern also matches, so that a test detects a pattern that re2 cannot run."""


def _engine() -> Any:
    try:
        import re2
    except ImportError as error:
        message = "a guard needs google-re2: pip install 'statelog[guard]'"
        raise GuardError(message) from error
    return re2


def literal(text: bytes) -> bytes:
    """Return a pattern that matches exactly this text."""
    return b"".join([b"\\x%02x" % byte for byte in text])


class Pattern:
    """A compiled pattern.

    Args:
        source: the pattern in re2's syntax. Its classes match bytes. It may not use word boundaries or word characters,
            because in re2 these are ASCII only.
        captures: False if only `is_in` will be called, which makes the pattern faster.

    Raises:
        GuardError: re2 refuses the pattern, or the pattern matches an empty text, or re2 did not match the test text.
    """

    __slots__ = ("_name", "_search", "_secret")

    def __init__(self, source: bytes, *, captures: bool = True) -> None:
        re2 = _engine()
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = _MEMORY_SIZE_BYTES_MAX
        options.log_errors = False
        options.never_capture = not captures
        try:
            compiled = re2.compile(b"(?:" + source + b")|" + _PROBE, options)
            self._search = compiled.search
            groups = {
                name if isinstance(name, bytes) else name.encode(): at for name, at in compiled.groupindex.items()
            }
            self._secret, self._name = groups.get(b"secret", 0), groups.get(b"name", 0)
            is_found = self._search(b"\xff\n" + _PROBE) is not None
            is_empty = self._search(b"") is not None
        except re2.error as error:
            message = f"re2 does not accept a pattern of a guard: {error}"
            raise GuardError(message) from error
        if is_empty or not is_found:
            message = "a pattern of a guard matches an empty text" if is_empty else "re2 did not match the test text"
            raise GuardError(message)

    def is_in(self, data: bytes) -> bool:
        """Return True if the pattern is found in `data`."""
        return self._search(data) is not None

    def find(self, data: bytes, at: int) -> tuple[tuple[int, int], tuple[int, int], bytes] | None:
        """Return (span, span of the secret, group `name`) of the first match from `at` on, or None.

        The secret is the group `secret`, or else the whole match.
        """
        found = self._search(data, at)
        if found is None:
            return None
        whole, secret = found.span(), found.span(self._secret)
        return whole, (whole if secret[0] < 0 else secret), (found.group(self._name) or b"") if self._name else b""
