"""Reads a branch's checkpoints in pages, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.store.checkpoint import read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.batch import Head
    from statelog.log.view import View
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.session import AnySession

_PAGE = 32


def iterate_history(
    session: AnySession,
    find: Callable[[View], tuple[int, int] | None],
    wrap: Callable[[Head], Checkpoint],
    limit: int | None,
    before: int | None,
    is_shown: Callable[[Checkpoint], bool] | None = None,
) -> Iterator[Checkpoint]:
    """Return an iterator of checkpoints; see `Thread.history`. Arguments are checked at once.

    Args:
        session: the session to read from.
        find: a function that returns thread and branch, or None if they do not exist.
        wrap: a function that makes a checkpoint from a head.
        limit: the maximum number of checkpoints.
        before: return only versions below this one.
        is_shown: returns False for a checkpoint to leave out. If it is None, every checkpoint is returned.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        message = f"limit must be a non-negative int, not {limit!r}"
        raise UsageError(message, argument="limit", value=limit)
    if before is not None and (isinstance(before, bool) or not isinstance(before, int)):
        message = f"before must be an int, not {before!r}"
        raise UsageError(message, argument="before", value=before)
    return _iterate(session, find, wrap, limit, None if before is None else before - 1, is_shown)


def _iterate(
    session: AnySession,
    find: Callable[[View], tuple[int, int] | None],
    wrap: Callable[[Head], Checkpoint],
    left: int | None,
    version: int | None,
    is_shown: Callable[[Checkpoint], bool] | None,
) -> Iterator[Checkpoint]:
    while left is None or left > 0:
        page: list[Head] = []
        wanted = _PAGE if left is None or is_shown is not None else min(left, _PAGE)
        with session.read() as view:
            found = find(view)
            if found is None:
                return
            last = view.head_version(*found)
            version = last if version is None else min(version, last)
            while len(page) < wanted:
                version = view.previous_version(*found, version)
                head = read_head(view, *found, version)
                if head is None:
                    break
                page.append(head)
                version -= 1
        for checkpoint in map(wrap, page):
            if left == 0:
                return
            if is_shown is None or is_shown(checkpoint):
                left = None if left is None else left - 1
                yield checkpoint
        if len(page) < wanted:
            return
