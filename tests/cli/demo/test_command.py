from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

import statelog
from statelog.cli.demo.sources import STEPS


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """One run of the demo, told to a person."""
    directory = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "statelog", "demo", "--directory", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return directory, done


def test_the_first_process_dies_in_step_14_and_the_second_carries_on_there(told):
    _directory, done = told
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("2. Another process")
    assert [number for number in range(1, 30) if f"step {number:>2}  " in first] == list(range(1, 15))
    assert "killed: SIGKILL" in first
    assert "version 14" not in first
    assert "resumes at step 14, not at step 1" in second.split("3. Its history")[0]
    resumed = second.split("3. Its history")[0]
    assert [number for number in range(1, 30) if f"step {number:>2}  " in resumed] == list(range(14, STEPS + 1))


def test_every_act_is_told(told):
    _directory, done = told
    for words in ("Rollback to step 7", "Fork at step 7", "What differs", "sound:", "What it cost", "times as much"):
        assert words in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


def test_the_file_it_leaves_is_an_ordinary_store(told, run):
    directory, _done = told
    assert sorted(path.name for path in directory.iterdir()) == ["demo.state", "demo.state-lock"]
    assert run("verify", directory / "demo.state").code == 0
    with statelog.open(directory / "demo.state", read_only=True) as store:
        thread = store.thread("library-review")
        assert thread.at(7).state_digest == thread.at(21).state_digest
        assert thread.at(20).state_digest == thread.head.state_digest
        assert len(thread.at(20).state["messages"]) == STEPS + 1
        assert [branch.name for branch in thread.branches()] == ["main", "stricter"]


def test_a_file_that_is_there_is_not_touched(told, run):
    directory, _done = told
    before = (directory / "demo.state").read_bytes()
    answer = run("demo", "--directory", directory)
    assert (answer.code, answer.out) == (4, "")
    assert "exists already" in answer.err
    assert (directory / "demo.state").read_bytes() == before


def test_the_demo_as_json(run, tmp_path):
    before = os.times()
    answer = run("demo", "--directory", tmp_path / "new", "--json")
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
    assert 0 < worked_s < 15  # on the processor, which other tests may be sharing
    assert document["duration_s"] > 0


def test_on_a_terminal_it_is_told_in_colour(tmp_path):
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "statelog", "demo", "--directory", str(tmp_path)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, stdout=writer, stderr=writer, stdin=subprocess.DEVNULL, env=environment)
    os.close(writer)
    told = b""
    while chunk := _read(reader):
        told += chunk
    os.close(reader)
    assert process.wait(timeout=30) == 0
    assert b"\x1b[1" in told
    assert b"resumes at step 14" in told


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other side has closed
        return b""
