"""Compares two texts line by line for display."""

from __future__ import annotations

import difflib
from itertools import zip_longest
from typing import TYPE_CHECKING

from statelog.cli.text import ELLIPSIS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LINES_COMPARED_MAX = 2000
"""Texts with more differing lines are not aligned, because alignment takes quadratic time."""

_CONTEXT_CHARACTERS = 20


def compare_texts(old: str, new: str, width: int | None) -> Iterator[tuple[str, str]]:
    """Yield the difference as lines: (`-`, old line), (`+`, new line), and (` `, line) for unchanged neighbours.

    Args:
        old: the text before.
        new: the text after.
        width: cut lines to this many characters around their difference. None means no limit.
    """
    before, after = old.splitlines(), new.splitlines()
    if before == after:  # The texts differ only in their line breaks.
        yield from _pair(repr(old), repr(new), width)
        return
    start = _common(before, after)
    end = min(_common(before[::-1], after[::-1]), min(len(before), len(after)) - start)
    if start:
        yield " ", _cut(before[start - 1], 0, width)
    yield from _changed(before[start : len(before) - end], after[start : len(after) - end], width)
    if end:
        yield " ", _cut(before[len(before) - end], 0, width)


def _changed(before: Sequence[str], after: Sequence[str], width: int | None) -> Iterator[tuple[str, str]]:
    """Yield the difference of two texts without a common first or last line."""
    if max(len(before), len(after)) > _LINES_COMPARED_MAX:
        yield from _replaced(before, after, width)
        return
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            yield " ", _cut(before[a], 0, width)
            if b - a > 2:
                yield " ", ELLIPSIS
            if b - a > 1:
                yield " ", _cut(before[b - 1], 0, width)
        else:
            yield from _replaced(before[a:b], after[c:d], width)


def _replaced(before: Sequence[str], after: Sequence[str], width: int | None) -> Iterator[tuple[str, str]]:
    if len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from _pair(old, new, width)
        return
    starts = [_common(old, new) for old, new in zip(before, after, strict=False)]
    yield from (("-", _cut(line, start or 0, width)) for line, start in zip_longest(before, starts[: len(before)]))
    yield from (("+", _cut(line, start or 0, width)) for line, start in zip_longest(after, starts[: len(after)]))


def _pair(old: str, new: str, width: int | None) -> Iterator[tuple[str, str]]:
    start = _common(old, new)
    yield "-", _cut(old, start, width)
    yield "+", _cut(new, start, width)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix of two sequences."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def _cut(line: str, at: int, width: int | None) -> str:
    """Return the part of a line around a position, at most `width` characters. Ellipses replace the rest."""
    if width is None or len(line) <= width:
        return line
    start = max(min(at - _CONTEXT_CHARACTERS, len(line) - width), 0)
    piece = line[start : start + width]
    if start:
        piece = ELLIPSIS + piece[1:]
    return piece if start + width >= len(line) else piece[:-1] + ELLIPSIS
