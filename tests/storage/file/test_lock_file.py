"""LMDB's lock file keeps its locks whatever the process opens and closes, and no process waits for it for ever."""

import contextlib
import os
import re
import shutil
import signal
import tarfile
import threading
import time
from pathlib import Path

import lmdb
import pytest

from statelog.errors import StorageError, StoreReplacedError
from statelog.storage import lmdb_file
from statelog.storage.compaction import compact_file
from statelog.storage.file import locks
from statelog.storage.file.lock_file import LockFile
from statelog.storage.file.sidecar_files import lock_path

ASK = """
import fcntl, struct
descriptor = os.open(sys.argv[1] + "-lock", os.O_RDONLY)
for at in (0, int(sys.argv[2])):
    lock = struct.Struct("hhqqi").pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind = struct.Struct("hhqqi").unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, lock))[0]
    say("nobody" if kind == fcntl.F_UNLCK else "held")
"""
"""Asks the kernel, from another process, who has locked the bytes with which LMDB detects its users."""

USE = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
store_file.committer.submit(append)
store_file.writer.checkpoint()
store_file.reader_slots.release_dead()
for _ in range(20):
    store_file.committer.submit(append)
say("done")
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Another process that commits, clears dead readers, and dies."""


def read_each(folder):
    for entry in folder.iterdir():
        if entry.is_file():
            entry.read_bytes()


def copy_tree(folder):
    shutil.copytree(folder, folder.parent / "copied", dirs_exist_ok=True)


def pack_tree(folder):
    with tarfile.open(folder.parent / "packed.tar", "w") as archive:
        archive.add(folder)


def read_in_threads(folder):
    threads = [threading.Thread(target=read_each, args=(folder,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def close_a_copy(folder):
    for entry in folder.iterdir():
        os.close(os.dup(os.open(entry, os.O_RDWR)))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "agent.state"


@pytest.fixture(params=[read_each, copy_tree, pack_tree, read_in_threads, close_a_copy])
def stray_close(request):
    return request.param


def open_descriptors():
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def ask(run_child):
    def ask_kernel(process_id=None):
        return run_child(ASK, process_id or os.getpid())[1]

    return ask_kernel


def locks_in_kernel(path):
    """Return kind, place and mode of each lock of a file that the kernel lists."""
    status = lock_path(path).stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:"
    lines = Path("/proc/locks").read_text().splitlines()
    lines = [line for line in lines if f" {device}" in line] or lines  # Some file systems report another device.
    found = [re.match(rf"\d+: (\w+) +ADVISORY +(\w+) .*:{status.st_ino} (\d+) (\w+)", line) for line in lines]
    return sorted(match.groups() for match in found if match)


@pytest.mark.slow
@pytest.mark.usefixtures("store_file")
def test_the_kernel_lists_the_locks_as_held_after_a_stray_close(ask, path, stray_close):
    assert ask() == ["held", "held"]
    stray_close(path.parent)
    assert ask() == ["held", "held"]
    own = str(os.getpid())
    assert locks_in_kernel(path) == [("OFDLCK", "READ", "0", "0"), ("OFDLCK", "READ", own, own)]


@pytest.mark.slow
def test_negative_control_without_our_locks_the_kernel_lists_none(open_store_file, ask, path, stray_close, monkeypatch):
    """LMDB alone loses its locks."""
    monkeypatch.setattr(LockFile, "_take_locks", lambda _self: True)
    open_store_file()
    assert ask() == ["held", "held"]
    stray_close(path.parent)
    assert ask() == ["nobody", "nobody"]


def test_readers_also_hold_locks(open_store_file, ask, path):
    open_store_file().close()
    open_store_file(read_only=True)
    read_each(path.parent)
    assert ask() == ["held", "held"]


@pytest.mark.slow
def test_locks_are_held_after_lmdb_was_opened_again(store_file, ask, append, path):
    for _ in range(3):
        read_each(path.parent)
        store_file.lmdb_file.reopen()
        assert ask() == ["held", "held"]
        store_file.committer.submit(append)
    store_file.lmdb_file.set_map_size(2**25)
    read_each(path.parent)
    assert ask() == ["held", "held"]


def test_locks_are_held_on_the_lock_file_after_a_compaction(store_file, ask, append, path):
    store_file.committer.submit(append)
    compact_file(store_file.lmdb_file, store_file.wal)
    store_file.committer.submit(append)
    read_each(path.parent)
    assert ask() == ["held", "held"]


@pytest.mark.slow
def test_no_lock_is_held_after_all_have_closed(open_store_file, start_child, ask):
    store_file = open_store_file()
    child = start_child(
        "store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26); say('open'); sys.stdin.readline()"
    )
    child.stdout.readline()
    store_file.close()
    assert ask() == ["held", "nobody"]
    child.kill()
    child.wait()
    assert ask() == ["nobody", "nobody"]


def test_a_closed_store_leaves_no_descriptor_open(open_store_file):
    open_store_file().close()
    before = open_descriptors()
    for _ in range(3):
        open_store_file().close()
    assert open_descriptors() == before


def test_openings_after_a_stray_close_lose_no_commit(store_file, run_child, append, check_whole, path, stray_close):
    for done in range(3):
        store_file.committer.submit(append)
        with store_file.read() as snapshot:
            before = [bytes(snapshot.get_log(lsn)) for lsn in range(1, snapshot.last_lsn() + 1)]
            stray_close(path.parent)
            assert run_child(USE) == (-9, ["done"])
            assert before == [bytes(snapshot.get_log(lsn)) for lsn in range(1, len(before) + 1)]
            readers = store_file.lmdb_file.handles.raw.readers().split()
            assert str(os.getpid()) in readers, "a look for dead readers has freed the slot of a living one"
        assert store_file.committer.submit(append) == (1 + 21 + 1) * (done + 1)
    assert check_whole(store_file) == 3 * (1 + 21 + 1)


def test_a_dead_reader_is_still_detected(store_file, start_child, append, path):
    store_file.committer.submit(append)
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        reading = store_file.read()
        reading.__enter__()
        for name in os.listdir(os.path.dirname(sys.argv[1])):
            open(os.path.join(os.path.dirname(sys.argv[1]), name), "rb").close()
        say("reads")
        sys.stdin.readline()
        """
    )
    child.stdout.readline()
    store_file.reader_slots.release_dead()
    assert str(child.pid) in store_file.lmdb_file.handles.raw.readers().split()
    child.kill()
    child.wait()
    store_file.committer.submit(append)
    store_file.writer.checkpoint()
    assert str(child.pid) not in store_file.lmdb_file.handles.raw.readers().split()
    assert path.exists()


# --- between LMDB's opening and ours --------------------------------------------------------------------


def open_and_read(path, times):
    """Return LMDB's `open`, with a stray close after the first few calls."""
    calls, plain = [], lmdb.open

    def open_lmdb(*arguments, **options):
        raw = plain(*arguments, **options)
        calls.append(raw)
        if len(calls) <= times:
            read_each(path.parent)
        return raw

    return open_lmdb


def test_after_a_stray_close_during_its_opening_lmdb_is_opened_again(open_store_file, ask, append, path, monkeypatch):
    open_store_file().close()
    monkeypatch.setattr(lmdb_file.lmdb, "open", open_and_read(path, 3))
    store_file = open_store_file()
    assert ask() == ["held", "held"]
    assert store_file.committer.submit(append) == 1


def test_closing_the_lock_file_at_every_opening_raises_an_error(open_store_file, ask, path, monkeypatch):
    open_store_file().close()
    descriptors = open_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(lmdb_file.lmdb, "open", open_and_read(path, 99))
        with pytest.raises(StorageError, match="LMDB loses its locks") as caught:
            open_store_file()
    assert caught.value.path == str(path)
    assert ask() == ["nobody", "nobody"]
    assert open_descriptors() == descriptors
    open_store_file()


@pytest.mark.slow
def test_stray_closes_concurrent_with_openings_do_no_harm(run_child):
    """One thread reads all files without a pause, while others open, commit and close."""
    script = """
    import statelog
    done = threading.Event()
    folder = os.path.dirname(sys.argv[1])

    def read_all():
        while not done.is_set():
            for name in os.listdir(folder):
                try:
                    with open(os.path.join(folder, name), "rb") as file:
                        file.read()
                except OSError:
                    pass

    reader = threading.Thread(target=read_all)
    reader.start()
    try:
        for number in range(15):
            with statelog.open(sys.argv[1]) as store:
                store.thread("t").commit({"n": number})
    finally:
        done.set()
        reader.join()
    with statelog.open(sys.argv[1]) as store:
        say(store.thread("t").state["n"], store.verify().ok)
    """
    assert run_child(script) == (0, ["14 True"])


# --- forks --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("midst", [False, True], ids=["at rest", "in the midst of a read"])
def test_a_child_that_outlives_its_parent_holds_no_lock_of_the_parent(start_child, ask, midst):
    parent = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        store_file.committer.submit(append)
        def fork():
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            say(os.getpid(), child)
        if sys.argv[2] == "True":
            with store_file.read():
                fork()
        else:
            fork()
        sys.stdin.readline()
        """,
        midst,
    )
    process_id, child_id = map(int, parent.stdout.readline().split())
    assert ask(process_id) == ["held", "held"]
    try:
        parent.kill()
        parent.wait()
        assert ask(process_id) == ["nobody", "nobody"]
    finally:
        os.kill(child_id, signal.SIGKILL)


@pytest.mark.slow
def test_reads_and_closes_of_a_child_do_not_affect_the_parent(store_file, ask, append, path):
    store_file.committer.submit(append)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            read_each(path.parent)
        os._exit(0)
    os.waitpid(child, 0)
    assert ask() == ["held", "held"]
    store_file.committer.submit(append)


# --- a lock file that running processes do not use ---------------------------------------------------------


@pytest.mark.slow
def test_opening_a_store_whose_lock_file_was_removed_is_refused(
    store_file, open_store_file, run_child, append, check_whole, path
):
    store_file.committer.submit(append)
    lock_path(path).unlink()
    script = """
    try:
        StoreFile.open(sys.argv[1], max_size_bytes=2**26, read_only=sys.argv[2] == "True")
    except StoreReplacedError as error:
        say(error.path == sys.argv[1], "-lock" in error.message)
    """
    for read_only in (False, True):
        assert run_child(script, read_only) == (0, ["True True"])
    assert store_file.committer.submit(append) == 2
    store_file.close()
    assert check_whole(open_store_file()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("is_noted", [True, False])
def test_a_reader_on_a_read_only_file_system_excludes_no_process(open_store_file, start_child, append, is_noted):
    """LMDB has no open lock file there. The negative control does not account for that."""
    open_store_file().close()
    child = start_child(
        """
        from statelog.storage.file.locks import FileLocks
        locks = FileLocks(os.open(sys.argv[1], os.O_RDONLY), Path(sys.argv[1]))
        locks.acquire_presence(0)
        if sys.argv[2] == "True":
            locks.note_untabled()
        say("reads")
        sys.stdin.readline()
        """,
        is_noted,
    )
    assert child.stdout.readline() == "reads\n"
    if is_noted:
        assert open_store_file().committer.submit(append) == 1
    else:
        with pytest.raises(StoreReplacedError):
            open_store_file()


def test_two_concurrent_read_only_openings_do_not_wait_for_each_other(open_store_file, start_child):
    open_store_file().close()
    script = """
    import statelog.storage.lmdb_file as lmdb_file
    plain = lmdb_file.open_lock_file
    def wait(*arguments, **options):
        say("opens")
        sys.stdin.readline()
        return plain(*arguments, **options)
    lmdb_file.open_lock_file = wait
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, read_only=True)
    say(store_file.last_transaction_id())
    sys.stdin.readline()
    """
    children = [start_child(script) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "opens\n"
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    began_s = time.monotonic()
    assert [child.stdout.readline() for child in children] == ["1\n", "1\n"]
    assert time.monotonic() - began_s < 10 * locks._FORMER_TIMEOUT_S
