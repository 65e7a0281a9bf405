"""The kernels in plain Python, written only from FORMAT.md, and for reading instead of speed.

Each file matches one of ``statelog.kernels``. Values are small trees: ``(shape, payload)`` with the shapes of
``oracles.cbor.SHAPES``. ``Damaged`` is what the kernels call ``CorruptionError``. Positions are offsets into
the given bytes, as in the kernels.
"""

from oracles.cbor import Value, cbor_check, cbor_map_get, cbor_split, decode, encode
from oracles.chunking import blob_cuts, boundaries, content_hash, mix
from oracles.edit import chunk_replace, tail_append, tail_merge
from oracles.finding import find_key, find_position, fingerprint_find
from oracles.msgpack import msgpack_split
from oracles.node import chunk_summary, entries_copy, entries_table, loose, pack, parse, root_read
from oracles.reading import (
    BYTES,
    DELETE,
    DICT,
    FROZENSET,
    KEYED,
    LIST,
    MASK,
    PUT,
    SET,
    SORTED,
    STR,
    TUPLE,
    Damaged,
    Reader,
    outcome,
    varint,
)
from oracles.record import record_nodes
from oracles.reduce import add, compare, merge_maps, union
from oracles.version_page import page_build, page_find_time, page_parse, page_read

__all__ = [
    "BYTES",
    "DELETE",
    "DICT",
    "FROZENSET",
    "KEYED",
    "LIST",
    "MASK",
    "PUT",
    "SET",
    "SORTED",
    "STR",
    "TUPLE",
    "Damaged",
    "Reader",
    "Value",
    "add",
    "blob_cuts",
    "boundaries",
    "cbor_check",
    "cbor_map_get",
    "cbor_split",
    "chunk_replace",
    "chunk_summary",
    "compare",
    "content_hash",
    "decode",
    "encode",
    "entries_copy",
    "entries_table",
    "find_key",
    "find_position",
    "fingerprint_find",
    "loose",
    "merge_maps",
    "mix",
    "msgpack_split",
    "outcome",
    "pack",
    "page_build",
    "page_find_time",
    "page_parse",
    "page_read",
    "parse",
    "record_nodes",
    "root_read",
    "tail_append",
    "tail_merge",
    "union",
    "varint",
]
