"""Without locks of the open file description (OFD locks), only one process at a time has a store open."""

import pytest

from statelog.storage.file import locks

WITHOUT = """
import statelog.storage.file.locks as locks
locks._SET_LOCK = locks._GET_LOCK = -1
def read_all():
    for entry in Path(sys.argv[1]).parent.iterdir():
        entry.read_bytes()
"""
"""What `fcntl` has in place of its constants there."""


@pytest.fixture
def _without(monkeypatch):
    monkeypatch.setattr(locks, "_SET_LOCK", -1)
    monkeypatch.setattr(locks, "_GET_LOCK", -1)


@pytest.mark.slow
@pytest.mark.usefixtures("_without")
def test_a_second_process_is_refused(open_store_file, run_child, append, check_whole, path):
    store_file = open_store_file()
    store_file.committer.submit(append)
    for entry in path.parent.iterdir():
        entry.read_bytes()
    script = (
        WITHOUT
        + """
for read_only in (False, True):
    try:
        StoreFile.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=0.1, read_only=read_only)
    except StoreLockedError as error:
        say("refused", error.path == sys.argv[1])
"""
    )
    assert run_child(script) == (0, ["refused True", "refused True"])
    assert store_file.committer.submit(append) == 2
    store_file.close()
    reopened = WITHOUT + "say(StoreFile.open(sys.argv[1], max_size_bytes=2**26).committer.submit(append))"
    assert run_child(reopened) == (0, ["3"])
    assert check_whole(open_store_file()) == 3


@pytest.mark.usefixtures("_without")
def test_several_processes_can_read_concurrently(open_store_file, run_child, append):
    store_file = open_store_file()
    store_file.committer.submit(append)
    store_file.close()
    open_store_file(read_only=True)
    script = (
        WITHOUT
        + """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, read_only=True)
say(store_file.last_transaction_id())
store_file.close()
try:
    StoreFile.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=0.1)
except StoreLockedError:
    say("refused")
"""
    )
    status, lines = run_child(script)
    assert (status, lines[1]) == (0, "refused")


@pytest.mark.usefixtures("_without")
def test_the_store_of_a_killed_process_is_recovered(open_store_file, run_child, check_whole):
    script = (
        WITHOUT
        + """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(21):
    store_file.committer.submit(append)
    read_all()
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert run_child(script) == (-9, [])
    assert check_whole(open_store_file()) == 21


@pytest.mark.slow
def test_processes_that_wait_for_each_other_lose_no_commit(start_child, open_store_file, check_whole):
    script = (
        WITHOUT
        + """
for _ in range(20):
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=60)
    store_file.committer.submit(append)
    read_all()
    store_file.committer.submit(append)
    store_file.close()
"""
    )
    children = [start_child(script) for _ in range(3)]
    for child in children:
        _output, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    assert check_whole(open_store_file()) == 3 * 20 * 2
