"""Copies threads for `Store.copy_thread`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.log.care import thread_copies
from statelog.log.care.loans import sources_of
from statelog.log.kinds.entries import OWN_IDS
from statelog.store.arguments import check_flag
from statelog.store.thread import Thread
from statelog.store.writes import check_thread_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from statelog.store.session import AnySession


def copy_thread(session: AnySession, source: str, target: str, *, recreate: bool) -> Thread:
    """Copy a thread; see `Store.copy_thread`."""
    check_thread_id(source)
    check_thread_id(target)
    check_flag("recreate", recreate)
    for each in OWN_IDS:
        if each in (source, target):
            message = (
                f"thread {each!r} has the records of the board, which cannot be copied because a store has only"
                " one board"
            )
            raise UsageError(message, argument="thread id", value=each)
    session.act(partial(thread_copies.copy_thread, source_id=source, target_id=target, anew=recreate))
    return Thread(session, target)


def copies_of(session: AnySession, sources: Collection[str]) -> list[str]:
    """Return the ids of the direct and indirect copies of some threads. Each copy comes before its source."""
    with session.read() as view:
        rows = list(view.threads())
        origins = {row.lsn: sources_of(view, row.lsn) for row in rows}
    found = {row.lsn for row in rows if row.id in sources}
    copies: list[str] = []
    for row in sorted(rows, key=lambda each: each.lsn):  # So a source precedes its copies.
        if row.lsn not in found and not found.isdisjoint(origins[row.lsn]):
            found.add(row.lsn)
            copies.append(row.id)
    return copies[::-1]
