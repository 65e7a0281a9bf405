"""Makes snippets: one line of a stored text around the first word of a query."""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SNIPPET_CHARACTERS_MAX = 160
_BEFORE = 40
_ELLIPSIS = "…"
_SPACE = re.compile(r"\s+")


def snippet_maker(words: Sequence[str]) -> Callable[[str], str]:
    """Return a function that makes the snippet of a text: one line around the first of these words in the text."""
    folded = [_folded(word) for word in words]
    return partial(_make_snippet, words=[word if word.isalnum() else _SPACE.sub(" ", word) for word in folded])


def _make_snippet(text: str, words: Sequence[str]) -> str:
    line = " ".join(text.split())
    if len(line) <= SNIPPET_CHARACTERS_MAX:
        return line
    start = max(_first_place(line, words) - _BEFORE, 0)
    if start:
        start = line.rfind(" ", max(start - _BEFORE, 0), start) + 1 or start
    room = SNIPPET_CHARACTERS_MAX - bool(start)
    is_cut = start + room < len(line)
    shown = line[start : start + room - is_cut]
    return f"{_ELLIPSIS if start else ''}{shown}{_ELLIPSIS if is_cut else ''}"


def _first_place(line: str, words: Sequence[str]) -> int:
    """Return the first position of one of the folded words, preferably at the beginning of a word, or 0."""
    folded = _folded(line)
    places: list[tuple[bool, int]] = []
    for word in words:
        at = folded.find(word)
        while at >= 0:
            is_inside = at > 0 and folded[at - 1].isalnum()
            places.append((is_inside, at))
            if not is_inside:
                break
            at = folded.find(word, at + 1)
    return min(places, default=(False, 0))[1]


def _folded(text: str) -> str:
    """Return a text of the same length, in lower case and without diacritics, as the tokenizer compares words."""
    if text.isascii():
        return text.lower()
    return "".join((unicodedata.normalize("NFD", each)[0].lower() or each)[0] for each in text)
