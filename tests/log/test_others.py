"""The cached state of this process equals the store, whatever other processes commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import forks
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statelog
from statelog.adapters.kit.lineage import Lineage  # noqa: F401 - named in the histories
from statelog.errors import AlreadyExistsError, ConflictError, StatelogError
from statelog.format.record import sealed
from statelog.log.batch import FOLLOWED_MAX, Head, RememberedState, read_log_end
from statelog.storage.file.sidecar_files import journal_path

CHILD = """
import statelog, sys
from statelog.adapters.kit import items
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.adapters.kit.lineage import Lineage
with statelog.open(sys.argv[1], durability=sys.argv[2]) as store:
    print("there", flush=True)
    for line in sys.stdin:
        try:
            exec(line)
            print("done", flush=True)
        except StatelogError as error:
            print(type(error).__name__, flush=True)
"""


class Other:
    """Another process that has the store open and executes commands."""

    def __init__(self, path, durability="commit"):
        command = [sys.executable, "-c", CHILD, str(path), durability]
        self.process = forks.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "there\n"

    def do(self, code):
        self.process.stdin.write(f"{code}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, "it died"
        return answer

    def end(self):
        self.process.communicate(timeout=300)
        assert self.process.returncode == 0


@contextmanager
def another(path, durability="commit"):
    other = Other(path, durability)
    try:
        yield other
        other.end()
    finally:
        other.process.kill()
        other.process.communicate()


@pytest.fixture
def other(store, path):
    store.thread("a").commit({"n": 0})
    with another(path) as process:
        yield process


@pytest.fixture
def followed(monkeypatch):
    """For each read of others' records, whether the memory was updated from them."""
    came, follow = [], RememberedState._follow

    def noted(self, transaction, count):
        came.append(follow(self, transaction, count))
        return came[-1]

    monkeypatch.setattr(RememberedState, "_follow", noted)
    return came


def check_recovery(store):
    """Check that a kill now leaves a store that recovers its present content."""
    last = store.last_lsn
    path = Path(store.path)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        journal = None
        while journal != journal_path(path).read_bytes():  # A background flusher may end a checkpoint meanwhile.
            journal = journal_path(path).read_bytes()
            shutil.copy(path, copy)
        journal_path(copy).write_bytes(journal)
        with statelog.open(copy) as recovered:
            assert recovered.last_lsn == last
            with store._engine.read() as ours, recovered._engine.read() as theirs:
                assert ours.transaction.get_log(last) == theirs.transaction.get_log(last)


def check_memory(store):
    """Check that the memory equals the store, and the journal equals the commits."""
    check_recovery(store)
    memory = store._engine.committer.last.memory
    with store._engine.read() as view:
        assert memory.end == read_log_end(view.transaction)
        for place, head in memory.heads.items():
            assert head[:2] == Head(*view.head_checkpoint(*place))[:2], place
            if head.page is not None:
                key = statelog.log.batch.keys.encode_page_key(*place, head.event.version)
                assert head.page == view.transaction.get_index(key)
        for (thread, branch, version), jump in memory.jumps.items():
            found = view.checkpoint_of(thread, branch, version)
            if found is not None:
                event = found[0]
                assert jump == (event.jump_branch, event.jump_version, event.jump_depth)
        for thread, row in memory.rows.items():
            assert row == view.thread(thread)
        for thread, time_us in memory.times_us.items():
            assert time_us >= view.last_time_us(thread)
        for thread, greatest in memory.greatest_ids.items():
            prefix = statelog.log.batch.keys.encode_checkpoint_id_key(thread, "")
            last = view.transaction.last_index(prefix)
            assert last is None or last[0][len(prefix) :] <= greatest


def remembers(store, thread_id, branch=0):
    with store._engine.read() as view:
        return (view.thread_lsn(thread_id), branch) in store._engine.committer.last.memory.heads


BESIDE = [
    'store.thread("b").commit({"n": 1})',
    'store.thread("b").commit({"n": 1}, id="z")',
    'store.thread("b").commit({"text": "x" * 5000})',
    'store.thread("b").commit({"text": " ".join(map(str, range(500_000)))})',
    'store.thread("b").commit({"n": 1}); store.thread("b").rollback(0)',
    'store.thread("b").commit({"n": 1}); store.thread("b").fork("side").commit({"n": 2})',
    'store.thread("b").commit({"n": 1}); store.thread("b").tag("here")',
    'store.thread("b").commit({"n": 1}); store.copy_thread("b", "c")',
    'store.board().set("key", 1)',
    'store.set_retention(threads="x*", keep_last=3)',
    'with store.transaction() as t: t.thread("b").commit({"n": 1}); t.thread("d").commit({"n": 2})',
]

ELSE = [
    'store.thread("b").commit({"text": " ".join(map(str, range(700_000)))})',
    'store.thread("b").commit({"n": 1}); store.delete_thread("b")',
    'store.thread("b", schema={"n": int}).commit({"n": 1}); store.thread("b", schema={"m": int}).commit({"m": 1})',
    'for n in range(4): store.thread("b").commit({"n": n})\nstore.prune(threads="b", keep_last=1)',
    f'for n in range({FOLLOWED_MAX + 1}): store.thread("b").commit({{"n": n}})',
]


@pytest.mark.slow
@pytest.mark.parametrize("code", BESIDE)
def test_the_memory_follows_from_records_of_others(store, other, followed, code):
    store.thread("a").commit({"n": 1})
    for number in range(5):
        other.do(code)
        store.thread("a").commit({"n": number})
        check_memory(store)
    assert followed
    assert all(followed)
    assert remembers(store, "a")
    assert store.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("code", [*ELSE, "store.rebuild_index()"])
def test_memory_that_does_not_follow_from_records_is_read_again(store, other, followed, code):
    store.thread("a").commit({"n": 1})
    for number in range(3):
        other.do(f"exec({code!r})")
        store.thread("a").commit({"n": number})
        check_memory(store)
    assert not any(followed[:1])
    assert remembers(store, "a")
    assert store.verify().ok


@pytest.mark.slow
def test_a_commit_continues_from_the_head_of_another_process(store, other, followed):
    thread = store.thread("a")
    for number in range(40):  # More than a page of versions.
        thread.commit({"n": number})
        assert other.do(f'store.thread("a").commit({{"m": {number}}})') == "done"
        assert thread.version == 2 * number + 2
    thread.commit({"n": -1})
    assert thread.state == {"n": -1, "m": 39}
    assert followed == [True] * 40
    check_memory(store)


def test_an_append_continues_a_list_that_another_process_has_appended_to(store, other):
    thread = store.thread("b", schema={"items": statelog.reducers.append})
    thread.commit({"items": "an item"})
    for number in range(30):
        other.do(f'store.thread("b", schema={{"items": statelog.reducers.append}}).commit({{"items": {number}}})')
        thread.commit({"items": -number})
    assert list(thread.state["items"]) == ["an item", *(sign * n for n in range(30) for sign in (1, -1))]
    assert store.verify().ok


def put(store, lsn, record):
    store._engine.care(lambda transaction: transaction.replace_logs({lsn: record}))


@pytest.fixture
def behind(store):
    """Memory of a store in which other records were appended since, to a thread that it knows nothing of."""
    store.thread("a").commit({"n": 1})
    memory = store._engine.committer.last.memory.copy()
    for number in range(5):
        store.thread("b").commit({"n": number})
    return memory


def caught_up(store, memory):
    return store._engine.care(memory.caught_up)


def test_the_memory_follows_appended_records(store, behind):
    heads = behind.heads.copy()
    assert caught_up(store, behind) is behind
    assert behind.heads == heads
    with store._engine.read() as view:
        assert behind.end == read_log_end(view.transaction)


def test_memory_of_another_log_does_not_follow(store, behind):
    behind.end = behind.end._replace(chain=bytes(20))
    assert not caught_up(store, behind).heads


def test_memory_of_a_longer_log_does_not_follow(store, behind):
    behind.end = behind.end._replace(lsn=store.last_lsn + 1)
    assert not caught_up(store, behind).heads


def test_memory_does_not_follow_without_appended_records(store, behind):
    """Another process has rewritten records, or nothing has changed."""
    caught_up(store, behind)
    assert not caught_up(store, behind).heads


@pytest.mark.parametrize("at", [0, 9, 40, 60, -1])
def test_memory_does_not_follow_a_damaged_record(store, behind, at):
    lsn = behind.end.lsn + 2
    with store._engine.read() as view:
        record = bytes(view.transaction.get_log(lsn))
    damaged = bytearray(record)
    damaged[at] ^= 1
    put(store, lsn, bytes(damaged))
    assert not caught_up(store, behind).heads
    put(store, lsn, record)


def test_a_head_with_a_wrong_root_is_not_followed(store):
    """The checksum of the record is valid, but the digest of the root is not."""
    thread = store.thread("a")
    thread.commit({"n": 1})
    memory = store._engine.committer.last.memory.copy()
    thread.commit({"n": 2})
    lsn = store.last_lsn
    with store._engine.read() as view:
        record = bytes(view.transaction.get_log(lsn))
    put(store, lsn, sealed(record[8:-1] + bytes([record[-1] ^ 1])))
    assert not caught_up(store, memory).heads
    put(store, lsn, record)


MAP_FULL_ONCE = """
import lmdb
from statelog.storage.wal.wal import Wal
append, refused = Wal.append, []
def refuse_once(self, *arguments):
    is_journaled = append(self, *arguments)
    if not refused:
        refused.append(1)
        raise lmdb.MapFullError("full")
    return is_journaled
Wal.append = refuse_once
"""


@pytest.mark.slow
def test_a_group_refused_by_lmdb_is_not_mistaken_for_the_committed_one(store, other):
    thread = store.thread("a")
    thread.commit({"n": 1})
    store._engine.store_file.writer.checkpoint()
    for _ in range(2):
        other.do('store.thread("b").commit({"n": 1})')
    thread.commit({"n": 2})
    other.do(f"exec({MAP_FULL_ONCE!r})")
    assert other.do('store.thread("b").commit({"n": 2})') == "done"
    for number in range(3):
        thread.commit({"n": number})
        check_memory(store)


def test_commits_of_another_engine_are_not_missed(store, path):
    """Two stores on a file, in one process."""
    thread = store.thread("a")
    with statelog.open(path) as second:
        for number in range(30):
            thread.commit({"n": number})
        second.prune(threads="a", keep_last=1)
        second.thread("a").commit({"n": 0})
        thread.tag("x")
        check_memory(store)
        assert store.verify().ok


@pytest.mark.parametrize("on", ["", '.fork("side")'])
def test_an_id_used_by_another_process_is_taken(store, other, on):
    thread = store.thread("a")
    thread.commit({"n": 1}, id="m")
    assert other.do(f'store.thread("a"){on}.commit({{"n": 1}}, id="z")') == "done"
    with pytest.raises(AlreadyExistsError):
        thread.commit({"n": 2}, id="z")


@pytest.mark.slow
def test_a_refused_commit_keeps_the_memory_that_was_updated(store, other, followed):
    thread = store.thread("a")
    thread.commit({"n": 1})
    other.do('store.thread("a").commit({"n": 2})')
    with pytest.raises(ConflictError):
        thread.commit({"n": 3}, expected_version=1)
    thread.commit({"n": 3}, expected_version=2)
    assert followed == [True]
    check_memory(store)


def test_a_branch_of_another_process_is_found(store, other):
    thread = store.thread("a")
    for number in range(3):
        thread.commit({"n": number})
    assert other.do('store.thread("a").fork("side")') == "done"
    thread.commit({"n": 3})
    assert store._engine.committer.last.memory.rows[thread.head._event.thread].branch_count == 2
    check_memory(store)


@pytest.mark.slow
def test_the_staged_checkpoint_of_a_failed_commit_is_not_the_head(store, other, followed, monkeypatch):
    """Another may write another record in its place, at the same moment by the clock."""
    thread = store.thread("a")
    thread.commit({"n": 1})
    monkeypatch.setattr(statelog.storage.write_transaction.WriteTransaction, "commit", fail)
    with pytest.raises(OSError, match="as if"):
        thread.commit({"n": 2})
    monkeypatch.undo()
    other.do('store.thread("b").commit({"n": 1})')
    thread.commit({"n": 3})
    assert not followed
    check_memory(store)


def fail(_transaction):
    raise OSError("as if")


THREADS = ("a", "b")
CODES = [
    *(f'store.thread("{name}").commit({{"n": %d}})' for name in THREADS),
    *(f'store.thread("{name}").commit({{"list": ["an item of some length %d"] * 30}})' for name in THREADS),
    *(f'store.thread("{name}").commit({{"n": %d}}, id="id-%03d")' for name in THREADS),
    'store.thread("a").rollback(0)',
    'store.thread("a").fork("f%d").commit({"n": 1})',
    'store.thread("a", branch="f1").commit({"n": %d})',
    'store.thread("a").tag("t%d")',
    'store.set_retention(threads="a", keep_last=2)',
    'store.prune(threads="a", keep_last=1)',
    'store.delete_thread("b")',
    'store.thread("b%d").commit({"n": 1})',
    'store.thread("b", schema={"s%d": int}).commit({"n": 1})',
    'Lineage(store, "a").commit_aside("w", [items.put("x%d", cbor.encode(1))], is_flushed=False)',
    'with store.transaction() as t: t.thread("a").commit({"n": 1}); t.thread("b").commit({"n": %d})',
]


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(CODES), st.integers(0, 3)), max_size=40))
def test_memory_is_right_after_any_operations_of_two_processes(tmp_path_factory, history):
    from statelog.adapters.kit import items  # noqa: F401 - for exec
    from statelog.format import cbor  # noqa: F401

    path = tmp_path_factory.mktemp("following") / "s"
    with statelog.open(path) as store:
        store.thread("a").commit({"n": 0})
        with another(path) as other:
            for is_ours, code, number in history:
                line = code % ((number,) * code.count("%"))
                if not is_ours:
                    other.do(line)
                    continue
                before = store.last_lsn
                with suppress(StatelogError):
                    exec(line, {**globals(), **locals()})
                if store._engine.committer.last is not None and store.last_lsn > before:
                    check_memory(store)
            with suppress(StatelogError):
                store.thread("a").commit({"n": -1})
            check_memory(store)
            assert store.verify().ok
