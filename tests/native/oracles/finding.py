"""Finds positions in a node."""

from __future__ import annotations

from typing import Any

from oracles.node import parse, parse_root
from oracles.reading import BYTES, KEYED, MASK, STR, Damaged, require


def find_position(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, position: int
) -> tuple[int, ...]:
    if is_root and kind in (STR, BYTES):
        root = parse_root(data, content_size, 0)
        require(root.kind in (STR, BYTES) and position < root.tail_count)
        return (0, position, root.tail_at, content_size, 0, 0, root.tail_count)
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    for index, e in enumerate(entries):
        if position < e.covered:
            return (index, position, e.slot_at, e.end, e.lsn, e.node, e.covered)
        position -= e.covered
    raise Damaged


def find_key(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, key_item: bytes
) -> tuple[Any, ...]:
    level, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    before = index = 0
    for e in entries:
        if e.key == key_item or (level > 0 and e.key > key_item):
            return (index, True, e.slot_at, e.end, e.lsn, e.node, before)
        if e.key > key_item:
            return (index, False, e.at, e.at, 0, 0, before)
        before += e.covered
        require(before <= MASK)
        index += 1
    return (index, False, content_size, content_size, 0, 0, before)


def fingerprint_find(data: bytes, content_size: int, *, is_root: bool, fingerprint: int, start: int) -> int:
    _, entries = parse(data, content_size, 0, is_root=is_root, kind=KEYED)
    position = 0
    for e in entries:
        for at in range(0, len(e.fingerprints), 2):
            if position >= start and int.from_bytes(e.fingerprints[at : at + 2], "big") == fingerprint:
                return position
            position += 1
    return -1
