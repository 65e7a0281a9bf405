"""Fences: claims and leases on which writes depend."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.batch import Batch
    from statelog.store.session import AnySession, StoreSession

T = TypeVar("T")


class Fence:
    """A claim or a lease, which proves the right to write.

    Attributes:
        token: the LSN of its first record. A later holder of the same entry or name has a greater token.
    """

    def __init__(self, session: StoreSession, place: str, token: int) -> None:
        self._session = session
        self._place = place
        """The key of the entry, or a slash and the name of the lease."""
        self.token = token


def fence_check(session: AnySession, fence: Fence | None) -> Callable[[Batch], None] | None:
    """Return a check that raises LeaseLostError in the commit if the fence has ended, or None without a fence.

    Raises:
        UsageError: `fence` is not a fence, or belongs to a different store. Facts: argument, value.
    """
    if fence is None:
        return None
    fence = getattr(fence, "fence", fence)  # A claim of `statelog.aio` has its sync claim in this attribute.
    if not isinstance(fence, Fence):
        message = f"fence must be a claim or a lease, not {type(fence).__name__}"
        raise UsageError(message, argument="fence", value=fence)
    if session.owner.store_file is not fence._session.owner.store_file:  # noqa: SLF001 - of this file
        message = f"fence belongs to a different store, {fence._session.owner.store_file.path}"  # noqa: SLF001
        raise UsageError(message, argument="fence", value=fence)
    return partial(_check, fence._place, fence.token)  # noqa: SLF001


def _check(place: str, token: int, batch: Batch) -> None:
    from statelog.board.holders import check_held_in

    check_held_in(batch, place, token)


def fenced(session: AnySession, work: Callable[[Batch], T], fence: Fence | None) -> Callable[[Batch], T]:
    """Return `work` preceded by a check, which raises LeaseLostError in the commit if the fence has ended."""
    check = fence_check(session, fence)
    if check is None:
        return work

    def checked(batch: Batch) -> T:
        check(batch)
        return work(batch)

    return checked
