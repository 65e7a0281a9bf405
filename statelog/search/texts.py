"""Finds the texts of a value, with their paths and roles.

A string is a text. A message is one text, which joins its words, calls and results. Any other item of a list is one
text, which joins all strings in the item. The members of a dict are separate texts, unless a key is not a str: then the
dict is one text. So a path leads through dicts, and ends at a list position, a string, or such a dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from statelog.display.packed import Coded, Constructed, unpacked
from statelog.format.everyday import PAIRS, QUARANTINED
from statelog.redaction import HIDDEN_VALUE, names_credential
from statelog.search.messages import message_of, opened, role_named

Path = tuple[str | int, ...]

TEXT_CHARACTERS_MAX = 100_000
"""The maximum number of characters of a text that are indexed."""

_DEPTH_MAX = 64
_ROLES = frozenset(("user", "assistant", "system", "tool", "reasoning"))
NAMES_OF_MESSAGES = ("role", "content", "parts", "message", "type")
"""Keys of messages. A dict without any of these keys is not a message."""


class _Members(tuple[Any, ...]):
    """The values of a dict that has a key which is not a str."""

    __slots__ = ()


class Text(NamedTuple):
    """A text, its path in the value, and its role, which is empty if the text is not part of a message."""

    path: Path
    role: str
    text: str


def texts_of(value: Any, path: Path = (), depth: int = 0) -> Iterator[Text]:
    """Yield the texts of a stored value in the form that `cbor.decode` returns."""
    value = _plain(value)
    kind = type(value)
    if kind is list or kind is tuple:
        for position, item in enumerate(value):
            role, text = item_text(item)
            if text:
                yield Text((*path, position), role, text)
        return
    message = None if kind is _Members else _message_in(value)
    if message is None and kind is dict and depth < _DEPTH_MAX:
        for key, member in value.items():
            yield from texts_of(member, (*path, key), depth + 1)
        return
    role, text = message or ("", _joined(value))
    if text:
        yield Text(path, role, text)


def item_text(item: Any) -> tuple[str, str]:
    """Return the role and the single text of a list item. The text is empty if the item has none."""
    kind = type(item)
    if kind is dict and len(item) == 2:  # Most messages take this fast path.
        role, content = item.get("role"), item.get("content")
        if type(role) is str and type(content) is str:
            return role_named(role), content[:TEXT_CHARACTERS_MAX]
    return _message_in(item) or ("", _joined(item))


def _message_in(value: Any) -> tuple[str, str] | None:
    """Return the role and the text of a message.

    Return None for any other value, and for an object with an unusual role.
    """
    is_dict = type(value) is dict
    if type(value) is str or (is_dict and not any(name in value for name in NAMES_OF_MESSAGES)):
        return None
    message = message_of(value)
    if message is None or not (message["role"] in _ROLES or (is_dict and "role" in value)):
        return None
    parts = [message["text"]]
    parts += [f"{call['name']} {call['arguments']}" for call in message["calls"]]
    parts += [result["text"] for result in message["results"]]
    return message["role"], "\n".join(part for part in parts if part)[:TEXT_CHARACTERS_MAX]


def _plain(value: Any) -> Any:
    """Return the plain values of a codec's stored form, if that form is known.

    Return None if the guard hides the value.
    """
    if isinstance(value, Coded):
        codec, payload = value.stored
        if codec == QUARANTINED or names_credential(codec):
            return None
        if codec == PAIRS and isinstance(payload, list | tuple):
            return _Members(payload[1::2])
        inner = opened(value)
        return payload if isinstance(inner, Coded) else inner
    is_cut = type(value) is list and len(value) > 0 and isinstance(value[0], Coded)
    return unpacked(value) if is_cut else value


def _joined(value: Any) -> str:
    return "\n".join(_strings(value, 0))[:TEXT_CHARACTERS_MAX]


def _strings(value: Any, depth: int) -> Iterator[str]:
    """Yield all strings of a value in order, without the keys of dicts, which are names."""
    value = _plain(value)
    if isinstance(value, str):
        if value and value != HIDDEN_VALUE:
            yield value
        return
    if isinstance(value, Constructed):
        value = value.fields
    if isinstance(value, Mapping):
        value = value.values()
    elif isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    elif not isinstance(value, list | tuple):
        return
    if depth < _DEPTH_MAX:
        for member in value:
            yield from _strings(member, depth + 1)
