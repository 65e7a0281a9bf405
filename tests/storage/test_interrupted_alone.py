"""What interrupts a thread that has the store alone, or is called by it: refused, or harmless; nothing is lost."""

import errno
import os
import signal

import pytest

import statelog
from statelog.errors import StorageError, UsageError
from statelog.storage.environment import Environment
from statelog.storage.file import compaction
from statelog.storage.journal import checkpointing as steady


class Handler:
    """Does something in a handler of a signal, once at a time."""

    def __init__(self, work):
        self.work = work
        self.refused = []
        self.done = []
        self._is_inside = False

    def __call__(self, *_):
        if self._is_inside:
            return
        self._is_inside = True
        try:
            self.done.append(self.work())
        except UsageError as error:
            self.refused.append(str(error))
        finally:
            self._is_inside = False


@pytest.fixture
def interrupt():
    """Takes a handler's work; returns the handler, and what calls it."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(work):
        handler = Handler(work)
        signal.signal(signal.SIGUSR1, handler)
        return handler, lambda *_: signal.raise_signal(signal.SIGUSR1)

    yield install
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(params=["commit", "interval"])
def store(request, path):
    with statelog.open(path, durability=request.param, interval_ms=60_000) as opened:
        thread = opened.thread("t")
        for number in range(50):
            thread.commit({"b": "x" * 3000 + str(number)})
        opened.thread("u").commit({"x": 0})
        yield opened


def around(monkeypatch, owner, name, *, before=lambda: None, after=lambda: None):
    original = getattr(owner, name)

    def surrounded(*arguments, **options):
        before()
        result = original(*arguments, **options)
        after()
        return result

    monkeypatch.setattr(owner, name, surrounded)


def check_whole(store, path, acknowledged):
    other = store.thread("u")
    assert other.version == acknowledged
    assert other.commit({"x": "after"}).version == acknowledged + 1
    assert store.verify().ok
    store.close()
    with statelog.open(path) as again:
        assert (again.thread("u").version, again.thread("u").state["x"]) == (acknowledged + 1, "after")
        assert [each.version for each in again.thread("t").history()] == [*range(49, -1, -1)]
        assert again.verify().ok


WAYS = ["called", "handler", "before the swap", "as it is retired", "as it is shut"]


@pytest.mark.parametrize("way", WAYS)
def test_a_commit_within_a_compaction_is_refused(store, path, monkeypatch, interrupt, way):
    """It would be made in the file that goes away."""
    other = store.thread("u")
    handler, raise_signal = interrupt(lambda: other.commit({"x": 1}))
    progress = {"called": handler, "handler": raise_signal}.get(way)
    if way == "before the swap":
        around(monkeypatch, compaction, "_swap", before=raise_signal)
    if way == "as it is retired":
        around(monkeypatch, steady.Steady, "retire", after=raise_signal)
    if way == "as it is shut":
        around(monkeypatch, Environment, "_shut_gate", after=raise_signal)
    store.compact(progress=progress)
    assert handler.refused
    assert not handler.done
    check_whole(store, path, 0)


def test_who_is_called_by_a_compaction_may_read(store, path):
    seen = []
    store.compact(progress=lambda *_: seen.append((store.thread("u").state["x"], store.thread("t").version)))
    assert set(seen) == {(0, 49)}
    check_whole(store, path, 0)


@pytest.mark.parametrize("work", ["read", "commit"])
def test_what_interrupts_who_shuts_the_store_is_refused(store, path, monkeypatch, interrupt, work):
    """It would wait for ever for what it has interrupted."""
    other = store.thread("u")
    handler, raise_signal = interrupt((lambda: other.version) if work == "read" else (lambda: other.commit({"x": 1})))
    around(monkeypatch, Environment, "_shut_gate", after=raise_signal)
    store.compact()
    assert len(handler.refused) == 1
    store._engine.environment.reopen()
    assert len(handler.refused) == 2
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(handler.refused) == 3
    assert not handler.done
    check_whole(store, path, 0)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("work", ["flush", "commit"])
def test_what_interrupts_a_flush_flushes_for_itself(store, monkeypatch, interrupt, work, where):
    """It does not wait for the flush that it has interrupted, and does not take that for made."""
    other = store.thread("u")
    handler, raise_signal = interrupt(store.flush if work == "flush" else lambda: other.commit({"x": 1}, durable=True))
    store.thread("t").commit({"x": "unflushed"}, durable=False)
    calls = []
    around(monkeypatch, steady, "flush_file", **{where: raise_signal})
    around(monkeypatch, steady, "flush_file", before=lambda: calls.append(len(handler.done)))
    store.flush()
    assert len(handler.done) == 1
    assert calls == [0, 0]  # both began before the inner one was done
    assert not store._engine.environment.steady.is_dirty
    assert other.version == (1 if work == "commit" else 0)
    assert store.verify().ok


def test_a_flush_that_fails_in_what_interrupts_one_is_told_to_both(store, monkeypatch, interrupt):
    calls = []

    def flush_file(_descriptor):
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGUSR1)
        else:
            raise OSError(errno.EIO, "failed")

    def work():
        with pytest.raises(StorageError, match="a flush failed"):
            store.flush()

    handler, _raise_signal = interrupt(work)
    store.thread("t").commit({"x": "unflushed"}, durable=False)
    with monkeypatch.context() as patched:
        patched.setattr(steady, "flush_file", flush_file)
        with pytest.raises(StorageError, match="a flush failed"):
            store.flush()
    assert (len(calls), len(handler.done)) == (2, 1)


def test_a_keeper_that_rests_refuses_a_finalizer_of_its_thread(store, path, monkeypatch):
    """It has the store alone; nothing is lost, and nothing hangs."""
    other, outcome = store.thread("u"), []

    def commit():
        try:
            outcome.append(other.commit({"x": 1}).version)
        except UsageError:
            outcome.append("refused")

    around(monkeypatch, steady.Steady, "rest", before=commit)
    environment = store._engine.environment
    keeper = environment.keeper
    for _ in range(100):
        if outcome:
            break
        keeper._rest(keeper._alarm, keeper.commits)
    assert outcome == ["refused"]
    check_whole(store, path, 0)
