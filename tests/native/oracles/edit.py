"""Edits of one node."""

from __future__ import annotations

from oracles.chunking import closes
from oracles.node import Entry, loose, pack, parse, parse_root
from oracles.reading import DICT, KEYED, require, varint


def chunk_replace(
    data: bytes,
    content_size: int,
    home_lsn: int,
    *,
    kind: int,
    start: int,
    stop: int,
    entries: bytes,
    locators: bytes,
    added: int,
    is_closed: bool,
) -> tuple[bytes, int] | None:
    level, run = parse(data, content_size, home_lsn, is_root=False, kind=kind)
    held = list(run)
    require(start <= stop <= len(held))
    if added > 128 or not 1 <= len(held) - (stop - start) + added <= 128:
        return None
    kept = held[:start] + held[stop:]
    raw = [e.data for e in held]
    body = b"".join(raw[:start]) + entries + b"".join(raw[stop:])
    packed = [varint(e.lsn) + varint(e.node) if e.is_ref else b"" for e in held]
    places = b"".join(packed[:start]) + locators + b"".join(packed[stop:])
    count = len(kept) + added
    size = 0
    for index, e in enumerate(loose(kind, level, body, places, count)):
        size = e.end
        if closes(kind, level, e, index + 1, size) != (is_closed and index + 1 == count):
            return None
    content = bytes([kind, level]) + varint(count) + body
    return content + places, len(content)


def root_node(
    kind: int, key: bytes, count: int, spine: bytes, tail: list[Entry], spine_locators: bytes
) -> tuple[bytes, int]:
    entries, locators = pack(tail)
    named = varint(len(key)) + key if kind == KEYED else b""
    content = bytes([kind]) + named + varint(count) + spine + varint(len(tail)) + entries
    return content + spine_locators + locators, len(content)


def tail_append(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    root = parse_root(data, content_size, home_lsn)
    tail = list(root.entries)
    size = content_size - root.tail_at
    added = []
    for e in loose(root.kind, 0, entries, locators, count):
        added.append(e)
        if closes(root.kind, 0, e, len(tail) + len(added), size + e.end):
            return None
    spine_locators = b"".join(varint(lsn) + varint(node) for covered, _, lsn, node in root.levels if covered)
    return root_node(root.kind, root.key, root.count + count, root.spine, tail + added, spine_locators)


def tail_merge(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    root = parse_root(data, content_size, home_lsn)
    merged = {e.key: e for e in root.entries}
    batch = list(loose(root.kind, 0, entries, locators, count, batch=True))
    if root.levels and batch and not (merged and min(merged) <= batch[0].key):
        return None
    for e in batch:
        if e.deletes:
            merged.pop(e.key, None)
        else:
            e.data = e.key + e.slot if root.kind == DICT else e.key
            merged[e.key] = e
    tail = [merged[key] for key in sorted(merged)]
    size = 0
    for index, e in enumerate(tail):
        size += len(e.data)
        if closes(root.kind, 0, e, index + 1, size):
            return None
    spine_locators = b"".join(varint(lsn) + varint(node) for covered, _, lsn, node in root.levels if covered)
    return root_node(root.kind, b"", root.count - root.tail_count + len(tail), root.spine, tail, spine_locators)
