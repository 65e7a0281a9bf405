"""Write the initial corpus of the fuzz targets: one small well-formed input for each kind of input.

    python native/fuzz/seed_corpus.py [DIRECTORY]

Inputs that failed in a run are added by hand, under names that describe the fault.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

from xxhash import xxh3_64_digest

DIGEST = bytes(range(20))
REF = b"\xfc" + DIGEST
LEVELS = b"\x02\x12" + DIGEST + b"\x05" + DIGEST
LOCATOR = b"\x00\x07"
FAR_LOCATOR = b"\xac\x02\x83\x01"


def u16(number: int) -> bytes:
    """Return the two bytes from which a fuzz target reads a size."""
    return number.to_bytes(2, "big")


ITEMS = {
    "scalars": "8a00182320f6f5f93c00fa47c35000fb3ff199999999999a430102036161",
    "big_int": "c249010000000000000000",
    "map": "a3616101616282f4f5626363a0",
    "deep": "81" * 20 + "a16161" * 10 + "60",
    "sets": "82d901028301024161d9c86581f6",
    "tuple": "d9c864820102",
    "tagged": "84d9c8666a323032302d30312d3031d82550" + "0f" * 16 + "d9c86763312e30d81b82616e820102",
    "map_of_its_own_key": "a161616161",
    "utf8": "69c3a9e282acf09f9880",
}

CHUNKS = {
    "list": (0, b"\x00\x00\x03\x01" + REF + b"\x62ab", LOCATOR),
    "list_upper": (0, b"\x00\x01\x02\x09" + DIGEST + b"\x80\x01" + DIGEST, LOCATOR + FAR_LOCATOR),
    "dict": (2, b"\x02\x00\x02\x61a\x01\x61b" + REF, FAR_LOCATOR),
    "dict_upper": (2, b"\x02\x01\x01\x61b\x10" + DIGEST, LOCATOR),
    "set": (3, b"\x03\x00\x03\x01\x02\x61a", b""),
    "bytes_upper": (6, b"\x06\x01\x02\xa0\x10" + DIGEST + b"\x90\x20" + DIGEST, LOCATOR * 2),
    "keyed": (7, b"\x07\x00\x02\x00\x00\xa1\x62id\x01\x00\x09" + REF, LOCATOR),
    "keyed_upper": (7, b"\x07\x01\x01\x03" + DIGEST + b"\x00\x01\x00\x00\x00\x09", LOCATOR),
}

ROOTS = {
    "list": (0, b"\x00\x1a" + LEVELS + b"\x03\x01" + REF + b"\x02", LOCATOR * 3),
    "tuple_empty": (1, b"\x01\x00\x00\x00", b""),
    "dict": (2, b"\x02\x02\x00\x02\x61a\x01\x61c" + REF, FAR_LOCATOR),
    "frozenset": (4, b"\x04\x02\x00\x02\x01\x61a", b""),
    "str": (5, b"\x05\x15\x01\x10" + DIGEST + b"\x05hello", LOCATOR),
    "keyed": (7, b"\x07\x02id\x01\x00\x01\x00\x09\xa1\x62id\x01", b""),
}

CHANGES = {
    "dict": (ROOTS["dict"], b"\x61a\xfe\x61b" + REF + b"\x61c\x05", LOCATOR, 3),
    "frozenset": (ROOTS["frozenset"], b"\x01\xfe\x02\xff", b"", 2),
    "list": (ROOTS["list"], b"\x05" + REF, LOCATOR, 2),
    "keyed": (ROOTS["keyed"], b"\x00\x0a" + REF, LOCATOR, 1),
    "chunk": (CHUNKS["dict"], b"\x61b\x01", b"", 1),
    "upper": (CHUNKS["dict_upper"], b"\x61a\x05" + DIGEST + b"\x61b\x05" + DIGEST, LOCATOR * 2, 2),
    "closes": ((0, b"\x00\x00\x00\x00", b""), (b"\xfc" + bytes(20)) * 8, LOCATOR * 8, 8),
}

PAIRS = {
    "ints": ("1bffffffffffffffff", "3bffffffffffffffff"),
    "floats": ("f93c00", "fb3ff199999999999a"),
    "texts": ("6161", "6162"),
    "lists": ("820102", "8103"),
    "tuples": ("d9c8648101", "d9c86480"),
    "maps": ("a26161a1617801616201", "a26161a1617902616302"),
    "deep_maps": ("a16161" * 12 + "a0", "a16161" * 12 + "a1616201"),
    "sets": ("d901028301024161", "d90102820203"),
}


def record(nodes: list[tuple[bytes, bytes]]) -> bytes:
    """Return a record with a body of three bytes."""
    rows, end = b"", 0
    for content, locators in nodes:
        rows += b"\x02" + DIGEST + struct.pack(">II", end + len(content), end + len(content) + len(locators))
        end += len(content) + len(locators)
    envelope = bytes(12) + (3).to_bytes(4, "big") + bytes(36) + len(nodes).to_bytes(4, "big")
    return envelope + b"\x82\x01\x02" + rows + b"".join(content + locators for content, locators in nodes)


def short_record(nodes: dict[int, tuple[int, bytes, bytes]], *, is_chained: bool = False) -> bytes:
    """Return a vacuumed record that has only these nodes, keyed by number. The numbers in its rows take two bytes."""
    rows, end = b"", 0
    for number, (kind, content, locators) in nodes.items():
        content_end, end = end + len(content), end + len(content) + len(locators)
        rows += u16(number) + bytes([kind]) + u16(content_end) + u16(end)
    head = bytes(11) + (b"\x0e" + bytes(28) if is_chained else b"\x06" + bytes(8))
    table = bytes([len(nodes) << 2 | bool(nodes)]) + rows
    return head + b"\x82\x01\x02" + table + b"".join(content + locators for _, content, locators in nodes.values())


def digest_of(kind: int, content: bytes) -> bytes:
    """Return the digest of a node."""
    person = (b"", b"stlg-leaf-1", b"stlg-root-1", b"stlg-chunk-1", b"stlg-piece-1")[kind]
    return hashlib.blake2b(content, digest_size=20, person=person).digest()


def sound_nodes() -> list[tuple[int, bytes, bytes]]:
    """Return a leaf, a list with two refs to the leaf, and a dict with refs to the list and to another record."""
    leaf = b"\x78\x64" + b"y" * 100
    items = b"\x00\x02\x00\x02" + (b"\xfc" + digest_of(1, leaf)) * 2
    state = b"\x02\x02\x00\x02\x61a\xfd" + digest_of(2, items) + b"\x61b" + REF
    return [(1, leaf, b""), (2, items, b"\x00\x00" * 2), (2, state, b"\x00\x01\x03\x07")]


def walked_nodes() -> list[tuple[int, bytes, bytes]]:
    """Return a leaf, a chunk (the leaf and a small item), a list (the chunk and a tail), and a dict with the list."""
    leaf = b"\x78\x64" + b"y" * 100
    chunk = b"\x00\x00\x02\xfc" + digest_of(1, leaf) + b"\x05"
    items = b"\x00\x04\x01\x02" + digest_of(3, chunk) + b"\x02\x07\xfc" + digest_of(1, leaf)
    state = b"\x02\x02\x00\x02\x61a\xfd" + digest_of(2, items) + b"\x61b\x05"
    return [(1, leaf, b""), (3, chunk, b"\x00\x00"), (2, items, b"\x00\x01\x00\x00"), (2, state, b"\x00\x02")]


def sound_record(nodes: list[tuple[int, bytes, bytes]], body: bytes = b"\x82\x01\x02") -> bytes:
    """Return a record whose nodes match their digests."""
    rows, end = b"", 0
    for kind, content, locators in nodes:
        ends = struct.pack(">II", end + len(content), end + len(content) + len(locators))
        rows += bytes([kind]) + digest_of(kind, content) + ends
        end += len(content) + len(locators)
    envelope = bytes(12) + len(body).to_bytes(4, "big") + bytes(36) + len(nodes).to_bytes(4, "big")
    return envelope + body + rows + b"".join(content + locators for _kind, content, locators in nodes)


def entry_record(nodes: list[tuple[int, bytes, bytes]], slot: bytes, locator: bytes, order: bytes = b"\xf6") -> bytes:
    """Return a record of the entry `k`, set by `me`. Its root, the last node, stores `slot` as the value."""
    root = b"\x02\x01\x00\x01\x65value" + slot
    digest = b"\x54" + digest_of(2, root)
    body = b"\x8e\x01\x00\x61k\x62me\x00\x07\x00" + digest + b"\x00" + bytes([len(nodes)]) + order + b"\xf6\xf6\x80"
    whole = bytearray(sound_record([*nodes, (2, root, locator)], body))
    whole[8:12] = b"\x01\x0a\x00\x00"
    return bytes(whole)


def page(first: int, count: int) -> bytes:
    """Return a version page whose entries have the times 1, 2, 3, ..."""
    entries = b"".join((n + 7).to_bytes(8, "big") + (n + 1).to_bytes(8, "big") for n in range(count))
    return first.to_bytes(4, "big") + count.to_bytes(4, "big") + entries


def wake_bytes(at: int, data: bytes) -> bytes:
    """Return input for fuzz_wake.c that writes `data` into the file at `at`, counted from the end of the magic."""
    return (at // 2).to_bytes(2, "big") + bytes([len(data)]) + data


def lmdb_page(kind: int, nodes: list[tuple[bytes, int, bytes]], number: int = 3) -> bytes:
    """Return a little-endian LMDB page with nodes (key, flags, data). In a branch, data is the child's page number."""
    size, pointers, stored = 512, b"", b""
    for key, flags, data in nodes:
        head = data + bytes(6 - len(data)) if kind == 1 else struct.pack("<IH", len(data), flags)
        node = head + struct.pack("<H", len(key)) + key + (b"" if kind == 1 else data)
        stored = node + bytes(len(node) % 2) + stored
        pointers += struct.pack("<H", size - len(stored))
    header = struct.pack("<QHHHH", number, 0, kind, 16 + len(pointers), size - len(stored))
    return header + pointers + bytes(size - 16 - len(pointers) - len(stored)) + stored


def lmdb_input(options: int, page: bytes) -> bytes:
    """Return an input of fuzz_lmdb.c."""
    return bytes([options]) + b"\x02" + bytes(7) + page


def lmdb_map() -> bytes:
    """Return an LMDB file of small pages. Version 2 of thread 1 is on page 4, and its record (LSN 7) on page 5."""
    meta = bytes(128) + struct.pack("<QQQ", 2, 5, 1)
    tables = [(name, 2, bytes(40) + struct.pack("<Q", page)) for name, page in ((b"index", 3), (b"log", 5))]
    key = b"v" + (1).to_bytes(8, "big") + bytes(8)
    entry = struct.pack(">IIQQ", 2, 1, 7, 99)
    body = CHECKPOINTS["first"].replace(b"\x01\x00\x00", b"\x01\x00\x02", 1)
    envelope = struct.pack(">BBHIQQ20sI", 1, 2, 0, len(body), 7, 99, DIGEST, 0) + body
    others = [key[:-1] + bytes([number]) for number in (3, 9)]
    pages = [
        lmdb_page(2, tables, 2),
        lmdb_page(1, [(b"", 0, b"\x05"), (key, 0, b"\x04"), *((other, 0, b"\x05") for other in others)], 3),
        lmdb_page(2, [(key, 0, entry + xxh3_64_digest(key + entry)), *((other, 0, entry) for other in others)], 4),
        lmdb_page(2, [((7).to_bytes(8, "big"), 0, xxh3_64_digest(envelope) + envelope)], 5),
    ]
    return bytes(512) + meta + bytes(512 - len(meta)) + b"".join(pages)


def node_input(node: tuple[int, bytes, bytes], *, is_root: bool) -> bytes:
    """Return an input of fuzz_node.c."""
    kind, content, locators = node
    return bytes([is_root << 7 | kind]) + u16(len(content)) + u16(1) + u16(9) + content + locators


def change_input(node: tuple[int, bytes, bytes], entries: bytes, locators: bytes, count: int) -> bytes:
    """Return an input of fuzz_map.c."""
    _, content, own = node
    sizes = u16(len(content) + len(own)) + u16(len(content)) + u16(len(entries)) + u16(len(locators))
    return sizes + bytes([count]) + content + own + entries + locators


STATE = (b"\x02\x02\x00\x02\x61a\x05\x61b\xfd" + DIGEST, LOCATOR)


def step_input(
    root: tuple[int, bytes, bytes],
    items: bytes,
    count: int,
    operation: int,
    page: bytes = b"",
    opens: tuple[tuple[bytes, bytes], ...] = (),
    state: tuple[bytes, bytes] = STATE,
) -> bytes:
    """Return an input of fuzz_step.c: changes of a state whose channel "b" is the list with the root `root`."""
    kind, content, locators = root
    sizes = (len(b"".join(state)), len(state[0]), len(content + locators), len(content), len(items))
    opens += ((b"", b""),) * (2 - len(opens))
    for each in opens:
        sizes += (len(b"".join(each)), len(each[0]))
    head = b"".join(map(u16, sizes)) + bytes([count, operation, kind + 1])
    return head + b"".join(state) + content + locators + items + b"".join(map(b"".join, opens)) + page


def entry_input(
    operation: int,
    *,
    key: bytes = b"tasks/1",
    act: int = 0,
    root: bytes = b"",
    item: bytes = b"\x07",
    count: int = 0,
    row: tuple[int, int, int, int, bytes, int] = (0, 0, 0, 0, bytes(8), 0),
    claim: tuple[int, bytes, int, int, int] = (0, bytes(8), 0, 0, 0),
    rest: bytes = b"",
) -> bytes:
    """Return an input of fuzz_entry.c: an event of the entry `key`."""
    numbers = (1, act, 99, 98, 97, 300, 128, 0, 1, 9 if root or not item else 0, 0, row[0] > 0)
    fixed = struct.pack(">12Q4Q8sQQ8s3Q20s20s", *numbers, *row, *claim, DIGEST, DIGEST)
    sizes = u16(len(key)) + u16(len(root)) + u16(len(root)) + u16(len(item))
    return sizes + bytes([operation, count]) + fixed + key + root + item + rest


_COUNTER = b"\x02\x01\x00\x01\x65value\x05"
_OF_LIST = b"\x02\x01\x00\x01\x65value\xfd" + DIGEST + b"\x00\x00"
_FREE_ROW = (5, 200, 97, 128, bytes(8), 0)
_CLAIMED_ROW = (5, 0, 97, 128, b"\x01" * 8, 77)
_CLAIM = (0, b"\x02" * 8, 88, 89, 30)

ENTRIES = {
    "create": entry_input(1),
    "set": entry_input(1, row=_FREE_ROW),
    "add": entry_input(6, root=_COUNTER, row=_FREE_ROW),
    "leaf": entry_input(1, item=b"\x78\x64" + b"t" * 100),
    "tree": entry_input(1, item=b"\xa1\x61k\x78\x64" + b"t" * 100),
    "large": entry_input(1, item=b"\x79\x13\x88" + b"l" * 5000),
    "append": entry_input(7, root=_OF_LIST, count=1, rest=b"\x00\x01\x00\x01\x05"),
    "claim": entry_input(0, act=4, item=b"", row=_FREE_ROW, claim=_CLAIM),
    "complete": entry_input(0, act=7, item=b"", row=_CLAIMED_ROW),
    "delete": entry_input(0, act=1, item=b"", row=_FREE_ROW),
    "lease": entry_input(0, key=b"/name", act=4, item=b"", row=_CLAIMED_ROW, claim=_CLAIM),
    "end_of_lease": entry_input(0, key=b"/name", act=6, item=b"", row=_CLAIMED_ROW),
    "little_room": entry_input(9, key=b"k" * 400),
}

FULL_STATE = (
    b"\x02\x7f\x00\x7f"
    + b"".join(b"\x62!" + bytes([33 + each]) + b"\x05" for each in range(90))
    + b"".join(b'\x62"' + bytes([33 + each]) + b"\x05" for each in range(37)),
    b"",
)
"""A state in which one more channel closes a chunk."""

TEXT = b"\x78\x64" + b"t" * 100

STEPS = {
    "put": (ROOTS["list"], TEXT, 1, 1),
    "add": (ROOTS["list"], b"\x07", 1, 2),
    "append": (ROOTS["list"], TEXT + b"\x03" + TEXT, 3, 4),
    "upsert": (ROOTS["keyed"], b"\xa2\x62id\x61x\x64text" + TEXT, 1, 4),
    "put_and_append": (ROOTS["list"], b"\x03", 1, 5),
    "page": (ROOTS["list"], b"\xa0", 1, 1, struct.pack(">IIQQQQ", 33, 2, 7, 1, 8, 2)),
    "large_leaf": (ROOTS["list"], b"\x79\x13\x88" + b"l" * 5000, 1, 4),
    "tree": (ROOTS["list"], b"\xa2\x61a\x79\x10\x00" + b"k" * 4096 + b"\x61b\x82\x01" + TEXT, 1, 4),
    "tree_in_tree": (ROOTS["list"], b"\x82\xa1\x61a\x82\x79\x10\x00" + b"k" * 4096 + b"\x01\x02", 1, 4),
    "channel_dict": (ROOTS["list"], b"\xa1\x61k" + TEXT, 1, 1),
    "little_room": (ROOTS["list"], TEXT, 1, 9),
    "first_to_close": ((0, b"\x00\x7f\x00\x7f" + b"\x01" * 127, b""), b"\x02", 1, 4),
    "closes": (
        (0, b"\x00\x87\x01\x01\x08" + DIGEST + b"\x7f" + b"\x01" * 127, LOCATOR),
        b"\x02" * 20,
        20,
        4,
        b"",
        ((b"\x00\x01\x01\x08" + DIGEST, LOCATOR),),
    ),
    "state_closes": (ROOTS["list"], TEXT, 1, 1, b"", (), FULL_STATE),
    "behind_closed": (
        ROOTS["list"],
        TEXT,
        1,
        1,
        b"",
        ((b"\x02\x01\x01\x61A\x08" + DIGEST, LOCATOR),),
        (b"\x02\x08\x01\x08" + DIGEST + b"\x00", LOCATOR),
    ),
    "closes_twice": (
        (0, b"\x00\xff\x08\x02\x08" + DIGEST + b"\xf8\x07" + DIGEST + b"\x7f" + b"\x01" * 127, LOCATOR + LOCATOR),
        b"\x02" * 20,
        20,
        4,
        b"",
        (
            (b"\x00\x01\x7f" + (b"\x08" + DIGEST) * 127, LOCATOR * 127),
            (b"\x00\x02\x01\x08" + DIGEST, LOCATOR),
        ),
    ),
}


_PLACES = (
    b"\x01\x00\x18\x63\x00\x18\x62\x54" + DIGEST + b"\x00\x18\x5f\x18\x63\x18\x5f\x54" + DIGEST + b"\x19\x01\x00\x02"
)

CHECKPOINTS = {
    "first": b"\x91\x01\x00\x00\xf6\xf6\xf6\xf6\xf6\x00\x00\x54" + DIGEST + b"\x00\x00\xf6\xa0\x81\x61x\x80",
    "later": b"\x91" + _PLACES + b"\x62id\xa1\x61k\x01\x81\x61x\x81\x54" + DIGEST,
    "rollback": b"\x92" + _PLACES + b"\xf6\xa0\x80\x80\x19\x01\x00",
}


ARRAYS = {
    "scalars": "9c017fe0c0c2c3ccffcdffffceffffffffcfffffffffffffffffd080cb3ff199999999999a",
    "strings": "99a3616263d90161da000161db0000000161c401ffc50001ffc600000001ffc70205aabbd705" + "aa" * 8,
    "array_16": "dc0010" + "c0" * 16,
    "containers": "9593c09080dc0001c0dd00000001c082a16101a1629102df00000001a161c0",
    "deep": "91" * 20 + "81c0" * 10 + "a0",
}


VECTORS = {
    "three_rows": b"\x02" + struct.pack("<3h", 1, -2, 32767) + bytes([1, 2, 3, 128, 127, 0, 255, 0, 5]),
    "wraps": b"\xff" + struct.pack("<256h", *[-32768] * 256) + bytes([128]) * 512,
}


def corpus() -> dict[str, bytes]:
    """Return the seeds, keyed by their paths in the corpus directory."""
    seeds = {f"cbor/{name}": bytes.fromhex(hexed) for name, hexed in ITEMS.items()}
    seeds |= {f"node/chunk_{name}": node_input(node, is_root=False) for name, node in CHUNKS.items()}
    seeds |= {f"node/root_{name}": node_input(node, is_root=True) for name, node in ROOTS.items()}
    seeds |= {f"map/{name}": change_input(*change) for name, change in CHANGES.items()}
    seeds |= {f"reduce/{name}": u16(len(a) // 2) + bytes.fromhex(a + b) for name, (a, b) in PAIRS.items()}
    seeds |= {f"step/{name}": step_input(*step) for name, step in STEPS.items()}
    seeds |= {f"entry/{name}": data for name, data in ENTRIES.items()}
    seeds |= {f"checkpoint/{name}": bytes([name == "rollback"]) + body for name, body in CHECKPOINTS.items()}
    envelope = b"\x01\x02\x00\x00" + len(CHECKPOINTS["later"]).to_bytes(4, "big") + (99).to_bytes(8, "big")
    seeds["checkpoint/record"] = b"\x00" + bytes(8) + envelope + bytes(32) + CHECKPOINTS["later"]
    seeds |= {f"vectors/{name}": data for name, data in VECTORS.items()}
    seeds |= {f"msgpack/{name}": bytes.fromhex(hexed) for name, hexed in ARRAYS.items()}
    seeds["record/empty"] = record([])
    seeds["record/three_nodes"] = record([(b"content", b"\x00\x01"), (b"y", b""), (b"x" * 100, b"")])
    seeds["record/vacuumed"] = short_record({1: (2, b"content", b"\x00\x01"), 300: (1, b"x" * 100, b"")})
    seeds["record/vacuumed_and_chained"] = short_record({0: (1, b"x" * 300, b"")}, is_chained=True)
    seeds["record/vacuumed_whole"] = short_record({})
    sound = sound_nodes()
    seeds["verify/sound"] = b"\x10\x09" + sound_record(sound)
    seeds["verify/ref_to_a_later_record"] = b"\x10\x02" + sound_record(sound)
    seeds["verify/vacuumed"] = b"\x10\x09" + short_record(dict(enumerate(sound)))
    seeds["page/empty"] = b"\x05"
    seeds["page/one"] = b"\x01" + page(64, 1)
    seeds["page/expired_between"] = b"\x02" + page(32, 2)[:8] + bytes(16) + page(32, 1)[8:]
    seeds["page/full"] = b"\x1f" + page(0, 32)
    seeds["wake/untouched"] = b"\x04turn" + bytes(9)
    seeds["wake/called"] = b"\x04turn" + wake_bytes(88, b"\x01") + wake_bytes(96 - 64, bytes(40))
    seeds["wake/full"] = b"\x00" + b"".join(wake_bytes(56 + 512 * slot, bytes([slot + 3]) * 8) for slot in range(80))
    leaf = [(b"a", 0, b"value"), (b"bc", 1, bytes(8)), (b"table", 2, bytes(48))]
    seeds["lmdb/leaf"] = lmdb_input(4 | 16, lmdb_page(2, leaf))
    seeds["lmdb/branch"] = lmdb_input(4, lmdb_page(1, [(b"", 0, b"\x05"), (b"m", 0, b"\x06"), (b"xyz", 0, b"\x07")]))
    seeds["lmdb/integers"] = lmdb_input(
        8 | 4 | 1, lmdb_page(2, [(bytes([n]) + bytes(7), 0, bytes(16)) for n in (2, 3)])
    )
    seeds["lmdb/version"] = lmdb_input(32, lmdb_map())
    rows = [(key, 0, b"row" + xxh3_64_digest(key + b"row")) for key in (b"ka", b"kb", b"kc", b"l")]
    file = bytes(1024) + lmdb_page(2, rows, 2)
    at = struct.pack("<Q", file.index(b"kb"))
    seeds["lmdb/rows"] = bytes([64]) + at + file
    seeds["lmdb/rows_down"] = bytes([65]) + at + file
    walked = walked_nodes()
    for position, name in enumerate(("leaf", "small_item", "tail", "leaf_of_tail")):
        seeds[f"walk/{name}"] = u16(position) + b"\x03\x02\x61a" + short_record(dict(enumerate(walked)))
    seeds["walk/whole_record"] = b"\x00\x00\x03\x02\x61a" + sound_record(walked)
    seeds["walk/to_another_record"] = b"\x00\x00\x00\x02\x61b" + short_record(
        {0: (2, b"\x02\x01\x00\x01\x61b\xfd" + DIGEST, b"\x03\x07")}
    )
    leaf_ref, root_ref = b"\xfc" + digest_of(1, sound[0][1]), b"\xfd" + digest_of(2, sound[1][1])
    seeds["board/inline"] = b"\x00\x10\x00" + entry_record([], b"\x05", b"")
    seeds["board/without_value"] = b"\x02\x10\x00" + entry_record([], b"\x05", b"", b"\x83\x05\x00\x01")
    seeds["board/leaf"] = b"\x00\x10\x00" + entry_record(sound[:1], leaf_ref, b"\x00\x00")
    seeds["board/list"] = b"\x00\x10\x00" + entry_record(sound[:2], root_ref, b"\x00\x01")
    seeds["board/digests_put_right"] = b"\x01\x10\x00" + entry_record(sound[:1], b"\xa1\x61a\x01", b"")
    seeds["board/no_room"] = b"\x00\x00\x04" + entry_record([], b"\x65value", b"")
    return seeds


def main() -> None:
    """Write each seed to its file."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "corpus"
    for name, data in corpus().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
