"""Rows on disk are read as they were written, from the buffer or from the disk."""

import random

import pytest

from statelog.portable import tables
from statelog.portable.tables import Table


@pytest.fixture(params=[1, 40, 65_536], ids=lambda size: f"buffer of {size}")
def table(request, monkeypatch):
    monkeypatch.setattr(tables, "_BUFFER_SIZE_BYTES", request.param)
    with Table(4) as opened:
        yield opened


def test_rows_are_numbered_from_zero_and_read_back(table):
    rows = [number.to_bytes(4) for number in range(100)]
    assert [table.append(row) for row in rows] == list(range(100))
    assert [table.get(number) for number in range(100)] == rows
    assert len(table) == 100


def test_unwritten_rows_are_zeros_and_take_no_space(table):
    first = table.extend(1 << 40)
    assert table.get(first) == table.get((1 << 40) - 1) == bytes(4)
    table.put(12_345, b"here")
    assert table.get(12_345) == b"here"
    assert table.get(12_346) == bytes(4)


def test_rows_written_in_random_order_have_their_last_values(table):
    rng = random.Random(1)
    model = []
    for step in range(2000):
        if rng.random() < 0.3 or not model:
            model.append(step.to_bytes(4))
            table.append(step.to_bytes(4))
        elif rng.random() < 0.1:
            model += [bytes(4)] * 3
            table.extend(3)
        else:
            number = rng.randrange(len(model))
            model[number] = step.to_bytes(4)
            table.put(number, step.to_bytes(4))
    assert [table.get(number) for number in range(len(model))] == model
