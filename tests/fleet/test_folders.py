"""A folder as a storage: missing objects, names that leave the folder, and killed processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import forks
import pytest

from statelog.errors import AccessError, NotFoundError, RemoteError, UsageError
from statelog.fleet.archive import Outcome
from statelog.fleet.folders import FolderArchive

SWAPPING = """
import os, sys
from statelog.fleet.folders import FolderArchive
archive = FolderArchive(sys.argv[1])
while True:
    found = archive.read("s/head")
    number = int(found.data[:8]) + 1
    if isinstance(archive.swap("s/head", b"%08d" % number * 5000, found.token), str):
        os.write(1, b"%08d\\n" % number)
"""

COUNTING = """
import sys
from statelog.fleet.folders import FolderArchive
archive = FolderArchive(sys.argv[1])
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
for _ in range(200):
    done = None
    while not isinstance(done, str):
        found = archive.read("s/head")
        done = archive.swap("s/head", b"%d" % (int(found.data) + 1), found.token)
"""


@pytest.fixture
def folder(tmp_path):
    """An existing folder."""
    made = tmp_path / "archive"
    made.mkdir()
    return made


@pytest.fixture
def archive(folder):
    """The folder, opened as a storage."""
    return FolderArchive(folder)


BAD_NAMES = [
    "",
    "/",
    "/etc/passwd",
    "../out",
    "s/../../out",
    "s/..",
    ".",
    "s//head",
    "s/./head",
    "s/",
    "@new/x",
    "a b",
    "ü",
    "a\0",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leaves_the_folder_is_refused(archive, tmp_path, name):
    requests = [
        lambda: archive.read(name),
        lambda: archive.look(name),
        lambda: archive.create(name, b""),
        lambda: archive.swap(name, b"", "token"),
        lambda: archive.remove([name]),
    ]
    for request in requests:
        with pytest.raises(UsageError) as caught:
            request()
        assert caught.value.value == name
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("prefix", ["../", "/", "/etc", "s/../"])
def test_a_prefix_that_leaves_the_folder_is_refused(archive, prefix):
    for request in (archive.names, archive.ages):
        with pytest.raises(UsageError):
            request(prefix)


def test_restoring_equal_bytes_gives_a_different_token(archive):
    first = archive.create("s/head", b"same")
    second = archive.swap("s/head", b"other", first)
    third = archive.swap("s/head", b"same", second)
    assert len({first, second, third}) == 3
    assert archive.swap("s/head", b"stale", first) is Outcome.REFUSED


def test_tokens_advance_even_if_the_clock_was_set_back(archive, folder):
    token = archive.create("s/head", b"same")
    in_an_hour = time.time_ns() + 3600 * 10**9
    os.utime(folder / "s" / "head", ns=(in_an_hour, in_an_hour))
    token = archive.look("s/head")
    assert archive.swap("s/head", b"same", token) == archive.look("s/head") != token
    assert (folder / "s" / "head").stat().st_mtime_ns == in_an_hour + 1
    assert archive.ages("") == {"s/head": 0.0}


def test_a_removed_folder_is_not_treated_as_empty(archive, folder):
    archive.create("s/head", b"")
    shutil.rmtree(folder)
    requests = [
        lambda: archive.read("s/head"),
        lambda: archive.look("s/head"),
        lambda: archive.create("s/head", b""),
        lambda: archive.swap("s/head", b"", "token"),
        lambda: archive.names(""),
    ]
    for request in requests:
        with pytest.raises(NotFoundError, match="create it first"):
            request()
    assert not folder.exists()
    folder.mkdir()  # The mount point of a disk.
    for request in requests:
        with pytest.raises(NotFoundError):
            request()
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(folder):
    folder.chmod(0o500)
    with pytest.raises(AccessError) as caught:
        FolderArchive(folder)
    assert caught.value.path == str(folder)


def test_missing_permission_raises_access_error(archive, folder, monkeypatch):
    def refuse(path, *_args, **_options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessError) as caught:
        archive.create("s/head", b"")
    assert caught.value.path == str(folder)


def test_a_full_disk_leaves_no_partial_object(archive, folder, monkeypatch):
    token = archive.create("s/head", b"old")

    def fill(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("statelog.fleet.folders.write_all", fill)
    with pytest.raises(RemoteError, match="No space"):
        archive.swap("s/head", b"new", token)
    assert archive.read("s/head").data == b"old"
    assert list((folder / "@new").iterdir()) == []


@pytest.mark.slow
def test_a_process_killed_at_any_time_leaves_the_old_object_or_the_new_one(archive):
    archive.create("s/head", b"%08d" % 0 * 5000)
    for number in range(8):
        command = [sys.executable, "-c", SWAPPING, str(archive._root)]
        with forks.Popen(command, stdout=subprocess.PIPE) as process:
            told = process.stdout.readline()
            time.sleep(0.003 * number)
            process.send_signal(signal.SIGKILL)
            told = int((process.stdout.read() or told).split()[-1])
        found = archive.read("s/head").data
        assert found == found[:8] * 5000
        assert int(found[:8]) in {told, told + 1}
    assert isinstance(archive.swap("s/head", b"next", archive.look("s/head")), str), "no lock outlives its process"


@pytest.mark.slow
def test_concurrent_swaps_of_several_processes_lose_no_update(archive):
    archive.create("s/head", b"0")
    command = [sys.executable, "-c", COUNTING, str(archive._root)]
    pipe = subprocess.PIPE
    processes = [forks.Popen(command, stdin=pipe, stdout=pipe) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert archive.read("s/head").data == b"600"


def test_temporary_files_of_killed_processes_are_removed_after_an_hour(folder):
    FolderArchive(folder).close()
    old, fresh = folder / "@new" / "old", folder / "@new" / "fresh"
    old.touch()
    fresh.touch()
    os.utime(old, (time.time() - 3700,) * 2)
    again = FolderArchive(folder)
    assert [path.name for path in (folder / "@new").iterdir()] == ["fresh"]
    assert again.names("") == []


def test_empty_folders_are_removed_and_lock_files_stay_few(archive, folder):
    names = [f"{number}/log/1/1" for number in range(300)]
    for name in names:
        archive.create(name, b"")
    archive.remove(names)
    assert sorted(path.name for path in folder.iterdir()) == ["@locks", "@new"]
    assert len(list((folder / "@locks").iterdir())) <= 64
