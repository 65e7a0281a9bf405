"""Calls during which another process acts, before each of their reads and commits in turn."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from unittest.mock import patch

import statelog
from statelog.log.engine import Engine
from statelog.storage.file.locks import is_owned
from statelog.storage.read_transaction import ReadTransaction
from statelog.store import retain
from statelog.store.session import session_of


def delete_meanwhile(store, thread_id):
    """Delete a thread, without erasing its records yet."""
    session_of(store).engine.commit(partial(retain.stage_deletion, thread_id=thread_id), may_use_reserve=True)


def deletions(thread_id):
    """Return ways to delete a thread, keyed by name. In both, no record is erased yet."""

    def delete_only(store):
        delete_meanwhile(store, thread_id)

    def re_create(store):
        delete_only(store)
        again = store.thread(thread_id, recreate=True)
        again.commit({"again": 1})
        again.fork("f")

    return {each.__name__: each for each in (delete_only, re_create)}


def removals(thread_id):
    """Return ways to remove versions and their records, keyed by name."""
    return {
        "delete": lambda store: store.delete_thread(thread_id),
        "prune": lambda store: store.prune(keep_last=1),
    }


def preparing(folder, fill, opening=statelog.open):
    """Return a `prepare` that fills a new store or saver by `fill`, which returns the store and more arguments."""
    numbers = count()

    @contextmanager
    def prepare():
        with opening(folder / f"{next(numbers)}.state", durability="interval") as opened:
            yield fill(opened)

    return prepare


def preparing_copies(folder, filled):
    """Return a `prepare` that opens a copy of the store file `filled` for each call."""
    numbers = count()

    @contextmanager
    def prepare():
        path = folder / f"{next(numbers)}.state"
        shutil.copy(filled, path)
        with statelog.open(path, durability="interval") as store:
            yield (store,)
        path.unlink()

    return prepare


class _Interruptions:
    """Counts the reads and commits of this OS thread, and calls `meanwhile` before number `at`, counted from 0."""

    def __init__(self, store, at, meanwhile):
        self._engine, self._at, self._meanwhile = session_of(store).engine, at, meanwhile
        self._caller, self._is_inside = threading.get_ident(), False
        self.count = 0

    def step(self):
        file = self._engine.store_file
        locks = (file.lmdb_file.write_lock, file.lmdb_file.gate, file.writer.wal.flushing)
        if threading.get_ident() != self._caller or self._is_inside or any(map(is_owned, locks)):
            return  # What another thread does, and reads within a commit, are not steps of the call.
        self.count += 1
        if self.count == self._at + 1:
            # Use another OS thread, because a thread cannot commit while it has a transaction open.
            with ThreadPoolExecutor(1) as other:
                other.submit(self._meanwhile).result()

    @contextmanager
    def installed(self):
        begin, commit = ReadTransaction.__enter__, Engine.commit

        def read(transaction):
            if type(transaction) is ReadTransaction:
                self.step()
            return begin(transaction)

        def commit_later(engine, *args, **kwargs):
            self.step()
            is_inside = self._is_inside
            self._is_inside = is_inside or threading.get_ident() == self._caller
            try:
                return commit(engine, *args, **kwargs)
            finally:
                self._is_inside = is_inside

        with patch.object(ReadTransaction, "__enter__", read), patch.object(Engine, "commit", commit_later):
            yield


def interrupted_before_each_read(prepare, act, meanwhile, *, every=1):
    """Yield what `act` raises, or None, when `meanwhile` is called before each of its reads and commits in turn.

    `prepare` returns a context manager with a store, anew for each call. A store that was just opened has no node in
    memory, so it reads each node. `meanwhile` gets another opening of the store. The last call is not interrupted.
    With `every`, only some of the reads and commits are interrupted.
    """
    at = 0
    while True:
        with prepare() as (store, *rest):
            with statelog.open(store.path, durability="interval") as other:
                steps, error = _Interruptions(store, at, partial(meanwhile, other)), None
                try:
                    with steps.installed():
                        act(store, *rest)
                except Exception as caught:  # noqa: BLE001 - the caller judges it
                    error = caught
            assert store.verify(deep=True).ok
            yield error
        if steps.count <= at:
            return
        at += every
