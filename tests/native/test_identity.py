"""Digests and the bodies of checkpoints, compared with hashlib and the general encoder."""

from __future__ import annotations

import hashlib
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog import kernels
from statelog.errors import CorruptionError, UsageError
from statelog.format import cbor
from statelog.format.record import NodeRow, encode_record, pack_nodes

PERSONS = {1: b"stlg-leaf-1", 2: b"stlg-root-1", 3: b"stlg-chunk-1", 4: b"stlg-piece-1"}

digests = st.binary(min_size=20, max_size=20)
numbers = st.one_of(st.integers(0, 30), st.sampled_from([2**8 - 1, 2**8, 2**16, 2**32, 2**62, 2**63 - 1]))


def blake2b(person, data):
    return hashlib.blake2b(data, digest_size=20, person=person).digest()


def test_the_digest_of_a_node_is_that_of_hashlib():
    for size in (*range(300), 1024, 4096, 65_537):
        content = bytes(at * 7 % 251 for at in range(size))
        for type_, person in PERSONS.items():
            assert kernels.node_digest(type_, content) == blake2b(person, content), size


@pytest.mark.parametrize("type_", [0, 5, -1])
def test_a_node_of_no_type_has_no_digest(type_):
    with pytest.raises(UsageError):
        kernels.node_digest(type_, b"x")


@given(st.integers(1, 8), st.integers(0, 7), numbers, numbers, digests, st.binary(max_size=300), st.data())
def test_the_chain_digest_is_the_one_drawn(type_, flags, lsn, time_us, previous, body, data):
    rows = data.draw(st.lists(st.binary(min_size=29, max_size=29), max_size=12))
    contents = blake2b(b"stlg-part-1", blake2b(b"stlg-part-1", body) + b"".join([row[:21] for row in rows]))
    chained = struct.pack(">BBHQQ20s", 1, type_, flags & 1, lsn, time_us, previous) + contents
    found = kernels.chain_digest(type_, flags, lsn, time_us, previous, body, b"".join(rows))
    assert found == blake2b(b"stlg-chain-1", chained)


@given(st.integers(1, 255), st.integers(0, 1), numbers, numbers, digests, st.lists(numbers, max_size=3))
def test_the_next_record_is_known_by_type_thread_branch_and_time(type_, flags, lsn, time_us, previous, fields):
    body, nodes = cbor.encode(fields), pack_nodes([NodeRow(2, bytes(20), b"node", 3)])
    record, chain = encode_record(
        type_, lsn=lsn, time_us=time_us, previous_chain=previous, body=body, nodes=nodes, flags=flags
    )
    thread, branch = [*fields, 0, 0][:2]
    assert kernels.record_next(record, lsn, previous) == (type_, thread, branch, time_us, chain)
    assert kernels.record_next(record, lsn + 1, previous) is None
    assert kernels.record_next(record, lsn, chain) is None
    assert kernels.record_next(record[:-38], lsn, previous) is None  # its row is cut off


@pytest.mark.parametrize("body", [b"", b"\x07", cbor.encode(["7", 1]), cbor.encode([]), cbor.encode([-1, 1])])
def test_the_next_record_may_have_any_body(body):
    record, chain = encode_record(9, lsn=7, time_us=8, previous_chain=bytes(20), body=body)
    assert kernels.record_next(record, 7, bytes(20)) == (9, 0, 0, 8, chain)


@pytest.mark.parametrize(("at", "byte"), [(8, 0), (8, 2), (10, 1), (11, 2), (11, 4)])
def test_a_record_of_another_format_or_redacted_is_not_followed(at, byte):
    record = bytearray(encode_record(2, lsn=7, time_us=8, previous_chain=bytes(20), body=b"\x80")[0])
    record[at] = byte
    assert kernels.record_next(bytes(record), 7, bytes(20)) is None


def test_rows_that_are_cut_off_have_no_chain_digest():
    with pytest.raises(UsageError):
        kernels.chain_digest(1, 0, 1, 1, bytes(20), b"", bytes(30))


@pytest.mark.slow
@given(
    st.tuples(*[numbers] * 13),
    st.sets(st.integers(3, 6)),
    st.one_of(st.none(), digests),
    digests,
    st.one_of(st.none(), st.text(max_size=300)),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=5),
    st.lists(st.text(max_size=5), max_size=5),
    st.lists(digests, max_size=3),
)
def test_a_checkpoint_equals_the_result_of_the_general_encoder(
    given_numbers, nulls, parent, root, id_, metadata, written, borrowed
):
    fields = [None if at in nulls else number for at, number in enumerate(given_numbers)]
    packed = kernels.pack_numbers(*[-1 if number is None else number for number in fields])
    items = [cbor.encode(value) for value in (id_, metadata, written, borrowed)]
    body, digest = kernels.checkpoint_encode(packed, parent, root, *items)
    target, time_us = fields[11:]
    expected = [*fields[:5], parent, *fields[5:9], root, *fields[9:11], id_, metadata, written, borrowed]
    assert body == cbor.encode(expected + [target] * (target > 0))
    assert digest == blake2b(b"stlg-checkpt-1", cbor.encode([parent, root, time_us, id_, metadata]))

    found = kernels.checkpoint_decode(body, is_rollback=target > 0)
    assert [None if number == kernels.NO_NUMBER else number for number in found[:12]] == fields[:12]
    parent_at, root_at, *offsets = found[12:]
    assert (body[parent_at : parent_at + 20] if parent_at else None, body[root_at : root_at + 20]) == (parent, root)
    assert [body[start:end] for start, end in pairwise(offsets)] == items


PLACES = [7, 0, 3, 0, 2, bytes(20), 0, 0, 3, 0, bytes(20), 4, 0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        cbor.encode(1),
        cbor.encode([*PLACES, None, {}, []]),
        cbor.encode([*PLACES, None, {}, [], [], 1]),
        cbor.encode([*PLACES, None, {}, [], []]) + b"\x00",
        cbor.encode([*PLACES, None, {}, [], []])[:-1],
        cbor.encode(["7", *PLACES[1:], None, {}, [], []]),
        cbor.encode([None, *PLACES[1:], None, {}, [], []]),
        cbor.encode([-1, *PLACES[1:], None, {}, [], []]),
        cbor.encode([2**64 - 1, *PLACES[1:], None, {}, [], []]),
        cbor.encode([*PLACES[:5], bytes(19), *PLACES[6:], None, {}, [], []]),
        cbor.encode([*PLACES[:10], None, *PLACES[11:], None, {}, [], []]),
        cbor.encode([*PLACES, None, {}, [], []]).replace(b"\xf6\xa0", b"\xf6\xbf", 1),
    ],
)
def test_a_body_that_is_not_a_checkpoint_is_damage(body):
    with pytest.raises(CorruptionError):
        kernels.checkpoint_decode(body, is_rollback=False)


def test_a_checkpoint_is_not_a_rollback_and_a_rollback_not_a_checkpoint():
    body = cbor.encode([*PLACES, None, {}, [], []])
    kernels.checkpoint_decode(body, is_rollback=False)
    with pytest.raises(CorruptionError):
        kernels.checkpoint_decode(body, is_rollback=True)
