import os
import stat
import threading
import time

import pytest

from statelog.errors import ClosedError
from statelog.kernels import WAKE_FILE_SIZE_BYTES
from statelog.storage.notify import slot_file, waiter
from statelog.storage.notify.slot_file import wake_path

COMMIT_ONE = "say(StoreFile.open(sys.argv[1], max_size_bytes=2**26).committer.submit(append))"


@pytest.fixture(params=["word", "polling"])
def either_way(request, monkeypatch):
    """Run the test with the shared word, and without it."""
    if request.param == "polling":
        monkeypatch.setattr(slot_file, "map_wake_file", lambda *_arguments, **_options: None)


def make_word(store_file):
    assert not store_file.wake.wait(store_file.flushed_lsn(), 0)


@pytest.mark.usefixtures("either_way")
def test_wait_returns_at_once_when_there_was_a_commit(store_file, append):
    seen = store_file.flushed_lsn()
    store_file.committer.submit(append)
    assert store_file.wake.wait(seen, 0)


@pytest.mark.usefixtures("either_way")
def test_wait_ends_at_its_timeout(store_file):
    before = time.monotonic()
    assert not store_file.wake.wait(store_file.flushed_lsn(), 0.12)
    assert 0.1 <= time.monotonic() - before < 5


@pytest.mark.usefixtures("either_way")
def test_a_commit_of_another_thread_wakes_the_waiter(store_file, append):
    seen = store_file.flushed_lsn()
    threading.Timer(0.1, store_file.committer.submit, (append,)).start()
    assert store_file.wake.wait(seen, 30)
    assert store_file.flushed_lsn() == seen + 1


@pytest.mark.usefixtures("either_way")
def test_a_commit_of_another_process_wakes_the_waiter(store_file, start_child):
    seen = store_file.flushed_lsn()
    child = start_child(COMMIT_ONE)
    assert store_file.wake.wait(seen, 30)
    assert child.communicate()[0] == "1\n"


@pytest.mark.usefixtures("either_way")
def test_consecutive_commits_of_another_process_each_end_a_wait(store_file, start_child):
    seen = store_file.flushed_lsn()
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        for _ in range(50):
            store_file.committer.submit(append)
            sys.stdin.readline()
        """
    )
    for _ in range(50):
        assert store_file.wake.wait(seen, 30)
        seen += 1
        child.stdin.write("next\n")
        child.stdin.flush()
    assert child.wait(300) == 0
    assert not store_file.wake.wait(seen, 0)


def test_the_shared_word_wakes_the_waiter_before_the_slice_ends(store_file, append, monkeypatch):
    """If the wake-up were lost, the wait would last for the whole slice."""
    monkeypatch.setattr(waiter, "SLICE_S", 60)
    seen = store_file.flushed_lsn()
    threading.Timer(0.1, store_file.committer.submit, (append,)).start()
    before = time.monotonic()
    assert store_file.wake.wait(seen, 60)
    assert time.monotonic() - before < 30


def test_a_file_that_is_not_shared_delays_a_wake_up_by_at_most_a_slice(store_file, start_child, monkeypatch):
    """As in a sandbox that does not share mapped files."""
    monkeypatch.setattr(store_file.wake.slot_file, "_path", f"{store_file.path}-elsewhere")
    seen = store_file.flushed_lsn()
    start_child(COMMIT_ONE)
    assert store_file.wake.wait(seen, 30)
    store_file.wake.close()
    store_file.path.with_name("agent.state-elsewhere").unlink()


def test_the_shared_word_is_private_to_its_owner_and_removed_by_the_last_process(open_store_file):
    store_file = open_store_file()
    make_word(store_file)
    status = wake_path(store_file.path).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, WAKE_FILE_SIZE_BYTES)
    assert status.st_blocks * 512 >= WAKE_FILE_SIZE_BYTES, "a full disk cannot fill a hole"
    store_file.close()
    assert not wake_path(store_file.path).exists()


def test_the_shared_word_is_kept_while_another_process_has_the_store_open(open_store_file, start_child):
    store_file = open_store_file()
    make_word(store_file)
    child = start_child("store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26); say(1); sys.stdin.readline()")
    child.stdout.readline()
    store_file.close()
    assert wake_path(store_file.path).exists()
    child.stdin.write("close\n")
    child.stdin.flush()
    child.wait()
    open_store_file().close()
    assert not wake_path(store_file.path).exists()


def test_a_link_with_the_name_of_the_shared_word_is_not_followed(store_file, append, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    wake_path(store_file.path).symlink_to(target)
    store_file.committer.submit(append)
    make_word(store_file)
    assert store_file.wake.slot_file.file is None
    assert target.read_bytes() == b"precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_word_of_another_user_is_not_trusted(store_file):
    word = wake_path(store_file.path)
    word.write_bytes(bytes(8))
    os.chown(word, 12345, 12345)
    make_word(store_file)
    assert store_file.wake.slot_file.file is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_word_of_the_stores_owner_is_trusted(store_file):
    os.chown(store_file.path, 12345, 12345)
    word = wake_path(store_file.path)
    word.write_bytes(bytes(8))
    os.chown(word, 12345, 12345)
    make_word(store_file)
    assert store_file.wake.slot_file.file is not None


@pytest.mark.parametrize("content", [b"mine", b"mine" * 100_000])
def test_a_foreign_file_is_not_changed(open_store_file, append, content):
    store_file = open_store_file()
    own = wake_path(store_file.path)
    own.write_bytes(content)
    make_word(store_file)
    store_file.committer.submit(append)
    assert store_file.wake.slot_file.file is None
    store_file.close()
    assert own.read_bytes() == content


def test_an_incompletely_created_file_is_completed(store_file):
    wake_path(store_file.path).write_bytes(b"")
    make_word(store_file)
    assert store_file.wake.slot_file.file is not None
    assert wake_path(store_file.path).stat().st_size == WAKE_FILE_SIZE_BYTES


def test_a_committing_process_creates_no_wake_up_file(store_file, append):
    store_file.committer.submit(append)
    assert not wake_path(store_file.path).exists()


def test_a_committing_process_finds_a_wake_up_file_created_later(store_file, start_child, monkeypatch):
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        store_file.committer.submit(append)
        for _ in sys.stdin:
            store_file.committer.submit(append)
            say(store_file.wake.slot_file.file is not None)
        """
    )
    seen = store_file.flushed_lsn()
    assert store_file.wake.wait(seen, 30)
    time.sleep(2 * slot_file.SLICE_S)
    monkeypatch.setattr(waiter, "SLICE_S", 60)
    threading.Timer(0.1, lambda: (child.stdin.write("commit\n"), child.stdin.flush())).start()
    before = time.monotonic()
    assert store_file.wake.wait(store_file.flushed_lsn(), 60)
    assert time.monotonic() - before < 30
    assert child.stdout.readline() == "True\n"
    assert child.communicate(timeout=300) == ("", "")


def test_waiting_for_a_closed_store_is_refused(open_store_file):
    store_file = open_store_file()
    store_file.close()
    with pytest.raises(ClosedError):
        store_file.wake.wait(0, 1)
    store_file.wake.note(1)
    store_file.wake.notify(1, 1)


def test_closing_ends_the_wait_of_another_thread(open_store_file):
    store_file = open_store_file()
    raised = []

    def wait():
        try:
            store_file.wake.wait(store_file.flushed_lsn(), 30)
        except ClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    store_file.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert len(raised) == 1
