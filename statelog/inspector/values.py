"""Values as display JSON: typed nodes of bounded size, and paths to parts that an answer leaves out.

A node is an object with a type `t`:

    {"t": "null"}  {"t": "bool", "v": true}  {"t": "int" | "float", "v": text}
    {"t": "text", "v": text, "size": characters}       shorter than `size` if cut
    {"t": "bytes", "v": hexadecimal, "size": bytes}    likewise
    {"t": "list" | "tuple" | "set" | "frozenset", "size": items, "items": [node, ...]}
    {"t": "dict", "size": members, "items": [[key, node], ...]}    "has_other_keys": True if a key is not a str
    {"t": "object", "name": constructor, "size": fields, "items": [[name, node], ...]}
    {"t": "other", "name": type, "v": text}            a date, a UUID, an object of a codec
    {"t": "quarantined", "check": name, "reason": text}

`items` is missing if the answer has no room for it, and shorter than `size` if it was cut. A path consists of the
positions of items, from the outermost value inwards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit.ordered import Json
from statelog.display.lines import lazily, shorten, written
from statelog.display.packed import Constructed, unpacked
from statelog.errors import NotFoundError, UsageError
from statelog.format.quarantined import Quarantined
from statelog.format.unregistered import Unregistered

if TYPE_CHECKING:
    from starlette.requests import Request

Node = dict[str, Any]

_NAMED = ("dict", "object")
_OTHER_CHARACTERS_MAX = 500
_PATH_STEPS_MAX = 100


@dataclass(slots=True)
class AnswerLimits:
    """The maximum sizes of one answer. A part that is cut still reports its whole `size`.

    Attributes:
        nodes: the number of nodes of the answer.
        items: the number of items of a list or dict.
        characters: the number of characters of a text, or bytes of a bytes value.
        depth: the number of levels of lists and dicts.
    """

    nodes: int = 1000
    items: int = 50
    characters: int = 600
    depth: int = 4


def display(value: Any, room: AnswerLimits | None = None) -> Node:
    """Return a value as a node, cut to the limits `room`, by default `AnswerLimits()`."""
    return _node(value, AnswerLimits() if room is None else room, 0)


def _node(value: Any, room: AnswerLimits, depth: int) -> Node:
    room.nodes -= 1
    value = _opened(value)
    if value is None:
        return {"t": "null"}
    if isinstance(value, bool):
        return {"t": "bool", "v": value}
    if isinstance(value, int | float) and type(value) in (int, float):
        return {"t": type(value).__name__, "v": written(value, room.characters)}
    if isinstance(value, str):
        return {"t": "text", "v": value[: room.characters], "size": len(value)}
    if isinstance(value, bytes):
        return {"t": "bytes", "v": value[: room.characters].hex(), "size": len(value)}
    if isinstance(value, Quarantined):
        return {"t": "quarantined", "check": value.check, "reason": value.reason}
    kind = _kind(value)
    if kind is None:
        text = shorten(written(value, _OTHER_CHARACTERS_MAX), _OTHER_CHARACTERS_MAX)
        return {"t": "other", "name": type(value).__name__, "v": text}
    node = _outer(value, kind, 0, room)
    if node["size"] == 0 or (depth < room.depth and room.nodes > 0):
        node["items"] = _items(value, kind, 0, room, depth)
    return node


def _outer(value: Any, kind: str, start: int, room: AnswerLimits) -> Node:
    """Return the node of a value with members, but leave out the members."""
    node: Node = {"t": kind, "size": _size(value)}
    if isinstance(value, Constructed):
        node["name"] = value.short_name
    if _has_other_keys(value, start, room.items):
        node["has_other_keys"] = True
    return node


def _items(value: Any, kind: str, start: int, room: AnswerLimits, depth: int) -> list[Any]:
    """Return the items from `start` on as nodes, or as [name, node] if items of this kind have names."""
    items: list[Any] = []
    for name, item in _take(value, start, room.items):
        if room.nodes <= 0:
            break
        node = _node(item, room, depth + 1)
        items.append([name, node] if kind in _NAMED else node)
    return items


def _opened(value: Any) -> Any:
    """Return a value in the form to show: unpacked, decoded, and lazy if it is large."""
    value = unpacked(value)
    if isinstance(value, Json):
        return json.loads(value.text)
    if isinstance(value, Unregistered):
        return Constructed(value.codec, {"payload": value.shown})
    return lazily(value)


def _kind(value: Any) -> str | None:
    """Return the type of an opened value that has members, or None."""
    if isinstance(value, Constructed):
        return "object"
    if isinstance(value, Mapping):
        return "dict"
    if isinstance(value, AbstractSet):
        return type(value).__name__
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return "tuple" if isinstance(value, tuple) else "list"
    return None


def _size(value: Any) -> int:
    return len(value.given) if isinstance(value, Constructed) else len(value)


def _take(value: Any, start: int, count: int) -> list[tuple[str, Any]]:
    """Return up to `count` members from `start` on, as (name, member). The name is "" in a sequence or set."""
    if isinstance(value, Constructed):
        return value.given[start : start + count]
    if isinstance(value, Mapping):
        # If some keys are not strings, write all keys as literals, so that "1" and 1 look different.
        name = _written_key if _has_other_keys(value, start, count) else str
        return [(name(key), value[key]) for key in islice(value, start, start + count)]
    items = sorted(value, key=repr) if isinstance(value, AbstractSet) else value  # Sort, so that all answers agree.
    return [("", item) for item in items[start : start + count]]


def _has_other_keys(value: Any, start: int, count: int) -> bool:
    """Return True if one of the `count` members from `start` on has a key that is not a str."""
    return isinstance(value, Mapping) and not all(isinstance(key, str) for key in islice(value, start, start + count))


def _written_key(key: Any) -> str:
    return written(key, _OTHER_CHARACTERS_MAX)


# --- paths ---------------------------------------------------------------------------


def descend(value: Any, path: Sequence[int]) -> Any:
    """Return the part of a value to which a path of positions leads.

    Raises:
        NotFoundError: the value does not have this part. Facts: path.
    """
    for step in path:
        opened = _opened(value)
        if _kind(opened) is None or not 0 <= step < _size(opened):
            message = f"the value has no part at position {step} of the path {'.'.join(map(str, path))}"
            raise NotFoundError(message, path=".".join(map(str, path)))
        ((_name_of_it, value),) = _take(opened, step, 1)
    return value


def keys_to(value: Any, path: Sequence[int]) -> list[Any]:
    """Convert a path of positions to the keys and list positions with which code can change the part.

    Raises:
        NotFoundError: the value does not have this part. UsageError: the path leads into a value that is stored whole.
    """
    keys: list[Any] = []
    for step in path:
        if type(step) is not int:
            message = f"a path must be a list of positions, not {step!r}"
            raise UsageError(message, argument="path")
        inner = descend(value, [step])
        is_mapping = isinstance(value, Mapping)
        if not is_mapping and (isinstance(value, tuple) or not isinstance(value, Sequence)):
            message = f"a part of {type(value).__name__} cannot be edited alone: edit the value that has it"
            raise UsageError(message, argument="path")
        keys.append(next(islice(value, step, None)) if is_mapping else step)
        value = inner
    return keys


def rest(value: Any, path: Sequence[int], start: int, room: AnswerLimits) -> Node:
    """Return a part of a value, with its items or text from `start` on. This is the answer to "show all".

    Raises:
        NotFoundError: the value does not have this part.
    """
    part = _opened(descend(value, path))
    if isinstance(part, str | bytes):
        return {**display(part[start:], room), "size": len(part), "start": start}
    kind = _kind(part)
    if kind is None:
        return display(part, room)
    return {**_outer(part, kind, start, room), "start": start, "items": _items(part, kind, start, room, 0)}


def path_of(request: Request) -> list[int]:
    """Return the query parameter `path`: positions separated by dots.

    Raises:
        UsageError: the parameter is not a path. Facts: argument, value.
    """
    text = request.query_params.get("path", "")
    parts = text.split(".") if text else []
    if len(parts) > _PATH_STEPS_MAX or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        message = f"a path must be positions with dots between them, such as 0.12.3, not {text[:40]!r}"
        raise UsageError(message, argument="path", value=text[:40])
    return [int(part) for part in parts]
