"""A store whose creation was not needed is removed, unless it has data or another user."""

import pytest

import statelog
from statelog.errors import StoreLockedError
from statelog.store.session import session_of


def test_an_empty_store_is_removed_with_all_its_files(path):
    with statelog.open(path) as store:
        session_of(store).withdraw()
    assert list(path.parent.iterdir()) == []


def test_another_process_can_create_a_store_of_the_same_name_before_the_first_is_closed(
    path, start_child, open_store_file, check_whole
):
    with statelog.open(path) as store:
        session_of(store).withdraw()
        child = start_child("say(StoreFile.open(sys.argv[1]).committer.submit(append)); time.sleep(60)")
        assert child.stdout.readline() == "1\n"
    child.kill()
    child.wait()
    assert check_whole(open_store_file()) == 1


def test_a_store_with_a_record_is_kept(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        session_of(store).withdraw()
    with statelog.open(path, create=False) as store:
        assert store.thread("t").state == {"n": 1}


def test_a_store_that_another_process_has_open_is_kept(path, start_child):
    with statelog.open(path) as store:
        child = start_child("store_file = StoreFile.open(sys.argv[1]); say('open'); sys.stdin.read()")
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError):
            session_of(store).withdraw()
    assert path.exists()
