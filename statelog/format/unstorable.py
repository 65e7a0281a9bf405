"""Finds the part of a value that cannot be stored, and raises the error with its path and the reason."""

from __future__ import annotations

import cmath
import sys
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from statelog.errors import LimitError, ValueTypeError
from statelog.format.everyday import LossyError, full_name
from statelog.limits import INTEGER_BITS_MAX, KEY_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATH_CHARACTERS_MAX = 80
_KEY_HEAD_SIZE_BYTES = 3
"""The size of the CBOR head before a string of the maximum key size."""


def holds_nan(element: object) -> bool:
    """Return True if a set element or a key is a NaN or contains one."""
    pending = [element]
    while pending:  # Do not recurse: a value may be nested too deeply for Python.
        each = pending.pop()
        if isinstance(each, tuple | frozenset):
            pending += each
        elif isinstance(each, float | complex):
            if cmath.isnan(each):
                return True
        elif isinstance(each, Decimal) and each.is_nan():
            return True
    return False


def has_twins(items: list[bytes]) -> bool:
    """Return True if two of the sorted items are equal."""
    return any(a == b for a, b in pairwise(items))


def is_lossy(value: datetime) -> bool:
    """Return True if `fromisoformat` could not restore a datetime.

    `fromisoformat` restores neither a naive fold nor an offset with a fraction of a second.
    """
    offset = value.utcoffset()
    return bool(value.fold) if offset is None else offset.microseconds != 0


def is_uuid(kind: type) -> bool:
    """Return True if `kind` is `uuid.UUID`.

    This does not import `uuid`: a program that has a UUID has imported the module already.
    """
    module = sys.modules.get("uuid")
    return module is not None and kind is getattr(module, "UUID", None)


def shorten_path(path: str) -> str:
    """Return a path for a message. The middle of a long path, such as the path of a cycle, is omitted."""
    return path if len(path) <= _PATH_CHARACTERS_MAX else f"{path[:40]}...{path[-20:]}"


class Refusals(NamedTuple):
    """Finds the invalid part of a value that the encoder has refused, and raises the error for it.

    Args:
        encoders: the functions that encode a value at a depth, by class.
        codec_of: a function that returns the name and the encoder of a class's codec, or None.
        depth_max: the maximum nesting depth.
    """

    encoders: Mapping[type, Callable[[Any, int], bytes]]
    codec_of: Callable[[type], tuple[str, Callable[[Any], Any]] | None]
    depth_max: int

    def locate(self, value: Any, path: str, depth: int = 0) -> None:
        """Raise the error that names the part of `value` that cannot be stored. Return if all parts can be stored."""
        kind = type(value)
        if kind in (list, tuple, dict, set, frozenset):
            self._locate_depth(path, depth)
            self._locate_inside(value, path, depth)
        elif kind is datetime:
            if is_lossy(value):
                _refuse(
                    path,
                    value,
                    f" {value!r} (it has a fold but no time zone, or its UTC offset has a fraction of a second)",
                )
        elif kind is str:
            _locate_surrogate(value, path)
        elif kind is int:
            bits = (value if value >= 0 else ~value).bit_length()  # CBOR stores ~value for a negative int.
            if bits > INTEGER_BITS_MAX:
                message = f"{path}: an int has {bits} bits; at most {INTEGER_BITS_MAX} are allowed"
                raise LimitError(message, path=path, actual=bits, limit=INTEGER_BITS_MAX)
        elif kind not in self.encoders and not is_uuid(kind):
            self._locate_coded(value, path, depth)

    def _locate_coded(self, value: object, path: str, depth: int) -> None:
        self._locate_depth(path, depth)
        codec = self.codec_of(type(value))
        if codec is None:
            _refuse(path, value, f" ({self._advice(type(value))})")
        name, encode = codec
        try:
            payload = encode(value)
        except LossyError as error:
            _refuse(path, value, f" {value!r:.80} ({error})")
        except RecursionError as error:
            message = (
                f"{shorten_path(path)}: the codec {name!r} recursed too deeply: the value is nested too deeply, or"
                " contains itself"
            )
            raise LimitError(message, path=path, limit=self.depth_max) from error
        self.locate(payload, f"{path}.<{name}>", depth + 1)

    def _locate_depth(self, path: str, depth: int) -> None:
        """Raise LimitError if a value at this depth is too deep to have members."""
        if depth >= self.depth_max:
            message = f"{shorten_path(path)}: nested deeper than {self.depth_max} levels, or part of a cycle"
            raise LimitError(message, path=path, actual=depth + 1, limit=self.depth_max)

    def _advice(self, kind: type) -> str:
        if hasattr(kind, "to_python"):
            return "store what its to_python() returns"
        base = next((base.__name__ for base in kind.__mro__[1:] if base in self.encoders or is_uuid(base)), None)
        if base is not None:
            return f"convert it to {base}, or register_codec it"
        if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__pydantic_fields__"):
            return "give the thread a schema with a channel of this type, or register_codec it"
        return "register_codec it"

    def _locate_inside(self, value: Any, path: str, depth: int) -> None:
        if type(value) is dict:
            self._locate_in_dict(value, path, depth)
        elif type(value) in (set, frozenset):
            self._locate_comparable(value, path, depth + 1, "a set element")
        else:
            for index, member in enumerate(value):
                self.locate(member, f"{path}[{index}]", depth + 1)

    def _locate_in_dict(self, value: dict[Any, Any], path: str, depth: int) -> None:
        if all(type(key) is str for key in value):
            for key, member in value.items():
                _locate_surrogate(key, f"{path} key")
                _locate_size(len(key.encode()) + _KEY_HEAD_SIZE_BYTES, path, "a key")
                self.locate(member, f"{path}.{key}", depth + 1)
            return
        self._locate_depth(path, depth + 1)  # The pairs are a list within the codec's list.
        self._locate_comparable(value, path, depth + 2, "a key")
        for key, member in value.items():
            self.locate(member, f"{path}[{_shown(key)}]", depth + 2)

    def _locate_comparable(self, value: Any, path: str, depth: int, what: str) -> None:
        """Raise an error for an element of a set, or a key of a dict, that is too large or has a duplicate."""
        for element in value:
            if holds_nan(element):
                _refuse(path, element, f" NaN as {what} (NaN is not equal to itself)")
            self.locate(element, f"{path}{{{_shown(element)}}}", depth)
            _locate_size(len(self.encoders[type(element)](element, depth)), path, what)
        if has_twins(sorted(self.encoders[type(element)](element, depth) for element in value)):
            _refuse(path, value, f": {what} is stored as the same bytes as another")


def _shown(element: object) -> str:
    try:
        return repr(element)[:40]
    # The value is nested deeply, or has an int that is too long for decimal notation.
    except (RecursionError, ValueError):
        return type(element).__name__


def _refuse(path: str, value: object, why: str) -> NoReturn:
    name = full_name(type(value))
    message = f"{shorten_path(path)}: cannot store {name}{why}"
    raise ValueTypeError(message, path=path, type=name) from None


def _locate_size(size_bytes: int, path: str, what: str) -> None:
    if size_bytes > KEY_SIZE_BYTES_MAX:
        message = f"{path}: {what} has {size_bytes} bytes as CBOR; at most {KEY_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, path=path, actual=size_bytes, limit=KEY_SIZE_BYTES_MAX)


def _locate_surrogate(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        _refuse(path, value, f" with a lone surrogate at character {error.start}")
