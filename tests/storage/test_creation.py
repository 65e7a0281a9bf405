import errno
import os

import pytest

from statelog.errors import StoreFullError
from statelog.storage import faults
from statelog.storage.creation import create_store, remove_leftovers

CREATION_POINTS = [point for point in faults.POINTS if point.startswith("creation.")]
POINTS_AFTER_LINK = {"creation.after_link", "creation.after_directory_sync", "creation.after_unlink"}

CREATE = "say(Environment.open(sys.argv[1], max_size_bytes=2**26).store_id.hex())"


@pytest.fixture
def leftovers(path):
    return lambda: [name for name in os.listdir(path.parent) if name.endswith(".creating")]


@pytest.mark.parametrize("point", CREATION_POINTS)
def test_a_creation_killed_anywhere_leaves_no_store_or_a_whole_one(
    run_child, open_environment, path, point, leftovers, append, check_whole
):
    assert run_child(CREATE, fault=f"{point}:1:kill") == (-9, [])
    assert path.exists() == (point in POINTS_AFTER_LINK)
    environment = open_environment()
    assert check_whole(environment) == 0
    assert environment.committer.submit(append) == 1
    assert leftovers() == []
    assert os.stat(path).st_nlink == 1


def test_a_creation_written_in_place_would_be_caught_by_such_a_test(path, open_environment):
    """Negative control: half of a store under its own name."""
    create_store(path)
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(Exception, match="damaged"):
        open_environment()


def test_processes_creating_at_once_end_up_with_one_store(start_child, leftovers):
    children = [start_child("sys.stdin.readline(); " + CREATE) for _ in range(6)]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    store_ids = {child.communicate(timeout=30)[0] for child in children}
    assert len(store_ids) == 1
    assert len(store_ids.pop().strip()) == 32
    assert leftovers() == []


def test_a_creation_that_loses_the_race_leaves_the_winners_store(path, open_environment, leftovers):
    def win():
        faults.disarm()
        create_store(path)

    faults.arm("creation.before_link", action=win)
    create_store(path)
    won = path.read_bytes()
    assert open_environment().path.read_bytes()[8192:] == won[8192:]
    assert leftovers() == []


def test_a_creation_whose_temporary_file_is_taken_away_tries_again(path, open_environment, leftovers, check_whole):
    def take_away():
        for name in leftovers():
            (path.parent / name).unlink()

    faults.arm("creation.before_link", action=take_away)
    assert check_whole(open_environment()) == 0


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
def test_a_file_system_without_hard_links_will_do(open_environment, check_whole, leftovers):
    assert check_whole(open_environment()) == 0
    assert leftovers() == []


@pytest.mark.usefixtures("no_hard_links")
def test_an_existing_file_is_never_replaced_without_hard_links_either(path):
    faults.arm("creation.before_link", action=lambda: path.write_text("precious"))
    create_store(path)
    assert path.read_text() == "precious"


def test_creation_flushes_file_and_directory_in_this_order(path, monkeypatch):
    """What a power cut leaves is for the power-loss harness; that the flushes are there, is seen here."""
    happened = []
    for name in ("link", "fsync"):
        original = getattr(os, name)

        def record(*arguments, _name=name, _original=original, **options):
            happened.append(
                (_name, os.path.basename(os.readlink(f"/proc/self/fd/{arguments[0]}")))
                if _name == "fsync"
                else (_name, os.path.basename(arguments[1]))
            )
            return _original(*arguments, **options)

        monkeypatch.setattr(os, name, record)
    create_store(path)
    assert happened == [("link", path.name), ("fsync", path.parent.name)]


def test_leftovers_of_other_stores_and_of_living_creators_stay(path, leftovers):
    other = path.parent / ".other.state.0123456789abcdef.creating"
    stale = path.parent / ".agent.state.0123456789abcdef.creating"
    other.touch()
    stale.touch()

    def look():
        remove_leftovers(path)
        assert len(leftovers()) == 2  # the other's, and the one of this creation

    faults.arm("creation.before_link", action=look)
    create_store(path)
    assert leftovers() == [other.name]


def test_a_full_disk_refuses_creation_and_leaves_nothing(path, monkeypatch, leftovers):
    def refuse():
        raise OSError(errno.ENOSPC, "no space left on device")

    faults.arm("creation.before_lmdb_commit", action=refuse)
    with pytest.raises(StoreFullError):
        create_store(path)
    assert not path.exists()
    assert leftovers() == []
