"""The file of the index: made, shared, made anew, and without a byte of what was removed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from threading import Thread as OsThread

import pytest

import statelog
from statelog import reducers
from statelog.errors import FormatError
from statelog.search.index import Filter

SCHEMA = {"messages": reducers.extend}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.state"


def index_of(path):
    return path.with_name("agent.state-search")


def files_of(path):
    return [each for each in path.parent.iterdir() if each.name.startswith("agent.state-search")]


def say(store, *texts, thread="t"):
    """Commit messages: in one version."""
    store.thread(thread, schema=SCHEMA).commit({"messages": [{"role": "user", "content": text} for text in texts]})


def found(store, query="refund", **conditions):
    return sorted(hit.text for hit in store.search(query, limit=1000, **conditions))


def raw(path):
    return b"".join(each.read_bytes() for each in files_of(path))


def make(path, *texts):
    with statelog.open(path) as store:
        say(store, *texts)
        assert len(found(store)) == len(texts)


def test_the_index_has_the_mode_of_the_store_and_no_text(path):
    make(path, "a refund of 30 dollars")
    path.chmod(0o640)
    index_of(path).unlink()
    with statelog.open(path) as store:
        found(store)
        assert {stat.S_IMODE(each.stat().st_mode) for each in files_of(path)} == {0o640}
        assert b"refund of 30" not in raw(path)


def test_a_second_search_reads_only_new_records(path):
    make(path, "refund 1", "refund 2")
    with statelog.open(path) as store:
        before = index_of(path).stat().st_ino
        say(store, "refund 3")
        assert found(store) == ["refund 1", "refund 2", "refund 3"]
        assert store.search("refund").notes == ()
    assert index_of(path).stat().st_ino == before
    with sqlite3.connect(index_of(path)) as connection:
        assert connection.execute("SELECT count(*) FROM docs").fetchone() == (3,)
    connection.close()


def segments_of(path):
    with sqlite3.connect(index_of(path)) as connection:
        (count,) = connection.execute("SELECT count(DISTINCT segid) FROM texts_idx").fetchone()
    connection.close()
    return count


def test_segments_are_merged_when_the_index_has_doubled(path, monkeypatch):
    monkeypatch.setattr("statelog.search.index._MERGE_ROWS_MIN", 100)
    monkeypatch.setattr("statelog.search.index._MERGE_PAGES", 1)
    segments = []
    with statelog.open(path) as store:
        for number in range(20):
            say(store, *(f"refund {each} of {number}" for each in range(10)))
            assert len(found(store)) == 10 * (number + 1)
            segments.append(segments_of(path))
    assert segments[9] == segments[19] == 1
    assert segments[8] > 4
    assert segments[18] > 4


def test_rows_that_another_process_adds_between_two_reads_are_skipped_or_found_once(path):
    with statelog.open(path) as store, statelog.open(path) as other:
        say(store, *(f"refund {number}" for number in range(100)))
        found(store)
        index = store._session.kept["search"]
        rows = []
        for match in index.matches('"refund"', Filter(), first=10):
            if len(rows) == 10:
                say(other, *["refund"] * 30, thread="u")  # They are better than those before.
                assert len(found(other)) == 130
            rows.append((match.source.thread, match.item))
    assert len({*rows}) == len(rows) == 130


def truncate_to(size):
    def damage(index):
        os.truncate(index, size if size >= 0 else index.stat().st_size + size)

    return damage


def scribble(index):
    size = index.stat().st_size
    with index.open("r+b") as file:
        for at in range(100, size, 512):
            file.seek(at)
            file.write(b"\xa5" * 100)


def fill_with_zeros(index):
    size = index.stat().st_size
    with index.open("r+b") as file:
        file.write(bytes(size))


def drop_table(index):
    connection = sqlite3.connect(index)
    connection.execute("DROP TABLE docs")
    connection.commit()
    connection.close()


def garble_a_name(index):
    data = index.read_bytes()
    index.write_bytes(data.replace(b"tokenize='unicode61", b"tokenize='\x88nicode61"))


def garble_a_path(index):
    with sqlite3.connect(index) as connection:
        connection.execute("UPDATE sources SET path = '['")
    connection.close()


TO_NOTHING = truncate_to(0)
SILENT = (os.unlink, TO_NOTHING)
"""After these, there is no index, and so nothing to be said about one."""


@pytest.mark.parametrize(
    "damage",
    [
        *SILENT,
        truncate_to(10),
        truncate_to(5000),
        truncate_to(-4096),
        scribble,
        fill_with_zeros,
        drop_table,
        garble_a_name,
        garble_a_path,
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_deleted_or_damaged_index_is_made_anew(path, damage, is_open):
    texts = [f"refund {number} of many" for number in range(200)]
    make(path, *texts)
    if is_open:
        with statelog.open(path) as store:
            found(store)
            store._session.kept["search"]._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            damage(index_of(path))
            say(store, "refund last")
            assert found(store) == sorted([*texts, "refund last"])
    else:
        damage(index_of(path))
        with statelog.open(path) as store:
            hits = store.search("refund", limit=1000)
            assert sorted(hit.text for hit in hits) == sorted(texts)
            assert bool(hits.notes) == (damage not in SILENT)


def test_the_index_of_another_store_is_made_anew(path, tmp_path):
    make(path, "refund here")
    (tmp_path / "other").mkdir()
    make(tmp_path / "other" / "agent.state", "refund there", "refund everywhere")
    shutil.copy(index_of(tmp_path / "other" / "agent.state"), index_of(path))
    with statelog.open(path) as store:
        hits = store.search("refund")
        assert [hit.text for hit in hits] == ["refund here"]
        assert hits.notes == ("the text index was rebuilt: it was built from a different store",)


def test_the_index_of_a_later_state_than_that_of_a_restored_file_is_made_anew(path, tmp_path):
    make(path, "refund 1")
    shutil.copy(path, tmp_path / "backup")
    make_more(path, "refund 2")
    inode = path.stat().st_ino
    path.write_bytes((tmp_path / "backup").read_bytes())
    assert path.stat().st_ino == inode
    with statelog.open(path) as store:
        say(store, "another refund 3", "another refund 4")
        hits = store.search("refund")
        assert sorted(hit.text for hit in hits) == ["another refund 3", "another refund 4", "refund 1"]
        assert hits.notes == ("the text index was rebuilt: it was built from a different history of this store",)


def make_more(path, *texts):
    with statelog.open(path) as store:
        say(store, *texts)
        found(store)


def test_an_index_of_an_earlier_copy_goes_on_from_there(path, tmp_path):
    make(path, "refund 1")
    shutil.copy(index_of(path), tmp_path / "backup")
    make_more(path, "refund 2", "refund 3")
    shutil.copy(tmp_path / "backup", index_of(path))
    with statelog.open(path) as store:
        assert found(store) == ["refund 1", "refund 2", "refund 3"]


@pytest.mark.parametrize("kind", ["link", "folder", "text", "database"])
def test_a_file_of_somebody_else_is_left_alone(path, tmp_path, kind):
    with statelog.open(path) as store:
        say(store, "refund")
        target = tmp_path / "target"
        target.write_bytes(b"")
        if kind == "link":
            index_of(path).symlink_to(target)
        elif kind == "folder":
            index_of(path).mkdir()
        elif kind == "text":
            index_of(path).write_text("my notes on searching\n" * 500)
        else:
            connection = sqlite3.connect(index_of(path))
            connection.execute("CREATE TABLE mine(a)")
            connection.commit()
            connection.close()
        before = index_of(path).read_bytes() if kind != "folder" else b""
        with pytest.raises(FormatError) as caught:
            store.search("refund")
        assert caught.value.facts["journal"] == str(index_of(path))
        assert (index_of(path).read_bytes() if kind != "folder" else b"") == before
        if kind == "link":
            store.compact()
            assert index_of(path).is_symlink()


def test_a_store_that_is_open_for_reading_has_an_index_of_its_own(path):
    with statelog.open(path) as store:
        say(store, "refund 1")
    with statelog.open(path, read_only=True) as store:
        hits = store.search("refund")
        assert [hit.text for hit in hits] == ["refund 1"]
        assert "this program builds its own" in hits.notes[0]
    assert files_of(path) == []


def test_a_store_that_is_open_for_reading_uses_the_index_that_is_there(path, tmp_path):
    make(path, "refund 1")
    with statelog.open(path) as store:
        say(store, "refund 2")
    with statelog.open(path, read_only=True) as store:
        assert found(store) == ["refund 1", "refund 2"]
        assert store.search("refund").notes == ()
    make(tmp_path / "other.state", "refund 3")
    shutil.copy(tmp_path / "other.state-search", index_of(path))
    before = index_of(path).read_bytes()
    with statelog.open(path, read_only=True) as store:
        assert found(store) == ["refund 1", "refund 2"]
    assert index_of(path).read_bytes() == before


# --- removed text ------------------------------------------------------------------------


def test_no_byte_of_a_deleted_text_is_in_the_index_after_a_compaction(path):
    with statelog.open(path) as store:
        say(store, "refund 1", thread="kept")
        say(store, *[f"secretword{number:03} refund" for number in range(50)])
        assert len(found(store)) == 51
        assert b"secretword" in raw(path)
        store.delete_thread("t")
        assert found(store) == ["refund 1"]
        assert b"secretword" in raw(path)  # the negative control: only the compaction removes it
        store.compact()
        assert b"secretword" not in raw(path)
        assert found(store) == ["refund 1"]
        assert b"secretword" not in raw(path)


def test_another_process_that_has_the_index_open_finds_the_new_one(path):
    with statelog.open(path) as store, statelog.open(path) as other:
        say(store, "refund 1", "refund 2")
        assert len(found(other)) == 2
        store.compact()
        say(store, "refund 3")
        assert len(found(other)) == 3
        assert len(found(store)) == 3


def test_an_import_is_found(path, tmp_path):
    with statelog.open(tmp_path / "source") as source, (tmp_path / "export").open("wb") as target:
        say(source, "refund 1")
        source.export(target, threads=["t"])
    with statelog.open(path) as store, (tmp_path / "export").open("rb") as exported:
        say(store, "refund 0", thread="u")
        assert found(store) == ["refund 0"]
        store.import_(exported)
        assert found(store) == ["refund 0", "refund 1"]


# --- several at once -----------------------------------------------------------------------

WRITER = """
import sys, statelog
from statelog import reducers
name, count = sys.argv[2], int(sys.argv[3])
with statelog.open(sys.argv[1], durability="interval") as store:
    thread = store.thread(name, schema={"messages": reducers.append})
    for number in range(count):
        thread.commit({"messages": {"role": "user", "content": f"refund {name} {number}"}})
        hits = store.search(f"refund {name}", limit=1000)
        assert len(hits) == number + 1, (name, number, len(hits))
"""


@pytest.mark.slow
def test_two_processes_search_and_write_at_once(path):
    statelog.open(path).close()
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "8"], stderr=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    errors = [each.communicate()[1] for each in running]
    assert [each.returncode for each in running] == [0, 0], errors
    with statelog.open(path) as store:
        assert len(found(store)) == 16


KILLED = """
import os, signal, sys, statelog
from statelog.search import index
insert = index.Index._insert
def die(self, connection, rows):
    insert(self, connection, rows)
    os.kill(os.getpid(), signal.SIGKILL)
with statelog.open(sys.argv[1]) as store:
    store.search("refund")
    store.thread("t").commit({"messages": [{"role": "user", "content": "refund 2"}]})
    index.Index._insert = die
    store.search("refund")
"""


@pytest.mark.slow
def test_a_process_that_is_killed_as_it_writes_the_index_loses_nothing(path):
    make(path, "refund 1")
    died = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert died.returncode == -signal.SIGKILL
    with statelog.open(path) as store:
        assert found(store) == ["refund 1", "refund 2"]
        assert found(store) == ["refund 1", "refund 2"]


def test_os_threads_share_an_open_store(path):
    failures = []

    def work(store, name):
        try:
            for number in range(3):
                say(store, f"refund {name} {number}", thread=name)
                assert len(found(store, f"refund {name}")) == number + 1
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    with statelog.open(path) as store:
        running = [OsThread(target=work, args=(store, name)) for name in ("left", "middle", "right")]
        for each in running:
            each.start()
        for each in running:
            each.join()
    assert failures == []


def test_a_child_of_a_fork_leaves_the_index_alone(path):
    with statelog.open(path) as store:
        say(store, "refund 1")
        found(store)
        child = os.fork()
        if child == 0:
            try:
                store.search("refund")
            except statelog.errors.ForkedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        say(store, "refund 2")
        assert found(store) == ["refund 1", "refund 2"]
