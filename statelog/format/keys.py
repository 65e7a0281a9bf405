"""The keys of the index table. FORMAT.md section 6."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_MAX = (1 << 32) - 1
VERSIONS_PER_PAGE = 32
RECORDS_PER_PAGE = 256
"""The number of LSNs that a page of redacted records covers, so that an offset takes one byte."""

_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_BRANCH = struct.Struct(">cQI")
_PAGE = struct.Struct(">cQII")
_EVENT = struct.Struct(">cQQ")
_PAIR = struct.Struct(">QQ")
_PLACE = struct.Struct(">QIQ?")
_NODE = struct.Struct(">QI")


def encode_thread_id_key(thread_id: str) -> bytes:
    """Return the key of a thread id. The payload is the thread's LSN."""
    return b"t" + thread_id.encode()


THREAD_PREFIX = b"T"


def encode_thread_key(thread: int) -> bytes:
    """Return the key of a thread's row."""
    return THREAD_PREFIX + _U64.pack(thread)


def encode_branch_name_key(thread: int, name: str) -> bytes:
    """Return the key of a branch name. The payload is the branch's number."""
    return b"b" + _U64.pack(thread) + name.encode()


def encode_branch_key(thread: int, branch: int) -> bytes:
    """Return the key of a branch's row."""
    return _BRANCH.pack(b"B", thread, branch)


def encode_branch_prefix(thread: int) -> bytes:
    """Return the prefix of the keys of all branches of a thread."""
    return b"B" + _U64.pack(thread)


def encode_page_prefix(thread: int, branch: int) -> bytes:
    """Return the prefix of the keys of all version pages of a branch."""
    return _BRANCH.pack(b"v", thread, branch)


pack_page_key = partial(_PAGE.pack, b"v")
"""A function that packs the key of a version page from the thread, the branch and the number of the page."""


def encode_page_key(thread: int, branch: int, version: int) -> bytes:
    """Return the key of the version page that contains a version."""
    return pack_page_key(thread, branch, version // VERSIONS_PER_PAGE)


def page_number(key: bytes) -> int:
    """Return the number of the version page under a key."""
    return int(_PAGE.unpack(key)[3])


def encode_checkpoint_id_key(thread: int, checkpoint_id: str) -> bytes:
    """Return the key of a caller's checkpoint id. The payload is an LSN."""
    return b"i" + _U64.pack(thread) + checkpoint_id.encode()


def encode_tag_key(thread: int, name: str) -> bytes:
    """Return the key of a tag. The payload is an LSN."""
    return b"g" + _U64.pack(thread) + name.encode()


def encode_tag_prefix(thread: int) -> bytes:
    """Return the prefix of the keys of all tags of a thread."""
    return b"g" + _U64.pack(thread)


POLICIES_KEY = b"p"
"""The key of the store's policies for future threads."""


def encode_digest_key(digest: bytes) -> bytes:
    """Return the key of a large node, by its digest. The payload is the node's place (`encode_place`)."""
    return b"d" + digest


def encode_lsn(lsn: int) -> bytes:
    """Return an LSN as a key of the log or as a payload."""
    return _U64.pack(lsn)


def decode_lsn(payload: bytes) -> int:
    """Return the LSN in a key or payload: the inverse of `encode_lsn`."""
    return int(_U64.unpack(payload)[0])


def decode_lsns(payload: bytes) -> list[int]:
    """Return the LSNs in a payload that contains several."""
    return [lsn for (lsn,) in _U64.iter_unpack(payload)]


def encode_u32(number: int) -> bytes:
    """Return a branch number as a payload."""
    return _U32.pack(number)


def decode_u32(payload: bytes) -> int:
    """Return the number in a payload: the inverse of `encode_u32`."""
    return int(_U32.unpack(payload)[0])


def encode_tombstone_key(id_digest: bytes) -> bytes:
    """Return the key of a deleted thread: the part digest of its id. The payload has the LSNs of the deletions."""
    return b"x" + id_digest


def encode_thread_event_key(thread: int, lsn: int) -> bytes:
    """Return the key of a thread's record that is not a checkpoint."""
    return _EVENT.pack(b"e", thread, lsn)


def decode_event_lsn(key: bytes) -> int:
    """Return the LSN at the end of an index key of type `e`."""
    return int(_EVENT.unpack(key)[2])


def encode_redacted_key(thread: int, lsn: int) -> bytes:
    """Return the key of the page that covers an LSN and lists redacted records of a thread."""
    return _EVENT.pack(b"r", thread, lsn // RECORDS_PER_PAGE)


def decode_redacted_thread(key: bytes) -> int:
    """Return the thread in the key of a page of redacted records."""
    return int(_EVENT.unpack(key)[1])


def decode_redacted_page(key: bytes, payload: bytes) -> dict[int, int]:
    """Return the redaction state of each record on a page, by ascending LSN."""
    first = _EVENT.unpack(key)[2] * RECORDS_PER_PAGE
    return {first + offset: state for offset, state in zip(payload[::2], payload[1::2], strict=True)}


def encode_redacted_page(states: Mapping[int, int]) -> bytes:
    """Return the payload of a page of redacted records. The LSNs may be in any order."""
    return b"".join(bytes((lsn % RECORDS_PER_PAGE, states[lsn])) for lsn in sorted(states))


def encode_borrowed_key(thread: int, digest: bytes) -> bytes:
    """Return the key of the row that marks a widely shared node of a thread as used by other threads."""
    return b"o" + _U64.pack(thread) + digest


def encode_borrowed_prefix(thread: int) -> bytes:
    """Return the prefix of the keys of all borrowed nodes of a thread."""
    return b"o" + _U64.pack(thread)


def encode_former_key(digest: bytes, lsn: int, node: int) -> bytes:
    """Return the key of a previous place of a widely shared node, which a later place has replaced."""
    return b"O" + digest + _NODE.pack(lsn, node)


def encode_former_prefix(digest: bytes) -> bytes:
    """Return the prefix of the keys of all previous places of a node."""
    return b"O" + digest


def encode_borrowed_former_key(thread: int, digest: bytes, lsn: int, node: int) -> bytes:
    """Return the key of the row that marks a previous place of a thread's node as used by other threads."""
    return encode_borrowed_key(thread, digest) + _NODE.pack(lsn, node)


def decode_borrowed_key(key: bytes) -> tuple[bytes, tuple[int, int] | None]:
    """Return the digest in a key of a borrowed node.

    For a previous place, also return its LSN and node number; otherwise None.
    """
    return key[9:29], _NODE.unpack_from(key, 29) if len(key) > 29 else None


def encode_loan_key(lender: int, lsn: int) -> bytes:
    """Return the key of a loan: the lending thread, and the LSN of its record. The payload is the borrowing thread."""
    return _EVENT.pack(b"l", lender, lsn)


def encode_loan_prefix(lender: int) -> bytes:
    """Return the prefix of the keys of all loans that a thread has given."""
    return b"l" + _U64.pack(lender)


def decode_loan_lsn(key: bytes) -> int:
    """Return the LSN at the end of an index key of type `l`."""
    return int(_EVENT.unpack(key)[2])


def encode_debt_key(thread: int, lender: int) -> bytes:
    """Return the key of a loan, by the borrowing and the lending thread. The payload is the LSN of its record."""
    return _EVENT.pack(b"L", thread, lender)


def encode_debt_prefix(thread: int) -> bytes:
    """Return the prefix of the keys of all loans that a thread has received."""
    return b"L" + _U64.pack(thread)


def decode_debt_lender(key: bytes) -> int:
    """Return the lending thread in an index key of type `L`."""
    return int(_EVENT.unpack(key)[2])


def decode_debt_thread(key: bytes) -> int:
    """Return the borrowing thread in an index key of type `L`."""
    return int(_EVENT.unpack(key)[1])


def encode_thread_prefix(prefix: bytes, thread: int) -> bytes:
    """Return the prefix of all keys of a thread that begin with `prefix`."""
    return prefix + _U64.pack(thread)


class SharedNodePlace(NamedTuple):
    """The place of a widely shared node, its owner, and whether another thread refers to it."""

    lsn: int
    node: int
    thread: int
    is_borrowed: bool


def encode_place(place: SharedNodePlace) -> bytes:
    """Return the payload of a place."""
    return _PLACE.pack(*place)


def decode_place(payload: bytes) -> SharedNodePlace:
    """Return the place in a payload: the inverse of `encode_place`."""
    return SharedNodePlace(*_PLACE.unpack(payload))


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all keys that begin with `prefix`, or empty bytes if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else b""
