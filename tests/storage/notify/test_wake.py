import os
import stat
import threading
import time

import pytest

from statelog.errors import ClosedError
from statelog.kernels import WAKE_FILE_SIZE_BYTES
from statelog.storage.notify import slot_file, waiter
from statelog.storage.notify.slot_file import wake_path

COMMIT_ONE = "say(Environment.open(sys.argv[1], max_size_bytes=2**26).committer.submit(append))"


@pytest.fixture(params=["word", "polling"])
def either_way(request, monkeypatch):
    """With the shared word, and without it."""
    if request.param == "polling":
        monkeypatch.setattr(slot_file, "kernels", None)


def make_word(environment):
    assert not environment.wake.wait(environment.flushed_lsn(), 0)


@pytest.mark.usefixtures("either_way")
def test_wait_returns_at_once_when_there_was_a_commit(environment, append):
    seen = environment.flushed_lsn()
    environment.committer.submit(append)
    assert environment.wake.wait(seen, 0)


@pytest.mark.usefixtures("either_way")
def test_wait_ends_when_the_time_is_up(environment):
    before = time.monotonic()
    assert not environment.wake.wait(environment.flushed_lsn(), 0.12)
    assert 0.1 <= time.monotonic() - before < 5


@pytest.mark.usefixtures("either_way")
def test_a_commit_of_another_thread_wakes(environment, append):
    seen = environment.flushed_lsn()
    threading.Timer(0.1, environment.committer.submit, (append,)).start()
    assert environment.wake.wait(seen, 30)
    assert environment.flushed_lsn() == seen + 1


@pytest.mark.usefixtures("either_way")
def test_a_commit_of_another_process_wakes(environment, start_child):
    seen = environment.flushed_lsn()
    child = start_child(COMMIT_ONE)
    assert environment.wake.wait(seen, 30)
    assert child.communicate()[0] == "1\n"


@pytest.mark.usefixtures("either_way")
def test_every_commit_of_another_process_is_waited_for_in_turn(environment, start_child):
    child = start_child(
        """
        environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
        for _ in range(50):
            environment.committer.submit(append)
            sys.stdin.readline()
        """
    )
    seen = environment.flushed_lsn()
    for _ in range(50):
        assert environment.wake.wait(seen, 30)
        seen += 1
        child.stdin.write("next\n")
        child.stdin.flush()
    assert child.wait(300) == 0
    assert not environment.wake.wait(seen, 0)


def test_the_word_wakes_and_not_the_slice(environment, append, monkeypatch):
    """Were the wake-up lost, this would wait out the slice."""
    monkeypatch.setattr(waiter, "SLICE_S", 60)
    seen = environment.flushed_lsn()
    threading.Timer(0.1, environment.committer.submit, (append,)).start()
    before = time.monotonic()
    assert environment.wake.wait(seen, 60)
    assert time.monotonic() - before < 30


def test_a_file_that_does_not_reach_costs_a_slice_at_most(environment, start_child, monkeypatch):
    """As in a sandbox that maps files for itself."""
    monkeypatch.setattr(environment.wake.slot_file, "_path", f"{environment.path}-elsewhere")
    seen = environment.flushed_lsn()
    start_child(COMMIT_ONE)
    assert environment.wake.wait(seen, 30)
    environment.wake.close()
    environment.path.with_name("agent.state-elsewhere").unlink()


def test_the_word_is_its_owners_alone_and_goes_with_the_last_process(open_environment):
    environment = open_environment()
    make_word(environment)
    status = wake_path(environment.path).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, WAKE_FILE_SIZE_BYTES)
    assert status.st_blocks * 512 >= WAKE_FILE_SIZE_BYTES, "a full disk cannot fill a hole"
    environment.close()
    assert not wake_path(environment.path).exists()


def test_the_word_stays_while_another_process_has_the_store_open(open_environment, start_child):
    environment = open_environment()
    make_word(environment)
    child = start_child(
        "environment = Environment.open(sys.argv[1], max_size_bytes=2**26); say(1); sys.stdin.readline()"
    )
    child.stdout.readline()
    environment.close()
    assert wake_path(environment.path).exists()
    child.stdin.write("close\n")
    child.stdin.flush()
    child.wait()
    open_environment().close()
    assert not wake_path(environment.path).exists()


def test_a_link_in_the_place_of_the_word_is_not_followed(environment, append, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    wake_path(environment.path).symlink_to(target)
    environment.committer.submit(append)
    make_word(environment)
    assert environment.wake.slot_file.file is None
    assert target.read_bytes() == b"precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_word_of_another_user_is_not_trusted(environment):
    word = wake_path(environment.path)
    word.write_bytes(bytes(8))
    os.chown(word, 12345, 12345)
    make_word(environment)
    assert environment.wake.slot_file.file is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_word_of_the_stores_owner_is_trusted(environment):
    os.chown(environment.path, 12345, 12345)
    word = wake_path(environment.path)
    word.write_bytes(bytes(8))
    os.chown(word, 12345, 12345)
    make_word(environment)
    assert environment.wake.slot_file.file is not None


@pytest.mark.parametrize("content", [b"mine", b"mine" * 100_000])
def test_a_file_of_somebodys_own_is_left_alone(open_environment, append, content):
    environment = open_environment()
    own = wake_path(environment.path)
    own.write_bytes(content)
    make_word(environment)
    environment.committer.submit(append)
    assert environment.wake.slot_file.file is None
    environment.close()
    assert own.read_bytes() == content


def test_a_file_whose_making_was_cut_is_made_whole(environment):
    wake_path(environment.path).write_bytes(b"")
    make_word(environment)
    assert environment.wake.slot_file.file is not None
    assert wake_path(environment.path).stat().st_size == WAKE_FILE_SIZE_BYTES


def test_nobody_makes_a_word_who_only_commits(environment, append):
    environment.committer.submit(append)
    assert not wake_path(environment.path).exists()


def test_a_word_made_later_is_found_by_one_who_commits(environment, start_child, monkeypatch):
    child = start_child(
        """
        environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
        environment.committer.submit(append)
        for _ in sys.stdin:
            environment.committer.submit(append)
            say(environment.wake.slot_file.file is not None)
        """
    )
    seen = environment.flushed_lsn()
    assert environment.wake.wait(seen, 30)
    time.sleep(2 * slot_file.SLICE_S)
    monkeypatch.setattr(waiter, "SLICE_S", 60)
    threading.Timer(0.1, lambda: (child.stdin.write("commit\n"), child.stdin.flush())).start()
    before = time.monotonic()
    assert environment.wake.wait(environment.flushed_lsn(), 60)
    assert time.monotonic() - before < 30
    assert child.stdout.readline() == "True\n"
    assert child.communicate(timeout=300) == ("", "")


def test_a_closed_store_cannot_be_waited_for(open_environment):
    environment = open_environment()
    environment.close()
    with pytest.raises(ClosedError):
        environment.wake.wait(0, 1)
    environment.wake.note(1)
    environment.wake.notify(1, 1)


def test_closing_ends_the_wait_of_another_thread(open_environment):
    environment = open_environment()
    raised = []

    def wait():
        try:
            environment.wake.wait(environment.flushed_lsn(), 30)
        except ClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    environment.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert len(raised) == 1
