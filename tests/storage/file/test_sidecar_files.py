"""Foreign files with the names of a store's sidecar files are not changed, and are reported."""

import errno
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import beating

import statelog
from statelog.errors import AccessError, CommitOutcomeUnknownError, FormatError, JournalMissingError
from statelog.log.commit import committer_of
from statelog.storage import StoreFile
from statelog.storage.file.sidecar_files import journal_path, lock_path, set_aside
from statelog.storage.notify.slot_file import wake_path
from statelog.storage.wal import checkpointer
from statelog.storage.wal.shared_state import shared_state_path
from statelog.storage.wal.wal_format import SnapshotSlot, encode_slot, is_journal_of

TEXT = b"my own notes, which nobody else has\n" * 300
KILLED = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(5):
    store_file.committer.submit(append)
os.kill(os.getpid(), signal.SIGKILL)
"""


def place_text(journal):
    journal.write_bytes(TEXT)


def place_journal_of_another(journal):
    with statelog.open(journal.with_name("other.state")) as other:
        other.thread("t").commit({"n": 1})
        data = journal_path(journal.with_name("other.state")).read_bytes()
    journal.write_bytes(data)


def place_store(journal):
    statelog.open(journal).close()


def place_directory(journal):
    journal.mkdir()


def place_pipe(journal):
    os.mkfifo(journal)


def place_link(journal):
    target = journal.with_name("elsewhere")
    target.write_bytes(b"")
    journal.symlink_to(target)


@pytest.fixture(
    params=[place_text, place_journal_of_another, place_store, place_directory, place_pipe, place_link],
    ids=lambda place: place.__name__[len("place_") :],
)
def place(request):
    return request.param


def look(journal):
    status = journal.lstat()
    return status.st_ino, status.st_mode, status.st_size, journal.read_bytes() if journal.is_file() else b""


def next_descriptor():
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def test_a_closed_store_is_not_opened_for_writing(open_store_file, append, check_whole, path, place):
    store_file = open_store_file()
    store_file.committer.submit(append)
    store_file.close()
    place(journal_path(path))
    before = look(journal_path(path)), path.read_bytes()
    for _ in range(2):
        with pytest.raises(FormatError, match="move the other file elsewhere") as caught:
            open_store_file()
        assert caught.value.facts == {"path": str(path), "journal": str(journal_path(path))}
    assert (look(journal_path(path)), path.read_bytes()) == before
    assert check_whole(open_store_file(read_only=True)) == 1


def test_a_store_is_not_created_if_the_name_of_its_journal_is_taken(open_store_file, path, place):
    place(journal_path(path))
    before = look(journal_path(path))
    with pytest.raises(FormatError, match="needs this name"):
        open_store_file()
    assert look(journal_path(path)) == before
    assert not path.exists()


def test_a_first_commit_does_not_overwrite_a_foreign_file(open_store_file, append, check_whole, path, place):
    store_file = open_store_file()
    place(journal_path(path))
    before = look(journal_path(path))
    descriptor = next_descriptor()
    for _ in range(3):
        with pytest.raises(FormatError, match="needs this name"):
            store_file.committer.submit(append)
    assert next_descriptor() == descriptor
    assert look(journal_path(path)) == before
    aside = set_aside(path)
    assert store_file.committer.submit(append) == 1
    assert check_whole(store_file) == 1
    assert look(aside) == before


def test_a_foreign_journal_of_a_killed_store_is_refused(run_child, open_store_file, check_whole, path, place):
    assert run_child(KILLED) == (-9, [])
    own = set_aside(path)
    place(journal_path(path))
    before = look(journal_path(path)), path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(statelog.StatelogError) as caught:
            open_store_file(read_only=read_only)
        assert caught.value.facts["journal"] == str(journal_path(path))
    assert (look(journal_path(path)), path.read_bytes()) == before
    set_aside(path)
    own.rename(journal_path(path))
    assert check_whole(open_store_file()) == 5


def test_a_sidecar_file_that_may_not_be_opened_is_named(run_child, open_store_file, monkeypatch, path):
    assert run_child(KILLED) == (-9, [])
    plain = os.open

    def refuse(name, flags, *more, **others):
        if str(name) == str(journal_path(path)):
            raise PermissionError(errno.EACCES, "permission denied", str(name))
        return plain(name, flags, *more, **others)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessError, match=r"agent\.state-journal") as caught:
        open_store_file()
    assert caught.value.facts["path"] == str(journal_path(path))


@pytest.mark.parametrize("size_bytes", [0, 4096, 8192, 65536, 1 << 20])
def test_an_empty_file_counts_as_the_beginning_of_a_journal(open_store_file, append, path, size_bytes):
    open_store_file().close()
    journal_path(path).write_bytes(bytes(size_bytes))
    store_file = open_store_file()
    assert not journal_path(path).exists()
    assert store_file.committer.submit(append) == 1


STORE = bytes(range(1, 17))
SLOT = encode_slot(SnapshotSlot(STORE, b"n" * 16, 1, 42, b"meta" * 38))


@given(is_there=st.booleans(), size_bytes=st.sampled_from([4096, 8192, 65536]), cut=st.integers(0, 128))
def test_any_part_of_a_first_slot_counts_as_the_beginning_of_a_journal(tmp_path_factory, is_there, size_bytes, cut):
    """A power failure leaves such files, with the sector of the slot or without it, and of any length."""
    data = bytearray(max(size_bytes, 8192))
    if is_there:
        data[4096 : 4096 + len(SLOT)] = SLOT
    path = tmp_path_factory.mktemp("part") / "journal"
    path.write_bytes(bytes(data[: min(size_bytes, 512 * cut)]))
    assert judge(path, STORE)
    assert judge(path, bytes(16)) == (not any(path.read_bytes()))


@given(st.binary(min_size=1, max_size=100), st.sampled_from([0, 1, 24, 30, 4000, 4096, 5000, 8192, 70_000]))
def test_any_other_content_is_not_a_journal(tmp_path_factory, data, at):
    path = tmp_path_factory.mktemp("other") / "journal"
    path.write_bytes(bytes(at) + data)
    assert judge(path, STORE) == (not any(data))


def judge(path, store_id):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return is_journal_of(descriptor, store_id)
    finally:
        os.close(descriptor)


# --- LMDB's lock file -----------------------------------------------------------------


@pytest.mark.parametrize("place", [place_store, place_directory, place_pipe])
def test_a_file_that_is_not_a_lock_file_is_not_overwritten(open_store_file, path, place):
    open_store_file().close()
    lock_path(path).unlink()
    place(lock_path(path))
    before = look(lock_path(path))
    for read_only in (False, True):
        with pytest.raises(FormatError, match="needs this name"):
            open_store_file(read_only=read_only)
    assert look(lock_path(path)) == before


@pytest.mark.parametrize(
    "data", [b"", bytes(8192), TEXT, bytes(range(1, 200)) * 40], ids=["none", "zeros", "text", "any"]
)
def test_a_lock_file_with_any_content_left_by_a_power_failure_is_accepted(open_store_file, append, path, data):
    open_store_file().close()
    lock_path(path).write_bytes(data)
    assert open_store_file().committer.submit(append) == 1


# --- symbolic links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [lock_path, journal_path, shared_state_path, wake_path])
@pytest.mark.parametrize("is_there", [True, False], ids=["file", "dangling"])
def test_a_symbolic_link_of_a_side_files_name_is_refused(open_store_file, path, tmp_path, name, is_there):
    open_store_file().close()
    own, target = name(path), tmp_path / "notes"
    own.unlink(missing_ok=True)
    if is_there:
        target.write_bytes(b"my diary\n" * 1000)
    own.symlink_to(target)
    with pytest.raises(FormatError, match="needs this name for its own file") as caught:
        open_store_file()
    assert caught.value.facts == {"path": str(path), "journal": str(own)}
    assert (target.read_bytes() if target.exists() else None) == (b"my diary\n" * 1000 if is_there else None)
    own.unlink()
    open_store_file()


@pytest.mark.parametrize("name", [lock_path, wake_path])
def test_a_reader_refuses_links_to_files_that_it_would_write(open_store_file, path, tmp_path, name):
    open_store_file().close()
    name(path).unlink(missing_ok=True)
    (tmp_path / "notes").write_bytes(b"my diary\n")
    name(path).symlink_to(tmp_path / "notes")
    with pytest.raises(FormatError, match="needs this name"):
        open_store_file(read_only=True)
    assert (tmp_path / "notes").read_bytes() == b"my diary\n"


@pytest.mark.usefixtures("store_file")
def test_a_reader_does_not_trust_a_linked_shared_state(run_child, path, tmp_path):
    shared_state_path(path).rename(tmp_path / "page")
    shared_state_path(path).symlink_to(tmp_path / "page")
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, read_only=True)
    try:
        store_file.flushed_lsn()
    except FormatError as error:
        say(error.journal)
    """
    assert run_child(script) == (0, [str(shared_state_path(path))])


# --- a journal that another process removes ----------------------------------------------------


def await_refusal(store_file, append):
    """Commit until the loss of the journal is reported.

    Returns:
        The number of commits, the number of further possible commits, and the error.
    """
    done, deadline = 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            store_file.committer.submit(append)
        except JournalMissingError as error:
            return done, 0, error
        except CommitOutcomeUnknownError as error:  # The loss was noticed during this commit.
            return done, 1, error.__cause__
        done += 1
    pytest.fail("commits go on without a journal")


@pytest.mark.parametrize("durability", ["commit", "interval"])
@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_removed_journal_is_noticed_and_no_commit_is_lost(
    open_store_file, append, check_whole, path, tmp_path, durability, how
):
    store_file = open_store_file(durability=durability)
    store_file.committer.submit(append)
    journal_path(path).rename(tmp_path / "moved")
    if how == "removed":
        (tmp_path / "moved").unlink()
    with beating(pause_s=1) as beats_s:
        done, unknown, error = await_refusal(store_file, append)
    assert len(beats_s) <= 5, "it was noticed late"
    assert "removed while the store is in use" in error.message
    with pytest.raises(JournalMissingError, match="removed while"):
        store_file.committer.submit(append)
    last_lsn = check_whole(store_file)
    assert 1 + done <= last_lsn <= 1 + done + unknown
    journal_path(path).write_bytes(TEXT)
    store_file.close()
    assert journal_path(path).read_bytes() == TEXT
    journal_path(path).unlink()
    assert check_whole(open_store_file()) == last_lsn


def commit_for(thread, beats):
    with beating(pause_s=0.5) as beats_s:
        while len(beats_s) <= beats:
            thread.commit({"n": 1}, durable=False)


def test_a_process_that_commits_without_a_pause_soon_notices_a_removed_journal(path, monkeypatch):
    """The background flusher needs no lock for this check, and no epoch ends during the test."""
    monkeypatch.setattr(checkpointer, "HELD_PAGES_MAX", 1 << 20)
    monkeypatch.setattr(checkpointer, "HELD_PAGES_BOUND", 1 << 21)
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"n": 0})
        journal_path(path).unlink()
        with pytest.raises(JournalMissingError):
            commit_for(thread, beats=4)


@pytest.mark.parametrize("rests", [False, True])
def test_closing_keeps_a_file_that_has_replaced_the_journal(
    open_store_file, append, check_whole, path, rests, monkeypatch
):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 0.01 if rests else 3600)
    store_file = open_store_file()
    store_file.committer.submit(append)
    while store_file.checkpointer.needs_checkpoint and rests:
        time.sleep(0.005)
    journal_path(path).unlink()
    journal_path(path).write_bytes(TEXT)
    store_file.close()
    assert journal_path(path).read_bytes() == TEXT
    assert check_whole(open_store_file(read_only=True)) == 1


def test_a_store_in_a_renamed_directory_continues(tmp_path, append):
    (tmp_path / "before").mkdir()
    store_file = StoreFile.open(tmp_path / "before" / "agent.state")
    committer_of(store_file).submit(append)
    (tmp_path / "before").rename(tmp_path / "after")
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        store_file.committer.submit(append)
    store_file.close()


def test_a_user_without_permission_to_remove_the_journal_leaves_it(
    run_child, open_store_file, append, check_whole, path, monkeypatch
):
    """The store and its directory belong to another user."""
    assert run_child(KILLED) == (-9, [])
    plain = os.unlink

    def refuse(name, *more, **others):
        if str(name) == str(journal_path(path)):
            raise PermissionError(errno.EACCES, "permission denied", str(name))
        return plain(name, *more, **others)

    monkeypatch.setattr(os, "unlink", refuse)
    for done in (5, 6):
        store_file = open_store_file()
        assert check_whole(store_file) == done
        assert store_file.committer.submit(append) == done + 1
        store_file.close()
        assert journal_path(path).exists()
    monkeypatch.undo()
    assert check_whole(open_store_file()) == 7
    assert not journal_path(path).exists()


def test_a_process_that_joins_a_store_without_a_journal_creates_none(start_child, store_file, append, path):
    """The mark shows that there was a journal, so an empty one would look damaged."""
    store_file.committer.submit(append)
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        say("open")
        sys.stdin.readline()
        try:
            store_file.committer.submit(append)
        except JournalMissingError as error:
            say("missing")
        """
    )
    assert child.stdout.readline() == "open\n"
    journal_path(path).unlink()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "missing\n"
    assert not journal_path(path).exists()
