"""Forked child processes are as separate as started ones."""

import os
import signal
import subprocess

import pytest

from statelog.storage import faults
from statelog.testing import SCHEMA, Child, Commit, crash, nursery

HISTORY = tuple(Commit("a", ({"total": number},)) for number in range(3))


def born(history=HISTORY, path="agent.state", environment=None):
    job = crash.job_of(crash._do_history, (os.fspath(path), history, SCHEMA, "commit", False, None))
    return nursery.Born(job, dict(os.environ) if environment is None else environment)


@pytest.mark.slow
def test_a_child_has_the_directory_and_the_variables_of_its_time(tmp_path, monkeypatch):
    for name, fault, ending in [
        ("one", "journal.before_append:2:kill", (b".", -signal.SIGKILL)),
        ("two", "", (b"...", 0)),
    ]:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        child = born(environment={**os.environ, faults.ENVIRONMENT_VARIABLE: fault})
        said, words = child.communicate(60)
        assert (said, words, child.returncode) == (ending[0], b"", ending[1])
        assert (tmp_path / name / "agent.state").exists()
        child.close()


@pytest.mark.slow
def test_children_run_concurrently_and_die_independently(tmp_path):
    histories = [tuple(Commit("a", ({"total": 1},)) for _ in range(10_000)), HISTORY]
    with Child(tmp_path / "one", histories[0]) as first, Child(tmp_path / "two", histories[1]) as second:
        first.await_acknowledged(2)
        first.kill()
        assert first.wait() is True
        assert (second.wait(), second.acknowledged) == (False, 3)


@pytest.mark.slow
def test_the_output_of_a_failing_child_is_shown(tmp_path):
    with Child(tmp_path, HISTORY) as child, pytest.raises(RuntimeError, match=r"ended with 1: (?s:.*)FormatError"):
        child.wait()


@pytest.mark.slow
def test_a_child_that_takes_too_long_is_ended_with_the_block(tmp_path):
    child = born(tuple(Commit("a", ({"total": 1},)) for _ in range(100_000)), tmp_path / "agent.state")
    with pytest.raises(subprocess.TimeoutExpired):
        child.communicate(0.5)
    child.close()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_dead_forking_process_is_replaced(tmp_path):
    with Child(tmp_path / "one", HISTORY) as child:
        assert child.wait() is False
    os.kill(nursery._nursery()._pid, signal.SIGKILL)
    os.waitid(os.P_PID, nursery._nursery()._pid, os.WEXITED | os.WNOWAIT)
    with Child(tmp_path / "two", HISTORY) as child:
        assert child.wait() is False
