from __future__ import annotations

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
@given(records().flatmap(damaged), st.integers(0, 6))
def test_nodes_agree_with_oracle_on_damage(record, number):
    assert outcome(kernels.record_nodes, record) == outcome(oracles.record_nodes, record)
    assert outcome(kernels.record_node, record, number) == outcome(oracles.record_node, record, number)


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


def test_vacuumed_nodes_are_a_run_without_bytes():
    record = bytes(52) + b"\0\0\0\4" + b"\0\3" + b"\2" + b"b" * 20 + b"\2\1" + b"xyz"
    assert kernels.record_nodes(record) == [kernels.VACUUMED] * 3 + [(2, b"b" * 20, 81, 2, 3)]
    assert kernels.record_node(record, 2) == kernels.VACUUMED


@pytest.mark.parametrize("table", [b"\0\0", b"\0\5"], ids=["empty run", "run beyond the count"])
def test_run_that_cannot_be_is_refused(table):
    with pytest.raises(CorruptionError):
        kernels.record_nodes(bytes(52) + b"\0\0\0\4" + table)


@pytest.mark.parametrize(
    "table",
    [
        b"\1" + b"d" * 20 + b"\0\0",
        b"\5" + b"d" * 20 + b"\0\0",
        b"\1" + b"d" * 20 + b"\0\1x",
        b"\1" + b"d" * 20 + b"\1\0",
    ],
    ids=["no content", "type 5", "locators without content", "node cut off"],
)
def test_table_entry_is_refused(table):
    with pytest.raises(CorruptionError):
        kernels.record_nodes(bytes(52) + b"\0\0\0\1" + table)


def test_count_beyond_the_record_is_refused():
    with pytest.raises(CorruptionError):
        kernels.record_nodes(bytes(52) + b"\xff\xff\xff\xff" + bytes(100))


def test_byte_behind_the_nodes_is_refused():
    with pytest.raises(CorruptionError):
        kernels.record_nodes(bytes(57))


@relaxed
@given(records().flatmap(damaged), st.lists(st.integers(0, 8), max_size=6).map(sorted))
def test_selected_nodes_agree_with_oracle(record, numbers):
    def select(record, numbers):
        nodes = oracles.record_nodes(record)
        oracles.require(all(number < len(nodes) for number in numbers))
        return [nodes[number] for number in numbers]

    assert outcome(kernels.record_select, record, numbers) == outcome(select, record, numbers)
