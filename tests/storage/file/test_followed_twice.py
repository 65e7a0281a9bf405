"""A read succeeds although other processes replace the file several times by compactions while it begins."""

import subprocess
import sys
import threading

import pytest

import statelog
from statelog.store.session import session_of

COMPACT = "import statelog, sys\nwith statelog.open(sys.argv[1]) as store: store.compact()"


@pytest.mark.slow
def test_a_read_follows_consecutive_compactions(path, monkeypatch):
    def compact_elsewhere():
        subprocess.run([sys.executable, "-c", COMPACT, str(path)], check=True, timeout=60)

    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        store_file = session_of(store).engine.store_file
        follow, replacements = store_file.lmdb_file.follow, [compact_elsewhere, compact_elsewhere]

        def follow_and_be_replaced():
            follow()
            # The background flusher follows, too. The read has to follow both compactions itself.
            if replacements and threading.current_thread() is threading.main_thread():
                replacements.pop()()

        monkeypatch.setattr(store_file.lmdb_file, "follow", follow_and_be_replaced)
        compact_elsewhere()
        assert store.thread("t").state["n"] == 1
        assert replacements == []
