"""The nodes of a record (FORMAT.md 3)."""

from __future__ import annotations

from hashlib import blake2b

from oracles.cbor import read_item
from oracles.reading import Reader, require

PERSONS = (b"", b"stlg-leaf-1", b"stlg-root-1", b"stlg-chunk-1", b"stlg-piece-1")
Node = tuple[int, bytes, int, int, int]


def record_nodes(record: bytes) -> list[Node]:
    reader = Reader(record, 0, len(record))
    start = reader.take(20)
    return short_nodes(reader, start) if start[11] & 2 else full_nodes(reader, start)


def full_nodes(reader: Reader, start: bytes) -> list[Node]:
    envelope = start + reader.take(36)
    reader.take(int.from_bytes(envelope[12:16], "big"))
    count = int.from_bytes(envelope[52:56], "big")
    require(count <= 1 << 22)
    rows = [(reader.number(1), reader.take(20), reader.number(4), reader.number(4)) for _ in range(count)]
    nodes = []
    end = 0
    for node_type, digest, content_end, next_end in rows:
        require(1 <= node_type <= 4 and end < content_end <= next_end)
        nodes.append((node_type, digest, reader.at + end, content_end - end, next_end - end))
        end = next_end
    reader.take(end)
    reader.finish()
    return nodes


def short_nodes(reader: Reader, start: bytes) -> list[Node]:
    if start[11] & 8:
        reader.take(20)
    read_item(reader)
    head = reader.varint()
    row_count, width = head >> 2, (head & 3) + 1
    require(row_count <= 1 << 22)
    rows = [
        (reader.number(width), reader.number(1), reader.number(width), reader.number(width)) for _ in range(row_count)
    ]
    greatest = max([0, *(max(row[0], row[3]) for row in rows[-1:])])
    require(width == max(1, -(-greatest.bit_length() // 8)))
    nodes: list[Node] = [(0, b"", 0, 0, 0)] * (rows[-1][0] + 1 if rows else 0)
    require(len(nodes) <= 1 << 22)
    end, previous = 0, -1
    for number, node_type, content_end, next_end in rows:
        require(previous < number < len(nodes) and 1 <= node_type <= 4 and end < content_end <= next_end)
        at = reader.at + end
        content = reader.data[at : at + content_end - end]
        digest = blake2b(content, digest_size=20, person=PERSONS[node_type]).digest()
        nodes[number] = (node_type, digest, at, content_end - end, next_end - end)
        end, previous = next_end, number
    reader.take(end)
    reader.finish()
    return nodes
