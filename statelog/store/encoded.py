"""Values on their way into a state: encoded ahead, or with lists and dicts of a lazy mount in them."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from statelog import kernels
from statelog.errors import CorruptionError, LimitError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX
from statelog.tree.value import container_head, container_kind


class Lazy:
    """A list or dict of a lazy mount."""

    __slots__ = ()


class Encoded:
    """A value checked and encoded ahead: to be put into a dict of `Thread.edit`, or of a mount, as the value is.

    What `edit` is given runs inside the commit, while others wait: of a large value the work is done here, before it.
    It may also stand right inside a list or dict that is put; further inside the work is done again.
    """

    __slots__ = ("item",)

    def __init__(self, value: object, *, path: str = "value") -> None:
        """Encode. What cannot be stored is refused as by `Thread.commit`, under `path`."""
        self.item = _encode_inside(value, path)

    def __repr__(self) -> str:
        return f"<Encoded {len(self.item)} bytes>"


def encode_value(value: Any, path: str) -> bytes:
    """Return the item of a value; what is encoded in it already is taken as it is."""
    if type(value) is Encoded:
        return value.item
    if type(value) is dict and Encoded in map(type, value.values()):
        pairs = [(cbor.encode(key), _encode_inside(member, f"{path}.{key}")) for key, member in value.items()]
        head = container_head(kernels.KIND_DICT, len(pairs))
        return b"".join([head, *(part for pair in sorted(pairs) for part in pair)])
    if type(value) is list and Encoded in map(type, value):
        items = [_encode_inside(member, f"{path}[{index}]") for index, member in enumerate(value)]
        return b"".join([container_head(kernels.KIND_LIST, len(items)), *items])
    return cbor.encode(_plain_at(path, value), path=path)


def _plain_at(path: str, value: Any) -> Any:
    """Return `plain(value)`; of an error, with the path."""
    try:
        return plain(value)
    except LimitError as error:
        message = f"{path}: {error.message}"
        raise LimitError(message, path=path, **error.facts) from None


def _encode_inside(value: Any, path: str) -> bytes:
    """Return the item of a value that may stand inside a list or dict: it nests a level less than others may."""
    if type(value) is Encoded:
        return value.item
    item = cbor.encode(_plain_at(path, value), path=path)
    if container_kind(item) >= 0:
        try:
            kernels.cbor_check(container_head(kernels.KIND_LIST, 1) + item)
        except CorruptionError:
            message = f"{path}: nested deeper than {DEPTH_MAX - 1} levels, and to stand inside another"
            raise LimitError(message, path=path, limit=DEPTH_MAX - 1) from None
    return item


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value with the mounted lists and dicts in it as plain ones.

    Raises:
        LimitError: nested deeper than `DEPTH_MAX`, as a cycle is.

    """
    if type(value) is Encoded:
        return cbor.decode(value.item)
    if not isinstance(value, Lazy) and type(value) not in (list, dict):
        return value
    if depth > DEPTH_MAX:
        message = f"nested deeper than {DEPTH_MAX} levels, or a cycle"
        raise LimitError(message, actual=depth, limit=DEPTH_MAX)
    if isinstance(value, MutableSequence):
        return [plain(item, depth + 1) for item in value]
    return {key: plain(item, depth + 1) for key, item in value.items()}
