"""`statelog recover` for stores that were not closed: with the journal, without it, and with a damaged one."""

import signal
import sys

import forks
import pytest

import statelog
from statelog.errors import JournalMissingError
from statelog.portable.salvage import salvage
from statelog.storage.file.preopen_checks import restore_meta
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal.wal_format import RECORDS_AT, read_slots

COMMIT_AND_DIE = """
import os, signal, sys, statelog
thread = statelog.open(sys.argv[1]).thread("t")
for number in range(40):
    thread.commit({"n": number, "text": f"{number} " * 20})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(path):
    command = [sys.executable, "-c", COMMIT_AND_DIE, str(path)]
    assert forks.run(command, check=False).returncode == -signal.SIGKILL
    return path


def last_number(path):
    with statelog.open(path) as store:
        return store.thread("t").state["n"]


def damage_first_group(path):
    with journal_path(path).open("r+b") as file:
        file.seek(RECORDS_AT + 60)
        byte = file.read(1)[0]
        file.seek(RECORDS_AT + 60)
        file.write(bytes((byte ^ 1,)))


@pytest.mark.slow
def test_recover_reports_the_recovered_records(run, killed):
    answer = run("recover", killed)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("recovered: ")
    assert "sound: " in answer.out
    assert run("recover", killed).out.startswith("nothing to recover")
    assert last_number(killed) == 39


@pytest.mark.slow
def test_without_a_journal_recovery_needs_the_option(run, killed):
    journal_path(killed).unlink()
    answer = run("recover", killed)
    assert (answer.code, answer.out) == (JournalMissingError.exit_code, "")
    assert "--without-journal" in answer.err
    document = run("recover", killed, "--without-journal", "--json").document
    assert document["went_without_journal"]
    assert (document["journal_aside"], document["dropped"], document["ok"]) == (None, 0, True)
    assert last_number(killed) <= 39


@pytest.mark.slow
def test_a_damaged_journal_is_kept_under_another_name(run, killed):
    damage_first_group(killed)
    journal = journal_path(killed).read_bytes()
    answer = run("recover", killed)
    assert answer.code == statelog.CorruptionError.exit_code
    assert answer.err.index("salvage") < answer.err.index("--without-journal")
    aside = killed.with_name("agent.state-journal-aside")
    answer = run("recover", killed, "--without-journal")
    assert answer.code == 0
    assert f"the journal was moved to {aside}: it has " in " ".join(answer.out.split())
    assert aside.read_bytes() == journal
    assert not journal_path(killed).exists()


def test_records_dropped_with_a_journal_are_counted(killed, tmp_path):
    """A power cut leaves the data file at its durable snapshot, and only the journal has later commits."""
    with killed.open("r+b") as data, journal_path(killed).open("rb") as journal:
        restore_meta(data.fileno(), read_slots(journal.fileno())[0].meta)
    damage_first_group(killed)
    salvage(killed, tmp_path / "new.state")
    report = statelog.recover(killed, without_journal=True)
    assert report.journal_aside == str(killed.with_name("agent.state-journal-aside"))
    saved = statelog.recover(tmp_path / "new.state").last_lsn
    assert saved - report.last_lsn - 1 <= report.dropped <= saved - report.last_lsn
    assert report.dropped > 0


def test_a_journal_set_aside_before_is_not_overwritten(killed):
    first = killed.with_name("agent.state-journal-aside")
    first.write_text("kept from the last time")
    report = statelog.recover(killed, without_journal=True)
    assert report.journal_aside == f"{first}1"
    assert first.read_text() == "kept from the last time"


def test_a_closed_store_keeps_everything(killed):
    statelog.open(killed).close()
    report = statelog.recover(killed, without_journal=True)
    assert not report.went_without_journal
    assert not list(killed.parent.glob("*-aside*"))
    assert last_number(killed) == 39
