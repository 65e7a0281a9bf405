"""The nearest vectors are those of an exact scan, although most rows are only read as small copies."""

from __future__ import annotations

from itertools import islice

import pytest

np = pytest.importorskip("numpy")

from statelog.memory import vectors  # noqa: E402
from statelog.memory.vectors import Matrix, best_first, of_length_1  # noqa: E402

COUNT = 400


@pytest.fixture(autouse=True)
def _copies_of_small_matrices(monkeypatch):
    monkeypatch.setattr(vectors, "_COARSE_MIN", 100)
    monkeypatch.setattr("statelog.memory.coarse._ROWS_CODED", 64)


def matrix_of(rows, *, numbers=None):
    matrix = Matrix(np, rows.shape[1], str)
    for at, row in enumerate(rows):
        matrix.put(f"k{at}", 0 if numbers is None else numbers[at], {"id": row.astype("<f4").tobytes()})
    return matrix


def exact(matrix, query):
    scores, numbers, owners = matrix.score(query)
    return [owners[row] for row in best_first(np, scores, numbers)]


def random_rows(draw, count, dims):
    return draw.standard_normal((count, dims), dtype="f4")


def clustered_rows(draw, count, dims):
    """Rows around a few centres, as embeddings of similar texts are."""
    return random_rows(draw, 5, dims)[draw.integers(5, size=count)] + 0.05 * random_rows(draw, count, dims)


def equal_rows(draw, count, dims):
    return random_rows(draw, 7, dims)[draw.integers(7, size=count)]


def sparse_rows(draw, count, dims):
    """Rows with one large number, of which the small ones lose most digits; and rows of zeros."""
    rows = 1e-4 * random_rows(draw, count, dims)
    rows[np.arange(count), draw.integers(dims, size=count)] = 1
    rows[::50] = 0
    return rows


@pytest.mark.parametrize("make", [random_rows, clustered_rows, equal_rows, sparse_rows])
@pytest.mark.parametrize("dims", [1, 3, 65, 384])
def test_nearest_rows_are_those_of_an_exact_scan(make, dims):
    draw = np.random.default_rng(dims)
    rows = make(draw, COUNT, dims)
    matrix = matrix_of(rows, numbers=draw.integers(3, size=COUNT))
    for query in (*random_rows(draw, 8, dims), rows[3], np.zeros(dims, dtype="f4")):
        unit = of_length_1(np, query)
        for first in (1, 20, 64):
            assert list(matrix.nearest(unit, first)) == exact(matrix, unit)


def test_dead_and_added_rows_are_taken_into_account():
    draw = np.random.default_rng(5)
    rows = random_rows(draw, COUNT, 32)
    matrix = matrix_of(rows)
    unit = of_length_1(np, rows[7])
    assert next(matrix.nearest(unit, 20)) == ("k7", "id")
    matrix.put("k7", 0, {})
    matrix.put("k9", 0, {"new": rows[7].tobytes()})
    for at in range(0, COUNT, 3):
        matrix.put(f"k{at}", 0, {"again": random_rows(draw, 1, 32)[0].tobytes()})
    assert list(islice(matrix.nearest(unit, 20), 2)) == exact(matrix, unit)[:2]
    assert ("k7", "id") not in list(matrix.nearest(unit, 20))
    assert list(matrix.nearest(unit, 20)) == exact(matrix, unit)


def test_few_rows_are_compared_exactly(monkeypatch):
    draw = np.random.default_rng(6)
    matrix = matrix_of(random_rows(draw, 4000, 384))
    compared = []
    einsum = np.einsum
    monkeypatch.setattr(np, "einsum", lambda *args: compared.append(len(args[1])) or einsum(*args))
    unit = of_length_1(np, random_rows(draw, 1, 384)[0])
    assert len(list(islice(matrix.nearest(unit, 40), 40))) == 40
    assert len(compared) == 1
    assert compared[0] < 400


def test_a_row_that_dies_later_is_left_out_of_the_rest():
    draw = np.random.default_rng(7)
    rows = random_rows(draw, COUNT, 8)
    matrix = matrix_of(rows)
    unit = of_length_1(np, rows[0])
    order = exact(matrix, unit)
    found = matrix.nearest(unit, 5)
    head = list(islice(found, 5))
    matrix.put(order[9][0], 0, {})
    assert head + list(found) == [each for each in order if each != order[9]]
