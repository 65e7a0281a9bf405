"""The end of a step, compared with plain Python: body, digests, record and version page."""

from __future__ import annotations

import struct
from hashlib import blake2b

import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.record import PERSONS

from statelog import kernels
from statelog.format import cbor
from statelog.kernels import KIND_DICT, STEP_ADD, STEP_PUT
from statelog.testing import strategies as own

EMPTY = bytes((KIND_DICT, 0, 0, 0))

digests = st.binary(min_size=20, max_size=20)
numbers = st.integers(0, 2**62)
optional_ids = st.one_of(st.none(), st.text(max_size=20))
values = st.one_of(own.integers(), own.floats(), st.text(max_size=90), st.binary(max_size=4000))


def digest_of(person, data):
    return blake2b(data, digest_size=20, person=person).digest()


@st.composite
def checkpoints(draw):
    """Draw the fields of a checkpoint without its root, and the entries of the page before it."""
    version = draw(st.integers(0, 2**32 - 2))
    first = draw(st.integers(version - version % 32, version))
    entries = draw(st.lists(st.tuples(numbers, numbers), min_size=version - first, max_size=version - first))
    line = (*draw(st.tuples(numbers, numbers)), version, *draw(st.tuples(numbers, numbers)))
    return line, draw(st.tuples(*[numbers] * 4)), (first, entries)


PLAIN_CHECKPOINT = ((0, 0, 0, 0, 0), (0, 0, 0, 0), (0, []))


@pytest.mark.slow
@settings(deadline=None)
@given(
    checkpoints(),
    st.tuples(digests, digests, digests),
    st.dictionaries(st.text(max_size=30), values, min_size=1, max_size=7),  # with 8 a chunk may close
    optional_ids,
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=5),
    st.tuples(numbers, numbers),
    st.booleans(),
)
@example(PLAIN_CHECKPOINT, (bytes(20),) * 3, {"a leaf": "x" * 63, "another": "y" * 300}, None, {}, (0, 0), False)  # noqa: FBT003
@example(PLAIN_CHECKPOINT, (bytes(20),) * 3, {"a leaf": "x" * 63}, "id", {}, (0, 0), True)  # noqa: FBT003
def test_a_step_makes_the_record_of_the_oracle(checkpoint, given_digests, update, id_, metadata, place, is_same):
    line, jump, (first, entries) = checkpoint
    state_digest, parent_digest, chain = given_digests
    lsn, time_us = place
    changes = sorted((STEP_PUT, cbor.encode(key), cbor.encode(value)) for key, value in update.items())
    if is_same:  # the new root equals the present one, which stays
        made = run(changes, bytes(20), line, jump, (lsn, time_us), parent_digest, id_, metadata, chain, b"")
        state_digest = made.root_digest
    page = oracles.page_build(first, entries) if entries else b""
    made = run(changes, state_digest, line, jump, (lsn, time_us), parent_digest, id_, metadata, chain, page)

    rows, nodes = made.record[made.rows_at : made.nodes_at], made.record[made.nodes_at :]
    table = [struct.unpack(">B20sII", rows[at : at + 29]) for at in range(0, len(rows), 29)]
    begins = [0, *[row[3] for row in table]]
    for at, (type_, digest, content_end, _end) in zip(begins, table, strict=False):
        assert digest == digest_of(PERSONS[type_], nodes[at:content_end])
    assert made.node_count == len(table) == (0 if is_same else made.root_number + 1)
    root = (state_digest, 77, 7) if is_same else (table[-1][1], 0, len(table) - 1)
    assert begins[-1] == len(nodes)
    assert made.root_digest == root[0]

    body = cbor.encode([*line, parent_digest, *jump, *root, id_, metadata, sorted(update), []])
    assert made.record == (
        struct.pack(">BBHIQQ20sI", 1, 2, 0, len(body), lsn, time_us, chain, len(table)) + body + rows + nodes
    )
    assert made.digest == digest_of(b"stlg-checkpt-1", cbor.encode([parent_digest, root[0], time_us, id_, metadata]))
    contents = digest_of(b"stlg-part-1", digest_of(b"stlg-part-1", body) + joined(rows))
    chained = struct.pack(">BBHQQ20s", 1, 2, 0, lsn, time_us, chain) + contents
    assert made.chain == digest_of(b"stlg-chain-1", chained)
    if not entries:
        first = line[2]
    assert made.page == oracles.page_build(first, [*entries, (lsn, time_us)])


def joined(rows):
    """Type and digest of each row."""
    return b"".join(rows[at : at + 21] for at in range(0, len(rows), 29))


def run(changes, state_digest, line, jump, place, parent_digest, id_, metadata, chain, page):
    lsn, time_us = place
    return kernels.step(
        kernels.pack_fixed(*line, *jump, 77, 7, 0, time_us, lsn, parent_digest, state_digest, chain),
        kernels.pack_held(2, state_digest, 0, len(EMPTY), len(EMPTY)) + EMPTY,
        b"".join(
            kernels.pack_change(operation, 0, len(key), 0, len(payload)) + key + payload
            for operation, key, payload in changes
        ),
        b"",
        cbor.encode(id_),
        cbor.encode(metadata),
        cbor.encode(sorted(cbor.decode(change[1]) for change in changes)),
        cbor.encode([]),
        page,
    )


LINE, JUMP = (1, 0, 33, 0, 32), (0, 31, 33, 31)
PUT = (STEP_PUT, cbor.encode("a"), cbor.encode(1))


@pytest.mark.parametrize(
    ("changes", "metadata", "page"),
    [
        ([PUT], {}, b"no page"),
        ([PUT], {}, oracles.page_build(64, [(1, 1)])),
        ([PUT], {"large": "x" * 192 * 1024}, b""),
        ([(STEP_ADD, PUT[1], b"\x80")], {}, oracles.page_build(33, [(1, 1)])),
        ([PUT, PUT], {}, b""),
    ],
)
def test_inconsistent_arguments_make_no_step(changes, metadata, page):
    assert run([PUT], bytes(20), LINE, JUMP, (5, 6), bytes(20), None, {}, bytes(20), b"") is not None
    assert run(changes, bytes(20), LINE, JUMP, (5, 6), bytes(20), None, metadata, bytes(20), page) is None


def test_a_step_names_the_node_that_it_lacks():
    fixed = kernels.pack_fixed(*LINE, *JUMP, 77, 7, 0, 6, 5, bytes(20), b"s" * 20, bytes(20))
    key, item = PUT[1:]
    change = kernels.pack_change(STEP_PUT, 0, len(key), 0, len(item)) + key + item
    rest = (b"", b"\xf6", b"\xa0", b"\x81\x61a", b"\x80", b"")
    assert kernels.step(fixed, b"", change, *rest) == (2, b"s" * 20, 77, 7)
    held = kernels.pack_held(2, b"s" * 20, 0, len(EMPTY), len(EMPTY)) + EMPTY
    made = kernels.step(fixed, held, change, *rest)
    assert made.held == kernels.pack_held(2, made.root_digest, 5, 7, 7) + made.record[made.nodes_at :]
    for cut in range(1, len(held)):
        assert kernels.step(fixed, held[:cut], change, *rest) is None, cut
