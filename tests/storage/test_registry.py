import os
import threading

import pytest
from waiting import until

from statelog.errors import StorageError, UsageError


def test_opening_twice_shares_one_store_file(open_store_file, append):
    first, second = open_store_file(), open_store_file()
    assert first is second
    first.close()
    assert second.committer.submit(append) == 1


@pytest.mark.parametrize("name", ["relative", "dotted", "symlink", "hard link", "linked directory"])
def test_one_file_by_another_name_is_the_same_store_file(open_store_file, store_file, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "symlink.state").symlink_to(store_file.path)
    os.link(store_file.path, tmp_path / "hard.state")
    (tmp_path / "directory").symlink_to(tmp_path)
    names = {
        "relative": "agent.state",
        "dotted": "below/../agent.state",
        "symlink": "symlink.state",
        "hard link": "hard.state",
        "linked directory": "directory/agent.state",
    }
    assert open_store_file(names[name]) is store_file


def test_a_dangling_symlink_creates_its_target(open_store_file, path, tmp_path):
    link = tmp_path / "link.state"
    link.symlink_to(path)
    open_store_file(link)
    assert path.exists()
    assert link.is_symlink()


@pytest.mark.parametrize(
    "options",
    [{"read_only": True}, {"durability": "interval"}, {"max_size_bytes": 2**27}],
    ids=lambda options: next(iter(options)),
)
def test_differing_options_are_a_usage_error_that_shows_both(open_store_file, store_file, append, options):
    with pytest.raises(UsageError) as caught:
        open_store_file(**options)
    assert caught.value.open_with != caught.value.given
    assert store_file.committer.submit(append) == 1
    store_file.close()
    if not options.get("read_only"):
        assert open_store_file(**options).committer.submit(append) == 2


def test_other_options_are_accepted_after_all_have_closed(open_store_file):
    first, second = open_store_file(), open_store_file()
    first.close()
    second.close()
    assert open_store_file(durability="interval").options.durability == "interval"


def test_the_shortest_interval_of_several_openings_applies(open_store_file, append):
    first = open_store_file(durability="interval", interval_ms=60_000)
    first.committer.submit(append)
    assert first.wal.is_dirty
    assert open_store_file(durability="interval", interval_ms=5) is first
    assert open_store_file(durability="interval", interval_ms=1000).background_flusher.interval_s == 0.005
    until(lambda: not first.wal.is_dirty)


def test_different_files_are_different_store_files(open_store_file, store_file, tmp_path):
    assert open_store_file(tmp_path / "other.state") is not store_file


@pytest.mark.usefixtures("store_file")
def test_a_file_removed_while_open_is_refused(open_store_file, path):
    path.unlink()
    with pytest.raises(StorageError, match="removed"):
        open_store_file()


def test_many_threads_that_open_concurrently_get_one_store_file(open_store_file):
    barrier = threading.Barrier(8)
    opened = []

    def open_one():
        barrier.wait()
        opened.append(open_store_file())

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    assert len(set(map(id, opened))) == 1
