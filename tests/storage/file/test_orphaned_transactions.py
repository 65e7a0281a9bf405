"""A transaction that an interrupt left open does not keep a store open, but a transaction in use does."""

import pytest

import statelog
from statelog.errors import UsageError
from statelog.storage.file.orphaned_transactions import end_orphaned
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.write_transaction import WriteTransaction


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s.state") as opened:
        opened.thread("t").commit({"n": 1})
        yield opened


def interrupted(*args):
    del args  # The frame of a signal handler must not refer to the transaction.
    raise KeyboardInterrupt


def test_close_ends_a_read_that_was_interrupted_at_its_end(store, monkeypatch):
    store_file = store._engine.store_file
    monkeypatch.setattr(ReadTransaction, "__exit__", interrupted)
    try:
        _ = store.thread("t").state
    except KeyboardInterrupt:  # It keeps the frames that it passed.
        monkeypatch.undo()
        assert store_file.lmdb_file.active_transactions
        store.close()
    assert not store_file.lmdb_file.active_transactions
    assert statelog.open(store_file.path).thread("t").state == {"n": 1}


def test_an_orphaned_write_does_not_block_the_next_one(store):
    store_file = store._engine.store_file
    transaction = WriteTransaction(store_file.writer)
    transaction.begin()
    del transaction
    end_orphaned(store_file.lmdb_file.active_transactions)
    assert not store_file.lmdb_file.active_transactions
    assert store.thread("t").commit({"n": 2}).version == 1


def test_a_read_in_use_is_not_ended(store, monkeypatch):
    monkeypatch.setattr("statelog.storage.lmdb_file.LmdbFile.drain_timeout_s", 0.05)
    with store.snapshot() as snapshot:
        with pytest.raises(UsageError, match="still open"):
            store.close()
        assert snapshot.thread("t").state == {"n": 1}


def test_a_store_can_be_closed_while_an_error_with_a_cycle_of_causes_is_handled(tmp_path):
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__, other.__context__ = other, one, other
    store = statelog.open(tmp_path / "c.state")
    with pytest.raises(ValueError, match="one"), store:
        raise one
    assert store._engine.is_closed


def test_close_ends_a_read_that_the_context_of_a_cause_keeps(store, monkeypatch):
    store_file = store._engine.store_file
    monkeypatch.setattr(ReadTransaction, "__exit__", interrupted)
    try:
        try:
            _ = store.thread("t").state
        except KeyboardInterrupt:
            monkeypatch.undo()
            raise ValueError from KeyError()  # The context, not the cause, is the interrupt.
    except ValueError:
        assert store_file.lmdb_file.active_transactions
        store.close()
    assert not store_file.lmdb_file.active_transactions
