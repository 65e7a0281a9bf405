"""Negative controls: boards that break a guarantee are detected, with the log and without it."""

import pytest
from blind import check_blind
from witness import check_witness, read_records
from workers import Run

WRONG = [
    ("claims by reading and writing", "claims", 600, "won, and was not free", "directory"),
    ("versions begin anew", "entries", 400, "came back, not", "register"),
    ("deletes are dropped", "entries", 800, "acknowledged, and no record says so", "register"),
    ("fences are checked before", "leases", 600, "written with a fence that had ended", "guard"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("board", "what", "count", "witnessed", "object_name"), WRONG, ids=[each[0] for each in WRONG])
def test_a_wrong_board_is_detected(tmp_path, board, what, count, witnessed, object_name):
    run = Run(tmp_path, seed=4, count=count, what=what, board=board)
    assert any(witnessed in problem for problem in check_witness(read_records(run.path), run.calls))
    assert any(problem.startswith(object_name) for problem in check_blind(run.calls))
