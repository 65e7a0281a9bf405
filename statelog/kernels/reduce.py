"""Kernels that merge two encoded values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from statelog._kernels import lib
from statelog.errors import ReducerTypeError
from statelog.kernels.calls import FALLBACK, OK, TYPE, fail, give, reuse, take, unpack_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_add: Callable[..., int] = lib.sl_add
_compare: Callable[..., int] = lib.sl_compare
_merge_maps: Callable[..., int] = lib.sl_merge_maps
_union: Callable[..., int] = lib.sl_union


def _reduce(kernel: Callable[..., int], name: str, a: bytes, b: bytes, *options: int) -> bytes | None:
    size_bytes_max = len(a) + len(b) + 32
    scratch = take(size_bytes_max)
    output = scratch.output
    status = kernel(a, len(a), b, len(b), *options, output)
    result = unpack_bytes(scratch.characters, output.size) if status == OK else None
    give(scratch, size_bytes_max)
    if status not in (OK, FALLBACK):
        _fail_reducer(status, name)
    return result


def _fail_reducer(status: int, name: str) -> NoReturn:
    if status == TYPE:
        message = f"{name} cannot merge values of these types"
        raise ReducerTypeError(message, reducer=name)
    fail(status, "CBOR item")


def add(a: bytes, b: bytes) -> bytes | None:
    """Return the encoded sum ``a + b`` of two items, as Python adds them, or None if Python must compute it.

    Raises:
        ReducerTypeError: the types cannot be added (str and int, list and tuple, two dicts, ...).
    """
    return _reduce(_add, "add", a, b)


def compare(a: bytes, b: bytes) -> int | None:
    """Return -1, 0 or 1 as Python orders two numbers, str or bytes, or None if Python must compare them.

    Raises:
        ReducerTypeError: the types have no common order, such as number and str.
    """
    scratch = take()
    status = _compare(a, len(a), b, len(b), scratch.order)
    order: int | None = scratch.order[0] if status == OK else None
    reuse(scratch)
    if status not in (OK, FALLBACK):
        _fail_reducer(status, "compare")
    return order


def merge_maps(a: bytes, b: bytes, *, deep: bool) -> bytes:
    """Merge two encoded dicts. If both have a key, the value in ``b`` replaces the value in ``a``.

    With ``deep``, dicts under the same key are merged recursively.

    Raises:
        ReducerTypeError: a value is not a dict.
    """
    merged = _reduce(_merge_maps, "deep_merge" if deep else "merge", a, b, deep)
    assert merged is not None
    return merged


def union(a: bytes, b: bytes) -> bytes:
    """Return the union of two encoded sets, or of two encoded frozensets.

    Raises:
        ReducerTypeError: the values are not sets of the same kind.
    """
    merged = _reduce(_union, "union", a, b)
    assert merged is not None
    return merged
