import pytest

from benchmarks.measure import Samples
from benchmarks.processes import _checks, _ProcessCase, _ProcessTimes


def found(*rounds):
    result = _ProcessTimes()
    for processes in rounds:
        result.add([Samples(list(durations), elapsed_ns=1000) for durations in processes])
    return result


def test_the_share_told_is_that_of_the_process_with_the_fewest_commits_of_any_round():
    assert found([[1] * 10, [1] * 10]).least_share == 1.0
    assert found([[1] * 10, [1] * 10], [[1] * 15, [1] * 5]).least_share == pytest.approx(0.5)


def test_the_longest_wait_is_that_of_all_processes_and_rounds():
    assert found([[5, 1], [2]], [[3], [40]]).percentile_ns(100) == 40


def test_processes_at_once_make_one_rate():
    assert found([[100] * 10, [100] * 10]).rounds[0].per_second == pytest.approx(20e6)


@pytest.mark.parametrize(
    ("case", "targets"),
    [
        (_ProcessCase(1, "commit", 0.0), 0),
        (_ProcessCase(2, "commit", 0.0), 3),
        (_ProcessCase(8, "commit", 0.0), 4),
        (_ProcessCase(2, "commit", 0.01), 0),
        (_ProcessCase(4, "commit", 0.01), 2),
        (_ProcessCase(1, "interval", 0.0), 1),
        (_ProcessCase(8, "interval", 0.01), 0),
    ],
    ids=str,
)
def test_each_case_with_a_target_is_checked(case, targets):
    assert len(list(_checks(case, 1.0, found([[1]]), found([[1]])))) == targets
