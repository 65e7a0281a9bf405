from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import DICT, KEYED, LIST, STR, outcome, varint
from strategies import chunks, damaged, kinds, roots

from statelog import kernels
from statelog.errors import CorruptionError, UsageError

relaxed = settings(deadline=None)
homes = st.sampled_from([0, 1, 5_000_000, 2**64 - 1])
levels = st.integers(0, 7)
DIGEST = bytes(range(20))


@st.composite
def nodes(draw):
    """Options of a node call, with the node whole or damaged."""
    kind, is_root = draw(kinds), draw(st.booleans())
    data, content_size = draw(roots(kind) if is_root else chunks(kind, draw(levels)))
    if draw(st.booleans()):
        data = draw(damaged(data))
        content_size = max(0, content_size + draw(st.sampled_from([0, 0, 0, -1, 1, 3])))
    return (data, content_size, draw(homes)), {"is_root": is_root, "kind": kind}


@pytest.mark.slow
@relaxed
@given(kinds.flatmap(roots), homes)
def test_root_read_agrees_with_oracle(node, home_lsn):
    assert kernels.root_read(*node, home_lsn) == oracles.root_read(*node, home_lsn)


@pytest.mark.slow
@relaxed
@given(nodes())
def test_root_read_agrees_with_oracle_on_damage(node):
    assert outcome(kernels.root_read, *node[0]) == outcome(oracles.root_read, *node[0])


@pytest.mark.slow
@relaxed
@given(nodes())
def test_entries_table_agrees_with_oracle(node):
    assert outcome(kernels.entries_table, *node[0], **node[1]) == outcome(oracles.entries_table, *node[0], **node[1])


@pytest.mark.slow
@relaxed
@given(nodes(), st.integers(0, 9), st.integers(0, 25))
def test_entries_copy_agrees_with_oracle(node, start, stop):
    options = {**node[1], "start": start, "stop": stop}
    assert outcome(kernels.entries_copy, *node[0], **options) == outcome(oracles.entries_copy, *node[0], **options)


@pytest.mark.slow
@relaxed
@given(nodes())
def test_chunk_summary_agrees_with_oracle(node):
    (data, content_size, _), options = node
    args = (data, content_size, options["kind"], DIGEST)
    assert outcome(kernels.chunk_summary, *args) == outcome(oracles.chunk_summary, *args)


@relaxed
@given(st.binary(max_size=60), st.integers(0, 60), kinds, st.booleans())
def test_any_bytes_are_answered_or_refused(data, content_size, kind, is_root):
    options = {"is_root": is_root, "kind": kind}
    args = (data, content_size, 3)
    assert outcome(kernels.entries_table, *args, **options) == outcome(oracles.entries_table, *args, **options)


def test_a_summary_of_a_summary_keeps_the_covered_messages():
    slots = b"".join(bytes([0, n, n]) for n in range(1, 10))
    chunk = b"\x07\x00\x09" + slots
    entry = kernels.chunk_summary(chunk, len(chunk), KEYED, DIGEST)
    assert entry == b"\x09" + DIGEST + b"".join(bytes([0, n]) for n in range(1, 10))
    upper = b"\x07\x01\x01" + entry
    assert kernels.chunk_summary(upper + b"\x05\x06", len(upper), KEYED, DIGEST) == b"\x09" + DIGEST


def test_root_vector():
    content = bytes.fromhex("020c020a") + DIGEST + bytes.fromhex("00026161016162fc") + DIGEST
    data = content + bytes.fromhex("00070308")
    head = kernels.root_read(data, len(content), 1000)
    assert head == (DICT, b"", 12, ((10, DIGEST, 1000, 7), (0, None, 0, 0)), 2, 26, len(content) + 2)
    assert kernels.entries_table(data, len(content), 1000, is_root=True, kind=DICT) == [
        26, 28, 29, 1, 0, 0,
        29, 31, 52, 1, 3, 8,
    ]  # fmt: skip


def test_root_of_str_has_a_raw_tail():
    content = bytes([STR]) + varint(5) + b"\0" + varint(5) + b"\xff\xfehe\0"
    assert kernels.root_read(content, len(content), 1)[4:] == (5, 4, len(content))
    with pytest.raises(CorruptionError):
        kernels.entries_table(content, len(content), 1, is_root=True, kind=STR)


REFUSED = {
    "unknown kind": b"\x08\x00\x00\x00",
    "count that the tail does not have": b"\x00\x01\x00\x00",
    "highest level covers nothing": b"\x00\x00\x01\x00\x00",
    "65 levels": b"\x00\x00\x41",
    "key of size 0": b"\x07\x00\x00\x00\x00",
    "count not shortest": b"\x00\x80\x00\x00\x00",
    "varint of 11 bytes": b"\x00" + b"\xff" * 10 + b"\x01",
    "varint past 64 bits": b"\x00" + b"\xff" * 9 + b"\x02",
    "byte after the tail": b"\x00\x01\x00\x01\x05\x05",
    "inline item above 64 bytes": b"\x00\x01\x00\x01\x58\x3f" + bytes(63),
    "ref cut off": b"\x00\x01\x00\x01\xfc" + bytes(19),
    "ref without locator": b"\x00\x01\x00\x01\xfc" + bytes(20),
    "dict keys out of order": b"\x02\x02\x00\x02\x61b\x01\x61a\x01",
    "dict key twice": b"\x02\x02\x00\x02\x61a\x01\x61a\x01",
    "dict key no text": b"\x02\x01\x00\x01\x01\x01",
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED.keys())
def test_root_is_refused(content):
    def read():
        kernels.root_read(content, len(content), 1)
        return kernels.entries_table(content, len(content), 1, is_root=True, kind=content[0])

    assert outcome(read)[0] == "CorruptionError"


def test_levels_that_cover_more_than_64_bits_are_refused():
    content = b"\x00\x00\x02" + varint(2**64 - 1) + DIGEST + b"\x01" + DIGEST + b"\x00"
    with pytest.raises(CorruptionError):
        kernels.root_read(content + b"\x01\x01" * 2, len(content), 1)


def test_locator_left_over_is_refused():
    with pytest.raises(CorruptionError):
        kernels.entries_table(b"\x00\x01\x00\x01\x05\x01\x01", 5, 1, is_root=True, kind=LIST)


def test_content_larger_than_the_node_is_refused():
    with pytest.raises(CorruptionError):
        kernels.root_read(b"\x00\x00\x00\x00", 5, 1)


def test_root_of_another_kind_is_refused():
    with pytest.raises(CorruptionError):
        kernels.entries_table(b"\x00\x00\x00\x00", 4, 1, is_root=True, kind=DICT)


def test_unknown_kind_is_a_usage_error():
    with pytest.raises(UsageError):
        kernels.entries_table(b"\x00\x01\x05", 3, 1, is_root=False, kind=8)


def test_digest_of_wrong_size_is_a_usage_error():
    with pytest.raises(UsageError):
        kernels.chunk_summary(b"\x00\x01\x05", 3, LIST, b"short")
