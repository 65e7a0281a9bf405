"""Two encoded values, merged by decoding them."""

from __future__ import annotations

import math

from oracles.cbor import Value, cbor_check, decode, encode


class ReducerTypeError(Exception):
    """The same name as the kernels'."""


NUMBERS = ("int", "float")


def reducer_operands(a: bytes, b: bytes) -> tuple[Value, Value]:
    cbor_check(a)
    cbor_check(b)
    return decode(a)[0], decode(b)[0]


def is_foreign(value: Value) -> bool:
    is_big = value[0] == "int" and not -(2**64) <= value[1] < 2**64
    return is_big or value[0] in ("datetime", "uuid", "decimal", "codec")


def as_number(value: Value) -> Value:
    return ("int", int(value[1])) if value in (("simple", True), ("simple", False)) else value


def add(a: bytes, b: bytes) -> bytes | None:
    left, right = (as_number(value) for value in reducer_operands(a, b))
    if is_foreign(left) or is_foreign(right):
        return None
    if left[0] in NUMBERS and right[0] in NUMBERS:
        total = left[1] + right[1]
        result = ("int" if isinstance(total, int) else "float", total)
        return None if is_foreign(result) else encode(result)
    if left[0] != right[0] or left[0] not in ("text", "bytes", "list", "tuple"):
        raise ReducerTypeError
    return encode((left[0], left[1] + right[1]))


def compare(a: bytes, b: bytes) -> int | None:
    left, right = (as_number(value) for value in reducer_operands(a, b))
    for value in (left, right):
        if is_foreign(value) or value[0] not in (*NUMBERS, "text", "bytes"):
            return None
    if left[0] in NUMBERS and right[0] in NUMBERS:
        if math.isnan(left[1]) or math.isnan(right[1]):
            return None
    elif left[0] != right[0]:
        raise ReducerTypeError
    return (left[1] > right[1]) - (left[1] < right[1])


def merge_maps(a: bytes, b: bytes, *, deep: bool) -> bytes:
    left, right = reducer_operands(a, b)
    if left[0] != "map" or right[0] != "map":
        raise ReducerTypeError
    return encode(merged_map(left, right, deep=deep))


def merged_map(left: Value, right: Value, *, deep: bool) -> Value:
    merged = dict(left[1])
    for key, value in right[1]:
        nests = deep and key in merged and merged[key][0] == value[0] == "map"
        merged[key] = merged_map(merged[key], value, deep=True) if nests else value
    return ("map", list(merged.items()))


def union(a: bytes, b: bytes) -> bytes:
    left, right = reducer_operands(a, b)
    if left[0] != right[0] or left[0] not in ("set", "frozenset"):
        raise ReducerTypeError
    return encode((left[0], left[1] + right[1]))
