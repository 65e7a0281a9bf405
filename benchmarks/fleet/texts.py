"""The messages for both sides of a row: random text, which hardly compresses, or prose."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from benchmarks.corpus import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

RANDOM, PROSE = "random text", "prose"


def messages(kind: str, size_bytes: int) -> Iterator[dict[str, Any]]:
    """Return endless messages of random text, or of statelog's own pages, which are repeated."""
    if kind == RANDOM:
        return Corpus().endless(size_bytes)
    return _prose(size_bytes)


def _prose(size_bytes: int) -> Iterator[dict[str, Any]]:
    pages = sorted(Path(statelog.__file__).parent.rglob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages) or "There are no pages here. "
    text *= size_bytes // len(text) + 2
    for number in itertools.count():
        start = number * size_bytes % (len(text) - size_bytes)
        yield {"id": f"m{number}", "role": "user", "content": text[start : start + size_bytes]}
