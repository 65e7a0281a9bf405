from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from terminals import on_terminal

import statelog
from statelog.cli.demo.sources import STEPS


@pytest.fixture(scope="module")
def told():
    """The output of one run of the demo, in a directory with a short name."""
    with tempfile.TemporaryDirectory(prefix="demo-") as directory:
        command = [sys.executable, "-m", "statelog", "demo", "--directory", directory]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        yield Path(directory), done


@pytest.mark.slow
def test_the_first_process_dies_in_step_14_and_the_second_continues_there(told):
    _directory, done = told
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("SIGKILL")
    assert [number for number in range(1, 30) if f"step {number:>2}  " in first] == [1, 13, 14]
    assert "resumes at step 14, not at step 1" in second
    assert [number for number in range(1, 30) if f"step {number:>2}  " in second] == [14, STEPS]
    processes = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  [")}
    assert len(processes) == 2


@pytest.mark.slow
def test_the_output_fits_a_small_terminal(told):
    _directory, done = told
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.slow
def test_every_act_is_shown(told):
    _directory, done = told
    acts = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and "[" not in line]
    assert acts == ["rollback", "fork", "diff", "verify", "size"]
    assert "sound: " in done.stdout
    assert "times as much" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


@pytest.mark.slow
def test_the_output_ends_with_three_lines_that_can_be_pasted_repeatedly(told):
    directory, done = told
    assert "\nYour turn. " in done.stdout
    lines = done.stdout.splitlines()[-3:]
    assert lines[0] == "import statelog"
    copy = shutil.copytree(directory, directory / "copy")
    pasted = "\n".join(lines).replace(str(directory), str(copy)) + "\n"
    python = [sys.executable, "-i", "-q", "-W", "error"]
    answer = subprocess.run(python, input=pasted * 2, capture_output=True, text=True, timeout=600, check=False)
    assert "Error" not in answer.stderr
    first, second = answer.stdout.splitlines()
    assert first == second
    assert "'kind': 'long function'" in first
    with statelog.open(copy / "demo.state") as store:
        assert store.thread("review").version == 24
    shutil.rmtree(copy)


@pytest.mark.slow
def test_the_file_of_the_demo_is_an_ordinary_store(told, run):
    directory, _done = told
    assert sorted(path.name for path in directory.iterdir()) == ["demo.state", "demo.state-lock"]
    assert run("verify", directory / "demo.state").code == 0
    with statelog.open(directory / "demo.state", read_only=True) as store:
        thread = store.thread("review")
        assert thread.at(7).state_digest == thread.at(21).state_digest
        assert thread.at(20).state_digest == thread.head.state_digest
        assert len(thread.at(20).state["messages"]) == STEPS + 1
        assert [branch.name for branch in thread.branches()] == ["main", "stricter"]


def test_an_existing_file_is_not_changed(told, run):
    directory, _done = told
    before = (directory / "demo.state").read_bytes()
    answer = run("demo", "--directory", directory)
    assert (answer.code, answer.out) == (4, "")
    assert "already exists: the demo needs a new file" in answer.err
    assert (directory / "demo.state").read_bytes() == before


def test_a_missing_directory_is_not_created(run, tmp_path):
    answer = run("demo", "--directory", tmp_path / "new")
    assert (answer.code, answer.out) == (2, "")
    assert "does not exist" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_can_be_reported_as_json(run, tmp_path):
    before = os.times()
    answer = run("demo", "--directory", tmp_path, "--json")
    worked_s = sum(os.times()[:4]) - sum(before[:4])
    assert (answer.code, answer.err) == (0, "")
    document = answer.document
    assert (document["killed_in_step"], document["resumed_at_step"]) == (14, 14)
    first, second = document["processes"]
    assert (first["exit"], second["exit"]) == (-9, 0)
    assert first["process"] != second["process"]
    assert [said["step"] for said in second["said"] if said["event"] == "step"] == list(range(14, STEPS + 1))
    assert len(document["history"]) == STEPS + 1
    assert document["rollback"]["record_size_bytes"] < 1000 < document["rollback"]["state_size_bytes"]
    assert {change["kind"] for change in document["diff"]["changes"]} >= {"added", "changed"}
    assert document["verify"] == {**document["verify"], "ok": True, "problems": []}
    assert document["snapshots"]["size_bytes"] > 2 * document["file_size_bytes"]
    assert 0 < worked_s < 15  # CPU time, because other tests may share the processor.
    assert document["duration_s"] > 0


@pytest.mark.soak
def test_the_output_on_a_terminal_is_coloured(tmp_path):
    told = on_terminal("demo", "--directory", tmp_path, TERM="xterm", COLUMNS="80")
    assert "\x1b[1" in told
    assert "resumes at step 14" in told
