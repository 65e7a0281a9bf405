import dataclasses
import io

import pytest
from rich.console import Console

from benchmarks import WORKLOADS, run
from benchmarks.board import table
from benchmarks.board.claims import _ClaimTimes
from benchmarks.board.worker import TaskTimes
from benchmarks.result import Result, exactly
from statelog.errors import UsageError


def turns(*tasks, began_ns=0):
    """One worker's turns: each waits 2 for its task, works 5, and completes it in 1."""
    return [TaskTimes(task, began_ns, began_ns + 2, began_ns + 7, began_ns + 8) for task in tasks]


def found(*workers, tasks, done, put_ns=0):
    result = _ClaimTimes()
    result.add(workers, put_ns, tasks, done)
    return result


def test_a_task_that_two_have_claimed_is_counted():
    result = found(turns("a", "b"), turns("b", "c"), tasks=3, done=3)
    assert (result.doubled, result.missing) == (1, 0)


@pytest.mark.parametrize("done", [2, 3])
def test_a_task_that_is_not_done_is_counted_whether_workers_or_the_file_lack_it(done):
    assert found(turns("a", "b"), turns(), tasks=3, done=done).missing == 1


def test_a_wait_is_that_for_the_task_and_for_its_completion_without_the_work_and_what_was_before_the_tasks():
    assert found(turns("a"), tasks=1, done=1).rounds[0].durations_ns == [3]
    assert found(turns("a"), tasks=1, done=1, put_ns=1).rounds[0].durations_ns == [2]


def test_the_share_told_is_that_of_the_worker_with_the_fewest_tasks():
    assert found(turns("a", "b", "c"), turns("d"), tasks=4, done=4).least_share == 0.5


def test_sqlite_gives_a_task_to_one_and_polls_where_there_is_none(tmp_path):
    with table.connected(tmp_path / "tasks") as one, table.connected(tmp_path / "tasks") as other:
        one.put_tasks([(1, "later"), (0, "first")])
        assert [one.claim("one", 60.0), other.claim("other", 60.0)] == [(2, "first"), (1, "later")]
        assert other.wait_for_claim("other", 60.0, 0.05) is None
        other.complete(2, "other", None)  # not its own
        assert one.count_done() == 0
        one.complete(2, "one", None)
        assert other.count_done() == 1


@pytest.mark.parametrize(("count", "code"), [(0, 0), (1, 1)])
def test_a_wrong_count_fails_the_command_and_is_shown(count, code, tmp_path, monkeypatch):
    def measure(_bench):
        return Result(checks=(exactly("claimed twice", count, 0, "tasks"),), sides=())

    monkeypatch.setitem(WORKLOADS, "board", dataclasses.replace(WORKLOADS["board"], measure=measure))
    console = Console(file=io.StringIO(), width=200)
    assert run(["board"], directory=tmp_path, console=console) == code
    assert f"claimed twice {count}.0 tasks, exactly 0.0 tasks" in console.file.getvalue()


def test_no_keys_are_refused(tmp_path):
    with pytest.raises(UsageError, match="keys"):
        run(["board"], directory=tmp_path, keys=0, console=Console(file=io.StringIO()))
