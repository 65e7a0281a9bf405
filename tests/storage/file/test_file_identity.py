"""A data file that is removed or replaced while it is in use: calls are refused, and it is never written."""

import errno
import os
import shutil
import subprocess
import sys
import time

import forks
import pytest

import statelog
from statelog.errors import StoreReplacedError
from statelog.storage.file.file_identity import LOOK_S, FileIdentity
from statelog.storage.file.sidecar_files import journal_path

OPEN = """
import statelog, sys
try:
    with statelog.open(sys.argv[1]) as store:
        print(store.thread("t").state["n"], store.verify().ok)
except statelog.StatelogError as error:
    print(type(error).__name__, str(error))
"""
HOLD = """
import statelog, sys
store = statelog.open(sys.argv[1], read_only=True)
thread = store.thread("t")
print(thread.state["n"], flush=True)
for _ in sys.stdin:
    try:
        print(thread.state["n"], flush=True)
    except statelog.StatelogError as error:
        print(type(error).__name__, flush=True)
"""


def remove(path):
    path.unlink()


def move(path):
    path.rename(path.with_name("elsewhere"))


def replace(path):
    backup_path(path).rename(path)


def backup_path(path):
    return path.with_name("backup")


@pytest.fixture
def backed_up(path):
    """A store that ends with n = 19, and its backup that ends with n = 9."""
    with statelog.open(path) as store:
        for number in range(10):
            store.thread("t").commit({"n": number})
    shutil.copy(path, backup_path(path))
    with statelog.open(path) as store:
        for number in range(10, 20):
            store.thread("t").commit({"n": number})
    return path


@pytest.fixture(params=[remove, move, replace])
def take_away(request):
    return request.param


def open_elsewhere(path):
    done = forks.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.strip()


def pass_look():
    time.sleep(2 * LOOK_S)


@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_commit_to_a_removed_file_is_refused(open_store_file, append, path, take_away, backed_up, durability):
    store_file = open_store_file(backed_up, durability=durability)
    store_file.committer.submit(append)
    take_away(path)
    for _ in range(2):
        with pytest.raises(StoreReplacedError) as caught:
            store_file.committer.submit(append)
        assert caught.value.path == str(path)
        assert "put a backup back" in caught.value.message


def test_first_commit_after_a_replacement_does_not_change_the_journal_of_others(open_store_file, append, backed_up):
    store_file = open_store_file(backed_up)
    replace(backed_up)
    journal_path(backed_up).write_bytes(b"of whoever has the new file open")
    with pytest.raises(StoreReplacedError):
        store_file.committer.submit(append)
    store_file.close()
    assert journal_path(backed_up).read_bytes() == b"of whoever has the new file open"


def test_unjournaled_commit_to_a_removed_file_is_refused(open_store_file, append, path, take_away, backed_up):
    store_file = open_store_file(backed_up)
    store_file.committer.submit(append)
    take_away(path)
    with pytest.raises(StoreReplacedError):
        store_file.committer.submit(lambda transaction: transaction.write_header_again())


def test_flush_of_a_removed_file_is_refused(open_store_file, append, path, take_away, backed_up):
    store_file = open_store_file(backed_up, durability="interval")
    store_file.committer.submit(append)
    take_away(path)
    with pytest.raises(StoreReplacedError):
        store_file.flush_journal()


def test_read_of_a_removed_file_is_refused(path, take_away, backed_up):
    with statelog.open(backed_up) as store:
        thread = store.thread("t")
        assert thread.state["n"] == 19
        take_away(path)
        pass_look()
        with pytest.raises(StoreReplacedError):
            _ = thread.state


def test_reader_in_another_process_is_refused(backed_up):
    with forks.Popen(
        [sys.executable, "-c", HOLD, str(backed_up)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "19\n"
        replace(backed_up)
        pass_look()
        child.stdin.write("again\n")
        child.stdin.close()
        assert child.stdout.read() == "StoreReplacedError\n"
        child.wait(300)


def test_wait_for_a_commit_to_a_removed_file_is_refused(open_store_file, path, take_away, backed_up):
    store_file = open_store_file(backed_up)
    take_away(path)
    pass_look()
    with pytest.raises(StoreReplacedError):
        store_file.wake.wait(store_file.flushed_lsn(), 60)


@pytest.mark.slow
@pytest.mark.parametrize("is_idle", [False, True])
def test_backup_is_refused_until_the_process_with_the_former_file_closes_it(backed_up, is_idle):
    """LMDB's lock file is shared by name: it would lead the next process to a commit that the backup does not have."""
    with statelog.open(backed_up) as store:
        store.thread("t").commit({"n": 20})
        if is_idle:
            time.sleep(1.2)
        replace(backed_up)
        said = open_elsewhere(backed_up)
        assert said.startswith("StoreReplacedError")
        assert "another process still has open" in said
    assert open_elsewhere(backed_up) == "9 True"


def test_backup_can_be_opened_in_the_process_that_has_the_former_file_open(backed_up):
    former = statelog.open(backed_up)
    former.thread("t").commit({"n": 20})
    replace(backed_up)
    with statelog.open(backed_up) as store:
        assert store.thread("t").state["n"] == 9
        with pytest.raises(StoreReplacedError):
            former.thread("t").commit({"n": 21})
        former.close()
        store.thread("t").commit({"n": 10})
    assert open_elsewhere(backed_up) == "10 True"


@pytest.mark.slow
def test_backup_that_replaces_a_killed_store_can_be_opened(backed_up):
    code = "import os, statelog, sys; statelog.open(sys.argv[1]).thread('t').commit({'n': 20}); os.kill(os.getpid(), 9)"
    forks.run([sys.executable, "-c", code, str(backed_up)], timeout=600, check=False)
    assert journal_path(backed_up).exists()
    replace(backed_up)
    assert open_elsewhere(backed_up) == "9 True"


def test_closing_writes_all_commits_into_a_moved_file(backed_up):
    with statelog.open(backed_up) as store:
        store.thread("t").commit({"n": 20})
        move(backed_up)
    assert not journal_path(backed_up).exists()
    assert open_elsewhere(backed_up.with_name("elsewhere")) == "20 True"


def test_store_in_a_renamed_directory_continues(tmp_path):
    directory = tmp_path / "before"
    directory.mkdir()
    with statelog.open(directory / "agent.state") as store:
        store.thread("t").commit({"n": 1})
        directory.rename(tmp_path / "after")
        store.thread("t").commit({"n": 2})
        pass_look()
        assert store.thread("t").state["n"] == 2


def test_verify_ends_if_lmdb_reads_a_commit_that_no_meta_page_names(backed_up, monkeypatch):
    with statelog.open(backed_up) as store:
        monkeypatch.setattr("statelog.log.care.verify.check_pages", lambda _environment, _transaction: None)
        report = store.verify()
    assert [problem.invariant for problem in report.problems] == ["E1"]


def test_a_lost_file_identity_stays_lost(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        place = FileIdentity(descriptor, path)
        assert place.is_kept()
        move(path)
        assert not place.is_kept()
        path.with_name("elsewhere").rename(path)
        assert not place.is_kept()
    finally:
        os.close(descriptor)


def test_a_file_identity_that_cannot_be_checked_counts_as_kept(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"")
    descriptor = os.open(path, os.O_RDONLY)

    def refuse(_path):
        raise PermissionError(errno.EACCES, "no permission")

    try:
        place = FileIdentity(descriptor, path)
        monkeypatch.setattr(os, "stat", refuse)
        is_kept = place.is_kept()
        monkeypatch.undo()
        assert is_kept
    finally:
        os.close(descriptor)
