"""Encodes values for the store, including values that were encoded in advance and lists and dicts of a lazy mount."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from statelog import kernels
from statelog.format import cbor
from statelog.limits import DEPTH_MAX
from statelog.tree.value import container_head

TEXT_ONLY = frozenset((str,))
_ENCODED_DEPTH = 1
"""The nesting levels that an encoded value must leave free, because it may become an item of a list or dict."""


class Lazy:
    """The base class of a list or dict of a lazy mount."""

    __slots__ = ()


class Encoded:
    """A value that was checked and encoded in advance. Use it like the value itself in `Thread.edit` or a mount.

    The function given to `edit` runs inside the commit, while others wait. `Encoded` does the work for a large value
    before the commit. It may also be an item of a new list or dict. At deeper levels it is encoded again.
    """

    __slots__ = ("item",)

    def __init__(self, value: object, *, path: str = "value") -> None:
        """Encode a value. Raises the errors of `Thread.commit`, with `path` as the location."""
        self.item = cbor.encode(plain(value), path=path, around=_ENCODED_DEPTH)

    def __repr__(self) -> str:
        return f"<Encoded {len(self.item)} bytes>"


def encode_value(value: Any, path: str, depth: int = 0) -> bytes:
    """Return the encoded form of a value at a nesting depth. Parts that are already encoded are used unchanged."""
    if type(value) is Encoded and depth <= _ENCODED_DEPTH:
        return value.item
    if depth < _ENCODED_DEPTH:
        below = depth + 1
        if type(value) is dict and Encoded in map(type, value.values()) and TEXT_ONLY.issuperset(map(type, value)):
            pairs = [(cbor.encode(key), encode_value(member, f"{path}.{key}", below)) for key, member in value.items()]
            head = container_head(kernels.KIND_DICT, len(pairs))
            return b"".join([head, *(part for pair in sorted(pairs) for part in pair)])
        if type(value) is list and Encoded in map(type, value):
            items = [encode_value(member, f"{path}[{index}]", below) for index, member in enumerate(value)]
            return b"".join([container_head(kernels.KIND_LIST, len(items)), *items])
    return cbor.encode(plain(value), path=path, depth=depth)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value in which plain lists and dicts replace mounted ones, down to the maximum nesting depth."""
    if type(value) is Encoded:
        return cbor.decode(value.item)
    if depth > DEPTH_MAX or (not isinstance(value, Lazy) and type(value) not in (list, dict)):
        return value  # The encoder raises an error for a deeper value, such as a cycle.
    if isinstance(value, MutableSequence):
        return [plain(item, depth + 1) for item in value]
    return {key: plain(item, depth + 1) for key, item in value.items()}
