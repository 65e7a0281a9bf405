"""The `repr` of threads, checkpoints, differences and values, as one line of bounded length."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog.display.graphs import shown_names
from statelog.display.packed import unpacked
from statelog.errors import StatelogError
from statelog.redaction import hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from statelog.display.shapes import CheckpointShape, DiffShape, ThreadShape

_NAMES_MAX = 8
_NAME_CHARACTERS_MAX = 32
_ITEMS_MAX = 20
_LINE_CHARACTERS_MAX = 1000
_ITEM_CHARACTERS_MIN = 16
_ELLIPSIS = "…"
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def shorten(text: str, characters_max: int) -> str:
    """Return `text`, cut to at most `characters_max` characters. A cut text ends with an ellipsis."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + _ELLIPSIS


def printable(text: str) -> str:
    """Return text with invisible characters escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def thread_line(thread: ThreadShape) -> str:
    """Return `<Thread 'id' branch 'main' version 3: messages, notes>`."""
    start = f"<Thread {_name(thread.id)} branch {_name(thread.branch)}"
    try:
        head = thread.head
        return f"{start}, empty>" if head is None else f"{start} version {head.version}{_channels(head.state)}>"
    except StatelogError as error:  # The store is closed or damaged. Show the name only.
        return f"{start}, {type(error).__name__}>"


def checkpoint_line(checkpoint: CheckpointShape) -> str:
    """Return `<Checkpoint 'id' branch 'main' version 3 id 7~0123456789abcdef: messages, notes>`."""
    start = f"<Checkpoint {_name(checkpoint.thread_id)}"
    end = f"version {checkpoint.version} id {shorten(printable(hidden(checkpoint.id)), _NAME_CHARACTERS_MAX)}"
    try:
        return f"{start} branch {_name(checkpoint.branch)} {end}{_channels(checkpoint.state)}>"
    except StatelogError as error:  # The line shows the error.
        return f"{start} {end}, {type(error).__name__}>"


def diff_line(diff: DiffShape) -> str:
    """Return `<Diff of 3 changes: messages +2, steps ~1>`."""
    try:
        changes = diff.changes
    except StatelogError as error:  # The line shows the error.
        return f"<Diff, {type(error).__name__}>"
    kinds = Counter((str(change.path[0]), change.kind) for change in changes)
    channels = dict.fromkeys(channel for channel, _kind in kinds)
    told = (
        " ".join(
            [
                shorten(printable(channel), _NAME_CHARACTERS_MAX),
                *(f"{sign}{kinds[channel, kind]}" for kind, sign in _SIGNS.items() if kinds[channel, kind]),
            ]
        )
        for channel in channels
    )
    names = _enumerate(told)
    return f"<Diff of {len(changes)} change{'s' if len(changes) != 1 else ''}{names}>"


def lazily(value: Any) -> Any:
    """Return a view whose large members are views. Return any other value unchanged."""
    return getattr(value, "lazy", value)


def list_line(items: Sequence[Any]) -> str:
    """Return the repr of a short list. For a long list, return its first items and the number of other items."""
    try:
        whole = unpacked(items)
        if whole is not items:
            return written(whole, _LINE_CHARACTERS_MAX)
        shown = [written(item, _LINE_CHARACTERS_MAX) for item in islice(lazily(items), _ITEMS_MAX)]
        return f"[{_joined(shown, len(items))}]"
    except StatelogError as error:  # The line shows the error.
        return f"<list, {type(error).__name__}>"


def map_line(members: Mapping[str, Any]) -> str:
    """Return the repr of a short dict. For a large dict, return its first members and the number of other members."""
    try:
        members = lazily(members)
        names = islice(shown_names(members), _ITEMS_MAX)
        shown = [f"{key!r}: {written(members[key], _LINE_CHARACTERS_MAX)}" for key in names]
        return f"{{{_joined(shown, len(members))}}}"
    except StatelogError as error:  # The line shows the error.
        return f"<dict, {type(error).__name__}>"


def written(value: object, characters_max: int) -> str:
    """Return the repr of a value, cut if it is too long. Only the beginning of a long string is read."""
    value = unpacked(value)
    try:
        return repr(value[: characters_max + 1] if isinstance(value, str | bytes) else value)
    except ValueError:  # Python refuses to write very long ints in decimal.
        return f"<{type(value).__name__}>"


def _joined(shown: list[str], count: int) -> str:
    if not shown:
        return f"{count} more" if count else ""
    text = ", ".join(shown)
    if len(text) > _LINE_CHARACTERS_MAX:
        room = max(_LINE_CHARACTERS_MAX // len(shown), _ITEM_CHARACTERS_MIN)
        text = ", ".join(shorten(each, room) for each in shown)
    return f"{text}, ... {count - len(shown)} more" if count > len(shown) else text


def _name(text: str) -> str:
    return repr(shorten(hidden(text), 2 * _NAME_CHARACTERS_MAX))


def _channels(state: Mapping[str, Any]) -> str:
    return _enumerate(shorten(printable(name), _NAME_CHARACTERS_MAX) for name in shown_names(state))


def _enumerate(names: Iterable[str]) -> str:
    told = list(islice(names, _NAMES_MAX + 1))
    return f": {', '.join(told[:_NAMES_MAX])}{', ...' if len(told) > _NAMES_MAX else ''}" if told else ""
