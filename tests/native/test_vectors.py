from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog import kernels
from statelog.errors import UsageError

small = st.integers(-128, 127)
large = st.integers(-(2**15), 2**15 - 1)


def product(rows, vector):
    sums = array("i", [0] * len(rows))
    kernels.rows_dot(array("b", [number for row in rows for number in row]), array("h", vector), sums)
    return list(sums)


@given(
    st.integers(1, 150).flatmap(
        lambda dims: st.tuples(
            st.lists(st.lists(small, min_size=dims, max_size=dims), max_size=4),
            st.lists(large, min_size=dims, max_size=dims),
        )
    )
)
def test_products_agree_with_python(given_numbers):
    rows, vector = given_numbers
    assert product(rows, vector) == [sum(a * b for a, b in zip(row, vector, strict=True)) for row in rows]


def test_sums_wrap():
    assert product([[-128] * 1024], [-(2**15)] * 1024) == [0]


@pytest.mark.parametrize(("rows", "sums"), [(7, 2), (9, 2), (8, 3), (8, 1)])
def test_sizes_that_do_not_fit_are_refused(rows, sums):
    with pytest.raises(UsageError):
        kernels.rows_dot(array("b", bytes(rows)), array("h", [0] * 4), array("i", [0] * sums))
