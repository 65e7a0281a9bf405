"""A line of a text around the first word of a query, made of the store's own text."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SNIPPET_CHARACTERS_MAX = 160
_BEFORE = 40
_ELLIPSIS = "…"
_SPACE = re.compile(r"\s+")


def make_snippet(text: str, words: Sequence[str]) -> str:
    """Return the text on one line, cut to what is around the first of some words."""
    line = _SPACE.sub(" ", text).strip()
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
    """Return the first position of a word at the beginning of a word, or anywhere; 0 if there is none."""
    folded = _folded(line)
    wanted = [_SPACE.sub(" ", _folded(word)) for word in words]
    for form in (r"(?<!\w)(?:{})", "(?:{})"):
        found = re.search(form.format("|".join(map(re.escape, wanted))), folded) if wanted else None
        if found is not None:
            return found.start()
    return 0


def _folded(text: str) -> str:
    """Return a text of the same length, in lower case and without diacritics, as the tokenizer compares words."""
    if text.isascii():
        return text.lower()
    return "".join((unicodedata.normalize("NFD", each)[0].lower() or each)[0] for each in text)
