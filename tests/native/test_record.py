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


@relaxed
@given(records())
def test_nodes_agree_with_oracle(record):
    assert kernels.record_nodes(record) == oracles.record_nodes(record)


@relaxed
@given(records().flatmap(damaged))
def test_nodes_agree_with_oracle_on_damage(record):
    assert outcome(kernels.record_nodes, record) == outcome(oracles.record_nodes, record)


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


def record_of(table, nodes, *, count, flags=0):
    return bytes(11) + bytes([flags]) + bytes(40) + struct.pack(">I", count) + table + nodes


def test_vacuumed_nodes_have_no_row():
    table = struct.pack(">II", 1, 3) + row(2, 2, 3)
    record = record_of(table, b"xyz", count=5, flags=2)
    expected = [kernels.VACUUMED] * 3 + [(2, b"d" * 20, 56 + len(table), 2, 3), kernels.VACUUMED]
    assert kernels.record_nodes(record) == expected
    assert [kernels.record_node(record, number) for number in range(5)] == expected


def test_a_claim_of_many_vacuumed_nodes_costs_no_more_than_a_list_of_them():
    record = record_of(struct.pack(">II", 1, 3) + row(2, 2, 3), b"xyz", count=1 << 22, flags=2)
    tracemalloc.start()
    try:
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
        record_of(struct.pack(">II", 1, 1) + row(1, 1, 1), b"x", count=1, flags=2),
        record_of(struct.pack(">II", 2, 0) + row(1, 1, 1), b"x", count=1, flags=2),
    ],
    ids=["type 0", "type 5", "no content", "ends before content", "cut off", "no table", "number", "too many rows"],
)
def test_table_that_cannot_be_is_refused(record):
    with pytest.raises(CorruptionError):
        kernels.record_nodes(record)
