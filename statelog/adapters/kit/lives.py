"""Re-creates deleted threads when a framework uses their names again."""

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
    """Call `work` with a thread. Re-create the thread first if it was deleted.

    Args:
        within: the store, or a transaction of it.
        id: the thread id.
        schema: the schema of the thread.
        work: a function that commits to the given thread. It is called again if the thread is deleted before the
            commit.
        branch: a branch of the thread. A re-created thread has only "main".

    Raises:
        BranchNotFoundError: the branch does not exist.
        Exception: what `work` raises.
    """
    for _again in range(_TIMES_MAX):
        try:
            return work(within.thread(id, schema=schema, branch=branch))
        except ThreadDeletedError as error:
            if branch != "main" or error.facts.get("thread") != id:  # The error is about a different thread.
                raise
        try:
            anew = within.thread(id, schema=schema, recreate=True)
        except UsageError:  # Another process has already re-created the thread.
            continue
        with suppress(ThreadDeletedError):
            return work(anew)
    message = f"thread {id!r} was deleted repeatedly while this write was in progress"
    raise ThreadDeletedError(message, thread=id)


_TIMES_MAX = 100


def transact(store: Store, work: Callable[[Transaction], T]) -> T:
    """Call `work` in one transaction. If another process deletes one of its threads before the end, call it again.

    Args:
        store: an open store.
        work: a function that changes the given transaction's threads with `write` or `gone`.
    """
    for _again in range(_TIMES_MAX):
        with suppress(ThreadDeletedError), store.transaction() as tx:
            return work(tx)
    message = "threads of the transaction were deleted repeatedly before the transaction ended"
    raise ThreadDeletedError(message, path=str(store.path))


def gone(within: Store | Transaction, id: str) -> bool:
    """Delete a thread with its history. Return whether it existed. The id may be used again."""
    try:
        within.delete_thread(id)
    except ThreadNotFoundError:
        return False
    return True


def forget(store: Store, id: str) -> None:
    """Remove all versions of a thread before its head, so that deleted parts of the state are gone.

    If the process is killed during the removal, the next call or retention removes the rest.
    """
    thread = store.thread(id)
    with suppress(NotFoundError):
        version = thread.version
        store.expire([made for made in thread.history() if made.version < version])
