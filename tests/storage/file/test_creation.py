import errno
import os
from pathlib import Path

import pytest

from statelog.errors import StorageError, StoreFullError, StoreNotFoundError
from statelog.storage import faults
from statelog.storage.file.creation import create_store, remove_leftovers

CREATION_POINTS = [point for point in faults.POINTS if point.startswith("creation.")]
POINTS_AFTER_LINK = {"creation.after_link", "creation.after_directory_sync", "creation.after_unlink"}

CREATE = "say(StoreFile.open(sys.argv[1], max_size_bytes=2**26).lmdb_file.store_id.hex())"


@pytest.fixture
def leftovers(path):
    return lambda: [entry.name for entry in path.parent.glob("*.creating")]


@pytest.mark.parametrize("point", CREATION_POINTS)
def test_a_creation_killed_anywhere_leaves_no_store_or_a_complete_one(
    run_child, open_store_file, path, point, leftovers, append, check_whole
):
    assert run_child(CREATE, fault=f"{point}:1:kill") == (-9, [])
    assert path.exists() == (point in POINTS_AFTER_LINK)
    store_file = open_store_file()
    assert check_whole(store_file) == 0
    assert store_file.committer.submit(append) == 1
    assert leftovers() == []
    assert path.stat().st_nlink == 1


def test_negative_control_a_creation_in_place_is_detected(path, open_store_file):
    """Half of a store is left under its own name."""
    create_store(path)
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(Exception, match="damaged"):
        open_store_file()


@pytest.mark.slow
def test_processes_that_create_concurrently_share_one_store(start_child, leftovers):
    children = [start_child("sys.stdin.readline(); " + CREATE) for _ in range(6)]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    store_ids = {child.communicate(timeout=300)[0] for child in children}
    assert len(store_ids) == 1
    assert len(store_ids.pop().strip()) == 32
    assert leftovers() == []


def test_a_creation_that_loses_the_race_leaves_the_winners_store(path, open_store_file, leftovers):
    def win():
        faults.disarm()
        create_store(path)

    faults.arm("creation.before_link", action=win)
    create_store(path)
    won = path.read_bytes()
    assert open_store_file().path.read_bytes()[8192:] == won[8192:]
    assert leftovers() == []


def test_a_creation_retries_if_its_temporary_file_is_removed(path, open_store_file, leftovers, check_whole):
    def take_away():
        for name in leftovers():
            (path.parent / name).unlink()

    faults.arm("creation.before_link", action=take_away)
    assert check_whole(open_store_file()) == 0


def test_an_existing_file_is_never_replaced(path):
    def write_foreign():
        path.write_text("precious")

    faults.arm("creation.before_link", action=write_foreign)
    create_store(path)
    assert path.read_text() == "precious"


@pytest.fixture
def no_hard_links(monkeypatch):
    def refuse(*_arguments, **_options):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_hard_links")
def test_a_store_can_be_created_on_a_file_system_without_hard_links(open_store_file, check_whole, leftovers):
    assert check_whole(open_store_file()) == 0
    assert leftovers() == []


@pytest.mark.usefixtures("no_hard_links")
def test_an_existing_file_is_never_replaced_without_hard_links_either(path):
    faults.arm("creation.before_link", action=lambda: path.write_text("precious"))
    create_store(path)
    assert path.read_text() == "precious"


def test_creation_flushes_the_directory_after_the_file_has_its_name(path, monkeypatch):
    happened = []
    link, fsync = os.link, os.fsync

    def record_link(source, target):
        link(source, target)
        happened.append(("link", Path(target).name))

    def record_fsync(descriptor):
        fsync(descriptor)
        happened.append(("fsync", Path(f"/proc/self/fd/{descriptor}").resolve()))

    monkeypatch.setattr(os, "link", record_link)
    monkeypatch.setattr(os, "fsync", record_fsync)
    create_store(path)
    assert happened == [("link", path.name), ("fsync", path.parent)]


def test_an_opening_flushes_the_directory_before_a_commit(path, monkeypatch, open_store_file, append):
    """Its creator may have been killed between link and flush, or its own flush have failed."""
    happened = []
    fsync, fdatasync = os.fsync, os.fdatasync
    create_store(path)

    def record(flush):
        def flush_and_note(descriptor):
            flush(descriptor)
            happened.append(Path(f"/proc/self/fd/{descriptor}").resolve())

        return flush_and_note

    monkeypatch.setattr(os, "fsync", record(fsync))
    monkeypatch.setattr(os, "fdatasync", record(fdatasync))
    store_file = open_store_file()
    assert happened == [path.parent]
    store_file.committer.submit(append)
    happened.clear()
    store_file.lmdb_file.reopen()
    assert happened == []


def test_a_store_whose_directory_cannot_be_flushed_is_not_opened_for_writing(path, monkeypatch, open_store_file):
    create_store(path)

    def refuse(_descriptor):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match="cannot be flushed"):
        open_store_file()
    assert open_store_file(read_only=True).lmdb_file.store_id


def test_leftovers_of_other_stores_and_files_of_live_creators_are_kept(path, leftovers):
    other = path.parent / ".other.state.0123456789abcdef.creating"
    stale = path.parent / ".agent.state.0123456789abcdef.creating"
    other.touch()
    stale.touch()

    def look():
        remove_leftovers(path)
        assert len(leftovers()) == 2  # The file of the other store, and the file of this creation.

    faults.arm("creation.before_link", action=look)
    create_store(path)
    assert leftovers() == [other.name]


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_a_missing_directory_is_named(tmp_path, parent):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(
        StoreNotFoundError, match=f"a store cannot be created at {tmp_path / parent / 'a.state'}: "
    ) as caught:
        create_store(tmp_path / parent / "a.state")
    assert caught.value.path == str(tmp_path / parent / "a.state")


def test_on_a_full_disk_creation_is_refused_and_leaves_no_file(path, leftovers):
    def refuse():
        raise OSError(errno.ENOSPC, "no space left on device")

    faults.arm("creation.before_lmdb_commit", action=refuse)
    with pytest.raises(StoreFullError):
        create_store(path)
    assert not path.exists()
    assert leftovers() == []
