"""Salvage of a store that was not closed: the new store also has the content of its journal."""

import os
import signal
import sys

import forks
import pytest

import statelog
from statelog.errors import StatelogError
from statelog.portable.salvage import salvage
from statelog.storage.file.sidecar_files import journal_path

COMMIT_AND_DIE = """
import os, signal, sys, statelog
store = statelog.open(sys.argv[1])
thread = store.thread("t", schema={"log": statelog.reducers.add})
for number in range(int(sys.argv[2])):
    thread.commit({"log": [f"{number} " * 30]})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(tmp_path):
    """A store with 40 commits whose process was killed, and whose data file then lost its first two pages."""
    path = tmp_path / "agent.state"
    with statelog.open(path) as store:
        store.thread("other").commit({"n": 1})
    command = [sys.executable, "-c", COMMIT_AND_DIE, str(path), "40"]
    assert forks.run(command, check=False).returncode == -signal.SIGKILL
    return path


def log_of(path):
    with statelog.open(path) as store:
        assert store.verify().ok
        return list(store.thread("t").state.get("log", []))


def test_commits_since_the_last_flush_are_salvaged(killed, tmp_path):
    report = salvage(killed, tmp_path / "new.state")
    assert report.lost == []
    assert len(log_of(tmp_path / "new.state")) == 40


def test_lost_meta_pages_are_restored_from_the_journal(killed, tmp_path):
    descriptor = os.open(killed, os.O_RDWR)
    os.pwrite(descriptor, b"\xff" * 500, 0)
    os.pwrite(descriptor, b"\xff" * 500, 4096)
    os.close(descriptor)
    salvage(killed, tmp_path / "new.state")
    assert len(log_of(tmp_path / "new.state")) == 40


@pytest.mark.slow
def test_without_the_journal_fewer_commits_are_left(killed, tmp_path):
    """Negative control: after a power cut, only the journal has these commits."""
    from statelog.storage.file.preopen_checks import restore_meta
    from statelog.storage.wal.wal_format import read_slots

    with journal_path(killed).open("rb") as journal:
        slot = read_slots(journal.fileno())[0]
    descriptor = os.open(killed, os.O_RDWR)
    restore_meta(descriptor, slot.meta)
    os.close(descriptor)
    salvage(killed, tmp_path / "with.state")
    journal_path(killed).unlink()
    salvage(killed, tmp_path / "without.state")
    assert len(log_of(tmp_path / "with.state")) == 40
    assert len(log_of(tmp_path / "without.state")) < 40


@pytest.mark.parametrize("at", [0, 50, 4096, 8192, 8192 + 500, 20_000])
def test_a_damaged_journal_is_read_up_to_the_damage(killed, tmp_path, at):
    descriptor = os.open(journal_path(killed), os.O_RDWR)
    os.pwrite(descriptor, b"\xff" * 40, at)
    os.close(descriptor)
    try:
        salvage(killed, tmp_path / "new.state")
    except StatelogError:
        pytest.fail("nothing was salvaged")
    with statelog.open(tmp_path / "new.state") as store:
        assert store.verify().ok
        assert store.thread("other").state == {"n": 1}
