"""Calls during which another process deletes a thread, before each of their reads in turn."""

from __future__ import annotations

from functools import partial

from statelog.store import retain
from statelog.store.session import session_of


def deletions(thread_id):
    """Return ways to delete a thread, keyed by name. In both, no record is erased yet."""

    def delete_only(store):
        session_of(store).engine.commit(partial(retain.stage_deletion, thread_id=thread_id), may_use_reserve=True)

    def re_create(store):
        delete_only(store)
        again = store.thread(thread_id, recreate=True)
        again.commit({"again": 1})
        again.fork("f")

    return {each.__name__: each for each in (delete_only, re_create)}


def interrupted_before_each_read(prepare, act, meanwhile):
    """Yield what `act` raises, or None, when `meanwhile` is called before its first read, its second, and so on.

    `prepare` returns a context manager with a store, anew for each call. The last call is not interrupted.
    """
    at = 0
    while True:
        with prepare() as (store, *rest):
            session = session_of(store)
            read, reads = session.read, 0

            def counted(at=at, store=store, session=session, read=read):
                nonlocal reads
                reads += 1
                if reads == at + 1:
                    session.read = session.engine.read = read
                    meanwhile(store)
                return read()

            session.read = session.engine.read = counted
            error = None
            try:
                act(store, *rest)
            except Exception as caught:  # noqa: BLE001 - the caller judges it
                error = caught
            session.read = session.engine.read = read
            assert store.verify(deep=True).ok
            yield error
        if reads <= at:
            return
        at += 1
