"""A read succeeds although other processes replace the file several times by compactions while it begins."""

import subprocess
import sys
import threading

import pytest

import statelog
from statelog.storage.lmdb_file import LmdbFile
from statelog.store.session import session_of

COMPACT = "import statelog, sys\nwith statelog.open(sys.argv[1]) as store: store.compact()"


@pytest.mark.slow
def test_a_read_follows_consecutive_compactions(path, monkeypatch):
    def compact_elsewhere():
        subprocess.run([sys.executable, "-c", COMPACT, str(path)], check=True, timeout=60)

    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        store_file = session_of(store).engine.store_file
        store_file.background_flusher.stop()  # It follows, too.
        follow, replacements = store_file.lmdb_file.follow, [compact_elsewhere, compact_elsewhere]

        def follow_and_be_replaced():
            follow()
            if replacements and threading.current_thread() is threading.main_thread():
                replacements.pop()()

        monkeypatch.setattr(store_file.lmdb_file, "follow", follow_and_be_replaced)
        compact_elsewhere()
        assert store.thread("t").state["n"] == 1
        assert replacements == []


@pytest.mark.slow
@pytest.mark.parametrize("replaced_at", [(1, 2), (1, 3), (1, 2, 3), (1, 3, 5)])
def test_a_read_follows_a_compaction_that_ends_at_any_look_at_the_file(path, monkeypatch, replaced_at):
    """Another compaction replaces the file just after a look that found the file not replaced."""
    looks = 0
    has_moved = LmdbFile.has_moved.fget

    def looked(file):
        nonlocal looks
        found = has_moved(file)
        if not found and file is watched and threading.current_thread() is threading.main_thread():
            looks += 1
            if looks in replaced_at:
                subprocess.run([sys.executable, "-c", COMPACT, str(path)], check=True, timeout=60)
        return found

    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        store_file = session_of(store).engine.store_file
        store_file.background_flusher.stop()  # It follows, too.
        watched = store_file.lmdb_file
        subprocess.run([sys.executable, "-c", COMPACT, str(path)], check=True, timeout=60)
        monkeypatch.setattr(LmdbFile, "has_moved", property(looked))
        assert store.thread("t").state["n"] == 1
        assert looks >= 2
