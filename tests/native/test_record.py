from __future__ import annotations

import struct
import tracemalloc

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import outcome
from strategies import damaged, records

from statelog import kernels
from statelog.errors import CorruptionError

relaxed = settings(deadline=None)


@pytest.mark.slow
@relaxed
@given(records())
def test_nodes_agree_with_oracle(record):
    assert kernels.record_nodes(record) == oracles.record_nodes(record)


@pytest.mark.slow
@relaxed
@given(records().flatmap(damaged))
def test_nodes_agree_with_oracle_on_damage(record):
    assert outcome(kernels.record_nodes, record) == outcome(oracles.record_nodes, record)


@pytest.mark.slow
@relaxed
@given(records().flatmap(damaged), st.integers(0, 6))
def test_one_node_of_a_damaged_record_lies_inside_or_is_refused(record, number):
    """Only its own row is looked at: the caller compares the digest."""
    try:
        node_type, digest, at, content_size, total_size = kernels.record_node(record, number)
    except CorruptionError:
        return
    assert 0 <= at <= at + content_size <= at + total_size <= len(record)
    assert (node_type == 0) == (digest == b"") == (content_size == 0)


@pytest.mark.slow
@relaxed
@given(records())
def test_a_memoryview_reads_as_bytes_do(record):
    nodes = oracles.record_nodes(record)
    view = memoryview(record)
    assert [kernels.record_node(view, number) for number in range(len(nodes))] == nodes
    assert kernels.record_nodes(view) == nodes


def test_node_out_of_range_is_refused():
    record = bytes(56)
    assert kernels.record_nodes(record) == []
    with pytest.raises(CorruptionError):
        kernels.record_node(record, 0)


def row(node_type, content_end, end):
    return bytes([node_type]) + b"d" * 20 + struct.pack(">II", content_end, end)


def record_of(table, nodes, *, count):
    return bytes(52) + struct.pack(">I", count) + table + nodes


def short(table, nodes=b"", *, flags=2, body=b"\x80"):
    return bytes(11) + bytes([flags]) + bytes(28 if flags & 8 else 8) + body + table + nodes


def digest(node_type, content):
    return kernels.node_digest(node_type, content)


@pytest.mark.parametrize("flags", [2, 10])
def test_vacuumed_nodes_have_no_row(flags):
    record = short(b"\x04" + bytes([3, 2, 2, 3]), b"xyz", flags=flags)
    expected = [kernels.VACUUMED] * 3 + [(2, digest(2, b"xy"), len(record) - 3, 2, 3)]
    assert kernels.record_nodes(record) == expected
    assert kernels.record_rows(record) == {3: expected[3]}
    assert [kernels.record_node(record, number) for number in range(4)] == expected


def test_nodes_that_a_short_record_lacks_are_vacuumed():
    """It may have had a million nodes behind the last one that is left."""
    record = short(b"\x04" + bytes([3, 2, 2, 3]), b"xyz")
    assert kernels.record_node(record, 4) == kernels.record_node(record, 1 << 40) == kernels.VACUUMED


@pytest.mark.parametrize("flags", [2, 10])
def test_nodes_are_found_up_to_the_first_that_is_another(flags):
    record = short(b"\x08" + bytes([1, 2, 1, 1]) + bytes([3, 2, 3, 4]), b"wxyz", flags=flags)
    first, second = (1, digest(2, b"w"), (len(record) - 4, 1, 1)), (3, digest(2, b"xy"), (len(record) - 3, 2, 3))

    def find(*nodes, type_=2):
        numbers, digests, expected = zip(*nodes, strict=True)
        found = kernels.record_find(record, len(record), type_, digests, numbers)
        assert found == [*expected[: len(found)]]
        return len(found)

    assert find(first) == find(second) == 1
    assert find(second, first) == 2
    assert find(*[first, second] * 200) == 400
    assert find(second, type_=1) == find((4, *second[1:])) == find((3, digest(2, b"xz"), ())) == 0
    assert find(first, second, (2, *second[1:]), first) == 2


@relaxed
@given(records(), st.binary(max_size=20))
def test_the_parts_of_a_record_are_found_whatever_lies_behind_it(record, behind):
    parts = kernels.record_open(record + behind)
    assert parts == kernels.record_open(record)
    nodes = oracles.record_nodes(record)
    assert (parts.size, parts.node_count) == (len(record), len(nodes))
    assert parts.row_count == sum(node[0] != 0 for node in nodes)


def test_a_claim_of_many_vacuumed_nodes_costs_no_more_than_a_list_of_them():
    last = (1 << 22) - 1
    record = short(b"\x06" + last.to_bytes(3) + b"\x02" + bytes([0, 0, 2, 0, 0, 3]), b"xyz")
    tracemalloc.start()
    try:
        assert kernels.record_rows(record).keys() == {last}
        assert tracemalloc.get_traced_memory()[1] < 100_000
        assert len(kernels.record_nodes(record)) == 1 << 22
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "record",
    [
        record_of(row(0, 1, 1), b"x", count=1),
        record_of(row(5, 1, 1), b"x", count=1),
        record_of(row(1, 0, 1), b"x", count=1),
        record_of(row(1, 2, 1), b"x", count=1),
        record_of(row(1, 2, 2), b"x", count=1),
        record_of(row(1, 1, 1)[:-1], b"", count=1),
        short(b"\x04" + bytes([0, 0, 1, 1]), b"x"),
        short(b"\x04" + bytes([0, 1, 0, 1]), b"x"),
        short(b"\x04" + bytes([0, 1, 2, 2]), b"x"),
        short(b"\x04" + bytes([0, 1, 1, 1]), b"xy"),
        short(b"\x08" + bytes([1, 1, 1, 1, 1, 1, 2, 2]), b"xy"),
        short(b"\x08" + bytes([0, 1, 1, 1]), b""),
        short(b"\x05" + bytes([0, 0, 1, 0, 1, 0, 1]), b"x"),
        short(b"\x06" + (1 << 22).to_bytes(3) + bytes([1, 0, 0, 1, 0, 0, 1]), b"x"),
        short(b"\x01"),
        short(b"\x80\x00"),
        short(b""),
        short(b"", body=b""),
        short(b"\x00", body=b"\x81"),
        short(b"\x00", body=b"\xa0")[:20],
        short(b"\x00", flags=10)[:39],
    ],
    ids=[
        "type 0", "type 5", "no content", "ends before content", "cut off", "no table",
        "short: type 0", "short: no content", "short: cut off", "short: not filled", "short: number twice",
        "short: too many rows", "short: wider than need be", "short: number", "short: wide without rows",
        "short: long varint", "short: no table", "short: no body", "short: half a body", "short: no end",
        "short: no chain",
    ],
)  # fmt: skip
def test_table_that_cannot_be_is_refused(record):
    with pytest.raises(CorruptionError):
        kernels.record_nodes(record)
    with pytest.raises(oracles.Damaged):
        oracles.record_nodes(record)
