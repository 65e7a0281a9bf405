"""Converts queries, written by people and models, to FTS5 expressions.

Each word becomes a quoted token, so no query causes a syntax error and no word is an operator. Two marks have a
meaning: text in double quotes is a phrase, and `*` after a word or phrase matches any ending of its last word.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from statelog.errors import UsageError

WORDS_MAX = 64
"""The maximum number of words and phrases of a query. Later ones are ignored."""

TOKENIZERS = ("unicode61", "trigram")
_TRIGRAM_MIN = 3
_PART = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')


class Query(NamedTuple):
    """A parsed query."""

    expression: str
    """The FTS5 expression; empty if the query has no token, so that it finds nothing."""
    words: tuple[str, ...]
    """The words and phrases without marks. A snippet shows the text around the first one that occurs."""
    parts: tuple[str, ...]
    """The expression of each word or phrase."""


def parse_query(text: str, tokenizer: str, *, match: str = "all") -> Query:
    """Convert a query to an expression.

    Args:
        text: the query.
        tokenizer: the tokenizer of the index.
        match: "all" if a text must have all words and phrases, "any" if one of them is enough.

    Raises:
        UsageError: `text` is not a str, or `match` is not "all" or "any". Facts: argument, value.
    """
    if not isinstance(text, str):
        message = f"a query must be a str, not {type(text).__name__}"
        raise UsageError(message, argument="query", value=text)
    if match not in ("all", "any"):
        message = f"match must be 'all' or 'any', not {match!r}"
        raise UsageError(message, argument="match", value=match)
    joint = " OR " if match == "any" else " AND "
    if tokenizer == "unicode61" and text.replace(" ", "").isalnum():  # Most queries have only words without marks.
        plain = text.split()[:WORDS_MAX]
        quoted = [f'"{word}"' for word in plain]
        return Query(joint.join(quoted), tuple(plain), tuple(quoted))
    cleaned = text.replace("\0", " ").encode("utf-8", "replace").decode()
    words: list[str] = []
    parts: list[str] = []
    for found in _PART.finditer(cleaned):
        phrase, star, word = found.groups()
        if word is not None:
            bare = word.rstrip("*")
            phrase, star = bare, word[len(bare) :]
        if not _has_token(phrase, tokenizer):
            continue
        words.append(phrase)
        parts.append(f'"{phrase}"{" *" if star else ""}')
        if len(parts) == WORDS_MAX:
            break
    return Query(joint.join(parts), tuple(words), tuple(parts))


def _has_token(phrase: str, tokenizer: str) -> bool:
    """Return True if the tokenizer finds a token in a phrase. FTS5 treats a phrase without a token specially."""
    if tokenizer == "trigram":
        return len(phrase) >= _TRIGRAM_MIN
    if phrase.isalnum():
        return True
    return any(unicodedata.category(each)[0] in "LN" or unicodedata.category(each) == "Co" for each in phrase)
