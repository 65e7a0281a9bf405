"""A read keeps its slot in LMDB's reader table despite forks, and commits always find a slot."""

import contextlib

import pytest

import statelog
from statelog.errors import LimitError, StorageError
from statelog.limits import READER_SLOTS, READERS_MAX, SHORT_READS_MIN
from statelog.storage import faults


@pytest.mark.parametrize(("lingers", "readers"), [(False, 1), (True, 0)], ids=["let go", "control"])
def test_transactions_ended_before_a_fork_free_no_slot_after_it(run_child, lingers, readers):
    """The negative control keeps LMDB's transaction. The child frees its slot, which is also that of the next read."""
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    store_file.committer.submit(append)
    store_file.checkpointer.release_pins()
    with store_file.read() as ended:
        raw = ended._raw if sys.argv[2] == "True" else None
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    with store_file.read() as transaction:
        del ended, raw
        say(store_file.statistics().readers, transaction.last_lsn())
    """
    assert run_child(script, lingers) == (0, [f"{readers} 1"])


@pytest.mark.slow
def test_a_thread_reads_with_a_slot_while_another_forks(run_child):
    script = """
    from statelog.storage.wal import background_flusher

    background_flusher.IDLE_S = 3600  # it reads, too
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    store_file.committer.submit(append)
    done = threading.Event()
    readers = []

    def read():
        while not done.is_set():
            with store_file.read():
                for _ in range(5):
                    readers.append(store_file.statistics().readers)
                    time.sleep(0.0002)

    thread = threading.Thread(target=read)
    thread.start()
    forks = 0
    while forks < 10 or len(readers) < 26:
        forks += 1
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    done.set()
    thread.join()
    say(set(readers))
    """
    assert run_child(script) == (0, ["{1}"])


def test_a_renewed_pin_does_not_count_as_a_reader(store_file, append):
    """There are two pins for a moment, before the old one is released."""
    found = []
    store_file.committer.submit(append)
    faults.arm("checkpoint.after_slot", action=lambda: found.append(store_file.statistics().readers))
    store_file.writer.checkpoint()
    assert found == [0]


@pytest.mark.slow
def test_a_history_continues_with_a_slot_after_a_fork(run_child):
    script = """
    import statelog, statelog.store.history as module
    from statelog.storage.wal import background_flusher

    background_flusher.IDLE_S = 3600  # it reads, too
    store = statelog.open(sys.argv[1], durability="interval")
    thread = store.thread("t")
    for number in range(200):
        thread.commit({"n": number})
    store_file = store._engine.store_file
    read_head = module.read_head
    readers = []

    def count_and_read(*arguments):
        readers.append(store_file.statistics().readers)
        return read_head(*arguments)

    module.read_head = count_and_read
    history = thread.history()
    next(history)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    say(1 + sum(1 for _ in history), len(readers) >= 200, set(readers))
    """
    assert run_child(script) == (0, ["200 True {1}"])


def test_an_ended_read_holds_no_slot_and_cannot_read(store_file, append):
    store_file.committer.submit(append)
    store_file.checkpointer.release_pins()
    with store_file.read() as transaction:
        assert "no active" not in store_file.lmdb_file.handles.raw.readers()
    assert "no active" in store_file.lmdb_file.handles.raw.readers()
    for late in (lambda: transaction.id, transaction.last_lsn, lambda: transaction.get_index(b"n00000001")):
        with pytest.raises(StorageError, match="has ended"):
            late()


def test_with_all_snapshots_open_the_process_commits_and_reads(path):
    with statelog.open(path) as store, contextlib.ExitStack() as snapshots:
        thread = store.thread("t")
        thread.commit({"n": 0})
        for _ in range(READERS_MAX):
            snapshots.enter_context(store.snapshot())
        with pytest.raises(LimitError) as caught:
            snapshots.enter_context(store.snapshot())
        assert (caught.value.limit, caught.value.actual) == (READERS_MAX, READERS_MAX + 1)
        for number in range(1, 50):
            thread.commit({"n": number})
            assert thread.state["n"] == number
        store._engine.store_file.writer.checkpoint()
        store.board().set("k", 1)
        snapshots.pop_all().close()
        with store.snapshot() as snapshot:
            assert snapshot.thread("t").state["n"] == 49
        assert store.verify().ok


def test_with_all_snapshots_open_elsewhere_a_process_commits_and_reads(path, start_child):
    """Several processes each have the maximum number open."""
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 0})
        script = """
        import statelog
        store = statelog.open(sys.argv[1])
        held = []
        try:
            while len(held) < 2000:
                snapshot = store.snapshot()
                snapshot.__enter__()
                held.append(snapshot)
        except LimitError as error:
            say(len(held), error.limit)
        sys.stdin.readline()
        """
        children = [start_child(script) for _ in range(2)]
        counts = [int(child.stdout.readline().split()[0]) for child in children]
        assert READERS_MAX <= sum(counts) <= READER_SLOTS - SHORT_READS_MIN
        with pytest.raises(LimitError), store.snapshot():
            pass
        store.thread("t").commit({"n": 1})
        assert store.thread("t").state["n"] == 1
        children[0].kill()
        children[0].wait()
        with store.snapshot() as snapshot:
            assert snapshot.thread("t").state["n"] == 1
