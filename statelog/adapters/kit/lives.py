"""Threads by names that a framework uses again after it has deleted what they stood for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.errors import NotFoundError, ThreadDeletedError, ThreadNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog import Store, Thread
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

__all__ = ["forget", "gone", "transact", "write"]

T = TypeVar("T")


def write(
    within: Threads, id: str, schema: object, work: Callable[[Thread[Any, Any]], T], *, branch: str = "main"
) -> T:
    """Do work on a thread; where it was deleted the id begins anew.

    Args:
        within: the store, or a transaction of it.
        id: of the thread.
        schema: of the thread.
        work: commits to the thread that it is given. It is called again if the thread was deleted before it committed.
        branch: one of the thread's; a thread that begins anew has "main" alone.

    Raises:
        BranchNotFoundError: no such branch. What `work` raises.

    """
    for _again in range(_TIMES_MAX):
        try:
            return work(within.thread(id, schema=schema, branch=branch))
        except ThreadDeletedError as error:
            if branch != "main" or error.facts.get("thread") != id:  # in a transaction it may be of another one
                raise
        try:
            anew = within.thread(id, schema=schema, reborn=True)
        except UsageError:  # another process has begun it meanwhile
            continue
        with suppress(ThreadDeletedError):
            return work(anew)
    message = f"thread {id!r} was deleted again and again while it was written to"
    raise ThreadDeletedError(message, thread=id)


_TIMES_MAX = 100


def transact(store: Store, work: Callable[[Transaction], T]) -> T:
    """Do work in one transaction; again, if another process has deleted a thread of it before its end.

    Args:
        store: an open one.
        work: commits to the transaction that it is given, by `write` or `gone`.

    """
    for _again in range(_TIMES_MAX):
        with suppress(ThreadDeletedError), store.transaction() as tx:
            return work(tx)
    message = "threads of a transaction were deleted again and again before its end"
    raise ThreadDeletedError(message, path=str(store.path))


def gone(within: Store | Transaction, id: str) -> bool:
    """Delete a thread with all that it was; return whether it was there. Its id may begin anew."""
    try:
        within.delete_thread(id)
    except ThreadNotFoundError:
        return False
    return True


def forget(store: Store, id: str) -> None:
    """Let go of all that a thread was before its head: what was deleted from its state is gone then.

    A process that is killed before leaves it to the next call, or to retention.
    """
    thread = store.thread(id)
    with suppress(NotFoundError):
        version = thread.version
        store.expire([made for made in thread.history() if made.version < version])
