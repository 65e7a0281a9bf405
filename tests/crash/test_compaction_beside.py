"""Processes that commit while another process repeatedly compacts their store, and are killed."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import forks
import pytest
from waiting import until

import statelog
from statelog.errors import StoreLockedError
from statelog.storage import faults
from statelog.storage.wal.wal import Wal

WRITE = """
import sys, statelog
path, name, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
if sys.argv[4:]:
    exec(sys.argv[4])
with statelog.open(path, lock_timeout_s=20) as store:
    thread = store.thread(name)
    assert thread.state.get("number", 0) >= number, "what was acknowledged is gone"
    number = thread.state.get("number", 0)
    while True:
        number += 1
        thread.commit({"number": number, "text": f"{name} {number} " * 40})
        print(number, flush=True)
"""

COMPACT = """
import sys, statelog
with statelog.open(sys.argv[1], lock_timeout_s=20) as store:
    print("compacting", flush=True)
    while True:
        try:
            store.compact()
        except statelog.errors.StoreLockedError:
            pass
"""

COMPACT_ONCE = """
import sys, statelog
with statelog.open(sys.argv[1], lock_timeout_s=20) as store:
    print("open", flush=True)
    sys.stdin.readline()
    store.compact()
"""

FORGET = """
from statelog.storage.lmdb_file import LmdbFile
LmdbFile.has_moved = False
"""
"""The negative control: a process that does not find out that the file has a successor."""


class Writer:
    """A process that commits to its own thread, and what it has acknowledged over all restarts."""

    def __init__(self, path, name, prelude=""):
        self.name, self.acknowledged, self.child = name, 0, None
        self._path, self._prelude, self._said = path, prelude, path.with_name(f"{name}.said")

    def start(self):
        command = [sys.executable, "-c", WRITE, self._path, self.name, str(self.acknowledged), self._prelude]
        with self._said.open("wb") as said:
            self.child = forks.Popen(command, stdout=said, stderr=subprocess.PIPE, text=True)

    def said_size_bytes(self):
        """Return the size of its output since the last start. Each commit is a line."""
        return self._said.stat().st_size

    def has_ended(self):
        return self.child.poll() is not None

    def kill(self):
        """Kill the process. Return the cause of its earlier death, or None."""
        self.child.kill()
        _, errors = self.child.communicate()
        self.acknowledged = max([self.acknowledged, *(int(line) for line in self._said.read_text().split())])
        return errors


def wait_until_all_go_on(path, compacting, writers):
    """Return once the file was replaced, and each writer has committed after that or has ended."""
    before = path.stat().st_ino
    until(lambda: path.stat().st_ino != before or compacting.poll() is not None)
    said = {writer: writer.said_size_bytes() for writer in writers}
    until(lambda: all(each.has_ended() or each.said_size_bytes() > said[each] for each in writers))


def run(path, seed, kills, prelude=""):
    """Let four processes commit and one compact, and kill one of them repeatedly.

    A kill comes only after all of them have made progress.

    Returns:
        The writers, their causes of death, and the number of files.
    """
    rng = random.Random(seed)
    statelog.open(path).close()
    writers = [Writer(path, f"writer {number}", prelude) for number in range(4)]
    compactor = [sys.executable, "-c", COMPACT, path]
    compacting = forks.Popen(compactor)
    errors = []
    for writer in writers:
        writer.start()
    inodes = {path.stat().st_ino}
    for _ in range(kills):
        wait_until_all_go_on(path, compacting, writers)
        inodes.add(path.stat().st_ino)
        time.sleep(rng.uniform(0, 0.2))
        victim = rng.choice([*writers, None])
        if victim is None:
            compacting.kill()
            compacting.wait()
            compacting = forks.Popen(compactor)
        else:
            errors.append(victim.kill())
            victim.start()
    compacting.kill()
    compacting.wait()
    errors += [writer.kill() for writer in writers]
    return writers, [error for error in errors if error], len(inodes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_no_acknowledged_commit_is_lost(path, seed):
    writers, errors, files = run(path, seed, kills=8 if seed == 1 else 24)
    assert errors == []
    assert files > 1
    with statelog.open(path) as store:
        for writer in writers:
            head = store.thread(writer.name).state
            assert head["number"] >= writer.acknowledged > 0
            assert head["text"] == f"{writer.name} {head['number']} " * 40
        assert store.verify(deep=True).problems == []


@pytest.mark.slow
def test_a_writer_that_continues_in_the_old_file_is_detected(path):
    """Negative control of the test above."""
    writers, errors, _files = run(path, 3, kills=6, prelude=FORGET)
    with statelog.open(path) as store:
        lost = [w for w in writers if store.thread(w.name).state.get("number", 0) < w.acknowledged]
    assert lost or errors


@pytest.mark.parametrize("point", [point for point in faults.POINTS if point.startswith("compaction.")])
def test_a_compaction_killed_anywhere_does_not_disturb_other_processes(path, point):
    """The compacting process is killed. Processes that have the store open continue, and others can open it."""
    with statelog.open(path) as store:
        thread = store.thread("here")
        for number in range(20):
            thread.commit({"number": number})
        child = forks.run(
            [sys.executable, "-c", "import sys, statelog; statelog.open(sys.argv[1]).compact()", path],
            env={**os.environ, faults.ENVIRONMENT_VARIABLE: f"{point}:1:kill"},
            check=False,
        )
        assert child.returncode == (0 if point == "compaction.between_transactions" else -signal.SIGKILL)
        thread.commit({"number": 20})
        forks.run([sys.executable, "-c", COMMIT_AFTER, path], check=True)
        assert thread.state["number"] == 21
        store.compact()
        assert store.verify(deep=True).problems == []
    with statelog.open(path) as store:
        assert store.thread("here").state["number"] == 21


COMMIT_AFTER = """
import sys, statelog
with statelog.open(sys.argv[1]) as store:
    store.thread("here").commit({"number": 21})
"""

READ = """
import sys, statelog
with statelog.open(sys.argv[1]) as store, store.snapshot() as snapshot:
    print(snapshot.thread("here").state["number"], flush=True)
    sys.stdin.readline()
    print(snapshot.thread("here").state["number"], store.thread("here").state["number"], flush=True)
"""


def test_a_stopped_reader_blocks_no_other_process(path):
    with statelog.open(path, lock_timeout_s=20) as store:
        store.thread("here").commit({"number": 1})
        reader = forks.Popen(
            [sys.executable, "-c", READ, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdout.readline() == "1\n"
        os.kill(reader.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        for number in (2, 3):
            store.compact()
            store.thread("here").commit({"number": number})
        took_s = time.monotonic() - began_s
        os.kill(reader.pid, signal.SIGCONT)
        said, _ = reader.communicate("\n", timeout=300)
        assert (said, took_s < 10) == ("1 3\n", True)


STOP_AT_RENAME = """
import os, signal, sys, statelog
from statelog.storage import faults
from statelog.storage.wal.wal import Wal
faults.arm("compaction.before_rename", action=lambda: os.kill(os.getpid(), signal.SIGSTOP))
statelog.open(sys.argv[1]).compact()
"""


@pytest.mark.slow
def test_waiting_for_a_stopped_compaction_ends_at_the_timeout(path):
    with statelog.open(path, lock_timeout_s=0.5) as store:
        store.thread("here").commit({"number": 1})
        child = forks.Popen([sys.executable, "-c", STOP_AT_RENAME, path])
        try:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            assert store.thread("here").state["number"] == 1
            for attempt in (lambda: store.thread("here").commit({"number": 2}), store.compact):
                began_s = time.monotonic()
                with pytest.raises(StoreLockedError):
                    attempt()
                assert time.monotonic() - began_s < 5
        finally:
            child.send_signal(signal.SIGCONT)
        assert child.wait(300) == 0
        store.thread("here").commit({"number": 3})
        assert store.thread("here").state["number"] == 3


@pytest.mark.slow
def test_the_old_file_is_released_with_its_last_read(path):
    def descriptors():
        targets = [entry.readlink().name for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        return sum(target == f"{path.name} (deleted)" for target in targets)

    gc.collect()
    before = descriptors()  # Other tests of this process may have files of the same name.
    with statelog.open(path) as store:
        store.thread("here").commit({"number": 1})
        with store.snapshot():
            store.compact()
            assert descriptors() > before
        gc.collect()
        assert descriptors() == before


@pytest.mark.slow
def test_a_compaction_that_begins_during_a_rewrite_of_the_log_copies_no_removed_data(path, monkeypatch):
    """The commit was counted, but is not committed yet, so that copy is not the last one."""
    note_unappended, begun = Wal.note_unappended, []

    def note_and_compact(wal, *, rewrites):
        note_unappended(wal, rewrites=rewrites)
        if rewrites and not begun:
            begun.append(child.stdin.write(b"go\n"))
            child.stdin.flush()
            time.sleep(0.5)

    with statelog.open(path) as store:
        thread = store.thread("here")
        for number in range(50):
            thread.commit({"text": f"secret {number} " * 20})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with forks.Popen([sys.executable, "-c", COMPACT_ONCE, str(path)], **pipes) as child:
            assert child.stdout.readline() == b"open\n"
            monkeypatch.setattr(Wal, "note_unappended", note_and_compact)
            store.prune(keep_last=1)
            assert child.wait(300) == 0
        assert store.verify().problems == []
        assert [checkpoint.version for checkpoint in thread.history()] == [49]
    assert b"secret 3 " not in path.read_bytes()


@pytest.mark.parametrize(("times", "copies"), [(0, 1), (1, 2), (3, 4)])
def test_versions_removed_during_a_compaction_are_not_copied(path, times, copies):
    """Everything is copied again while others commit. They wait only for the last copy, after three failed ones."""
    made = []

    def let_go():
        made.append(len(made))
        faults.arm("compaction.before_first_sync", action=let_go)
        if len(made) <= times:
            thread.commit({"text": f"secret {len(made)}"})
            thread.commit({"text": ""})
            store.prune(keep_last=1)

    with statelog.open(path) as store:
        thread = store.thread("here")
        thread.commit({"text": "secret"})
        thread.commit({"text": ""})
        store.prune(keep_last=1)
        faults.arm("compaction.before_first_sync", action=let_go)
        try:
            store.compact()
        finally:
            faults.disarm()
        assert len(made) == copies
        assert thread.state["text"] == ""
        assert store.verify().ok
    assert b"secret" not in path.read_bytes()
