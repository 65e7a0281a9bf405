"""The descriptors of a store's files, and the owners of the files beside it."""

import os
import stat
import subprocess
import sys

import pytest

import statelog
from statelog.storage import StoreFile
from statelog.storage.file.descriptors import follow_owner, open_file, open_side_file
from statelog.storage.file.sidecar_files import journal_path, open_journal
from statelog.storage.notify.slot_file import wake_path

OWNER = 12345

# Without its standard streams the process writes to descriptor 2, as any C library may.
CLOSED_STREAMS = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
import statelog
with statelog.open(sys.argv[1]) as store:
    thread = store.thread("t")
    for number in range(50):
        thread.commit({"n": number})
    for number in (0, 1, 2):
        os.write(number, b"a warning of some library" * 400)
    store.compact()
    for number in (0, 1, 2):
        os.write(number, b"a warning of some library" * 400)
"""


def lock_path(path):
    return path.with_name(f"{path.name}-lock")


@pytest.fixture
def foreign(path):
    """A closed store of another user whose group may write to it. This user is root."""
    if os.geteuid():
        pytest.skip("needs root")
    statelog.open(path).close()
    lock_path(path).unlink()
    os.chown(path, OWNER, OWNER + 1)
    path.chmod(0o660)
    return path


def owner_and_mode(path):
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


@pytest.mark.slow
def test_store_is_never_a_standard_stream(path):
    done = subprocess.run([sys.executable, "-c", CLOSED_STREAMS, str(path)], timeout=600, check=False)
    assert done.returncode == 0
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] == 49
        assert store.verify().ok


@pytest.mark.slow
def test_opened_file_is_above_closed_standard_streams(tmp_path):
    code = (
        "import os, sys\n"
        "from statelog.storage.file.descriptors import open_file\n"
        "os.close(0); os.close(2)\n"
        "descriptor = open_file(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "print(descriptor > 2, os.readlink('/proc/self/fd/2') == os.devnull, os.get_inheritable(2))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == ["True", "True", "False"]


def test_opened_file_is_closed_in_children(tmp_path):
    descriptor = open_file(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_side_files_have_the_owner_and_mode_of_the_store(foreign):
    before = os.umask(0o077)
    try:
        with statelog.open(foreign) as store:
            store.thread("t").commit({"n": 1})
            assert owner_and_mode(lock_path(foreign)) == (OWNER, OWNER + 1, 0o660)
            assert owner_and_mode(journal_path(foreign)) == (OWNER, OWNER + 1, 0o660)
    finally:
        os.umask(before)


def test_wake_file_has_the_owner_and_mode_of_the_store(foreign):
    store_file = StoreFile.open(foreign)
    try:
        store_file.wake.wait(store_file.flushed_lsn(), 0.01)
        assert owner_and_mode(wake_path(store_file.path)) == (OWNER, OWNER + 1, 0o660)
    finally:
        store_file.close()


def test_an_existing_sidecar_file_keeps_its_owner_and_mode(foreign):
    other = foreign.with_name("somebody's")
    other.write_bytes(b"")
    other.chmod(0o600)
    os.link(other, journal_path(foreign))
    os.close(open_journal(foreign, store=foreign.stat()))
    assert owner_and_mode(other) == (0, 0, 0o600)


def test_a_sidecar_file_of_an_unprivileged_user_has_the_mode(tmp_path, monkeypatch):
    def refuse(_descriptor, _user, _group):
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    store = os.stat_result((0o100644, 0, 0, 1, OWNER, OWNER, 0, 0, 0, 0))
    descriptor = open_side_file(tmp_path / "side", os.O_RDWR, store)
    try:
        assert owner_and_mode(tmp_path / "side") == (os.geteuid(), os.getegid(), 0o644)
    finally:
        os.close(descriptor)


def test_a_correct_owner_is_not_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fchown", None)
    descriptor = open_file(tmp_path / "side", os.O_RDWR | os.O_CREAT)
    try:
        follow_owner(descriptor, os.fstat(descriptor), 0o640)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o640
    finally:
        os.close(descriptor)
