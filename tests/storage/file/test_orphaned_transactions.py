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
    del args  # so that the frame of a signal handler does not refer to the transaction
    raise KeyboardInterrupt


def test_a_read_that_was_interrupted_as_it_ended_is_ended_by_close(store, monkeypatch):
    store_file = store._engine.store_file
    monkeypatch.setattr(ReadTransaction, "__exit__", interrupted)
    try:
        _ = store.thread("t").state
    except KeyboardInterrupt:  # which keeps the frames it went through
        monkeypatch.undo()
        assert store_file.lmdb_file.active_transactions
        store.close()
    assert not store_file.lmdb_file.active_transactions
    assert statelog.open(store_file.path).thread("t").state == {"n": 1}


def test_a_write_that_nobody_holds_lets_the_next_one_begin(store):
    store_file = store._engine.store_file
    transaction = WriteTransaction(store_file.writer)
    transaction.begin()
    del transaction
    end_orphaned(store_file.lmdb_file.active_transactions)
    assert not store_file.lmdb_file.active_transactions
    assert store.thread("t").commit({"n": 2}).version == 1


def test_a_read_in_use_is_left_alone(store, monkeypatch):
    monkeypatch.setattr("statelog.storage.lmdb_file.LmdbFile.drain_timeout_s", 0.05)
    with store.snapshot() as snapshot:
        with pytest.raises(UsageError, match="still open"):
            store.close()
        assert snapshot.thread("t").state == {"n": 1}


def test_a_store_is_closed_while_an_error_is_handled_whose_causes_lead_round_in_a_circle(tmp_path):
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__, other.__context__ = other, one, other
    store = statelog.open(tmp_path / "c.state")
    with pytest.raises(ValueError, match="one"), store:
        raise one
    assert store._engine.is_closed


def test_a_read_that_an_error_behind_the_cause_keeps_is_ended_by_close(store, monkeypatch):
    store_file = store._engine.store_file
    monkeypatch.setattr(ReadTransaction, "__exit__", interrupted)
    try:
        try:
            _ = store.thread("t").state
        except KeyboardInterrupt:
            monkeypatch.undo()
            raise ValueError from KeyError()  # the context is the interrupt, and not the cause
    except ValueError:
        assert store_file.lmdb_file.active_transactions
        store.close()
    assert not store_file.lmdb_file.active_transactions
