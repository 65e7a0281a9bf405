"""The examples of the board: they run, assert what they promise, and can be run again on the same file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import statelog


@pytest.fixture
def run(path):
    """Run an example on a store; return what it has printed."""

    def run_one(name):
        command = [sys.executable, "-W", "error", "-m", f"statelog.examples.{name}", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=os.environ)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout.splitlines()

    return run_one


@pytest.mark.slow
def test_another_agent_finishes_the_work_of_a_killed_one_once(run, path):
    for _turn in range(2):
        lines = run("board_research")
        assert "bob is killed" in lines
        assert lines[-1] == "6 questions, 6 findings in the summary"
        assert any("was begun by bob, and finished by " in line for line in lines)
    with statelog.open(path, read_only=True) as store:
        assert len(store.board().list("findings/*")) == 6
        assert store.verify().problems == []


@pytest.mark.slow
def test_two_processes_that_read_5_and_add_1_make_7(run, path):
    for _turn in range(2):
        lines = run("board_counter")
        assert sorted(lines[:2]) == ["ann reads 5 and 5", "bob reads 5 and 5"]
        assert lines[2] == "with set: 6, with update: 7"
    with statelog.open(path, read_only=True) as store:
        assert store.board().get("counts/update").value == 7


@pytest.mark.slow
def test_an_example_without_a_file_makes_one_of_its_own(tmp_path):
    command = [sys.executable, "-m", "statelog.examples.board_counter"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
