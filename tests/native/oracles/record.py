"""The nodes of a record (FORMAT.md 3)."""

from __future__ import annotations

from oracles.reading import Reader, require


def record_nodes(record: bytes) -> list[tuple[int, bytes, int, int, int]]:
    reader = Reader(record, 0, len(record))
    envelope = reader.take(56)
    reader.take(int.from_bytes(envelope[12:16], "big"))
    count = int.from_bytes(envelope[52:56], "big")
    require(count <= 1 << 22)
    is_vacuumed = bool(envelope[11] & 2)
    row_count = reader.number(4) if is_vacuumed and count else count
    require(row_count <= count)
    rows = [
        (
            reader.number(4) if is_vacuumed else row,
            reader.number(1),
            reader.take(20),
            reader.number(4),
            reader.number(4),
        )
        for row in range(row_count)
    ]
    nodes: list[tuple[int, bytes, int, int, int]] = [(0, b"", 0, 0, 0)] * count
    start, previous = 0, -1
    for number, node_type, digest, content_end, end in rows:
        require(previous < number < count and 1 <= node_type <= 4 and start < content_end <= end)
        nodes[number] = (node_type, digest, reader.at + start, content_end - start, end - start)
        start, previous = end, number
    reader.take(start)
    reader.finish()
    return nodes
