"""The ownership protocol: generators that yield requests to the storage, which a caller carries out. DESIGN.md 2.

The protocol decides who owns a store and which segments are valid. A generator yields `Request`s,
receives their answers, and returns a result. It uses no clock, thread or socket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from statelog.errors import CorruptionError, FencedError
from statelog.fleet import head as heads
from statelog.fleet import names
from statelog.fleet.archive import Outcome, StoredObject
from statelog.fleet.head import BaseImage, Cut, HeadContents

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class ReadObject(NamedTuple):
    """Asks for an object. The answer is `StoredObject` or None."""

    name: str


class ReadToken(NamedTuple):
    """Asks for the token of an object. The answer is a token or None."""

    name: str


class CreateObject(NamedTuple):
    """Asks to create an object. The answer is its token or an `Outcome`."""

    name: str
    data: bytes


class SwapObject(NamedTuple):
    """Asks to replace an object that has this token. The answer is the new token or an `Outcome`."""

    name: str
    data: bytes
    token: str


class ListObjects(NamedTuple):
    """Asks for the names that begin with a prefix and sort after a name."""

    prefix: str
    after: str = ""


Request: TypeAlias = ReadObject | ReadToken | CreateObject | SwapObject | ListObjects
Asking: TypeAlias = "Generator[Request, Any, T]"


class Owned(NamedTuple):
    """A head as this owner has put it, and its token."""

    head: HeadContents
    token: str


class Held(NamedTuple):
    """A head with another owner, and its token."""

    head: HeadContents
    token: str


END = b"statelog: here the owner has ended"
"""Marks the end of an epoch before the head becomes free. It is not a segment, but takes the number of the next one."""

CutOf: TypeAlias = "Callable[[bytes], Cut]"
"""A function that takes a segment's bytes and returns the position in the log at the segment's end."""


def put(name: str, data: bytes) -> Asking[str]:
    """Create an object (F6), and return its token.

    Raises:
        FencedError: another writer has put a different object.
    """
    while True:
        answer = yield CreateObject(name, data)
        if not isinstance(answer, Outcome):
            return str(answer)
        held: StoredObject | None = yield ReadObject(name)
        if held is None:  # There was a temporary conflict, or the request never arrived.
            continue
        if held.data == data:  # The earlier answer was lost.
            return held.token
        message = f"another owner has written {name}"
        raise FencedError(message, object=name)


def exchange(name: str, data: bytes, token: str) -> Asking[str | None]:
    """Swap an object. Return its new token, or None if another writer has changed it."""
    while True:
        answer = yield SwapObject(name, data, token)
        if not isinstance(answer, Outcome):
            return str(answer)
        held: StoredObject | None = yield ReadObject(name)
        if held is None:
            return None
        if held.data == data:
            return held.token
        if held.token != token:
            return None
        # The request never arrived. If it still arrives, it either equals the next try or is stale.


def begin(owner: tuple[str, bytes], store_id: bytes) -> Asking[Owned | None]:
    """Become the owner of a new store. Return None if the store exists."""
    made = HeadContents(1, owner, "open", (), store_id).begun()
    try:
        token = yield from put(names.HEAD, made.encode())
    except FencedError:
        return None
    return Owned(made, token)


def take(
    owner: tuple[str, bytes], cut_of: CutOf, *, may_take: Callable[[Held], bool] = lambda _held: True
) -> Asking[Owned | Held | None]:
    """Become the owner of a store that is free, or that may be taken from its owner (F3).

    Args:
        owner: the new owner.
        cut_of: called with the last valid segment.
        may_take: called before the store is taken from an owner.

    Returns:
        None if the store does not exist; `Held` if it may not be taken.
    """
    while True:
        found: StoredObject | None = yield ReadObject(names.HEAD)
        if found is None:
            return None
        old = heads.decode(names.HEAD, found.data)
        if old.state == "free":
            new = _next(old, owner).begun()
            token = yield from exchange(names.HEAD, new.encode(), found.token)
        else:
            held = Held(old, found.token)
            if not may_take(held):
                return held
            opening = _next(old, owner)
            token = yield from exchange(names.HEAD, opening.encode(), found.token)
            if token is None:
                continue
            closed = yield from _cut(opening, token, cut_of)
            if closed is None:
                continue
            new = closed.begun()
            token = yield from exchange(names.HEAD, new.encode(), token)
        if token is not None:
            return Owned(new, token)


def _next(old: HeadContents, owner: tuple[str, bytes]) -> HeadContents:
    return replace(old, epoch=old.epoch + 1, owner=owner, state="opening", beat=0)


def _cut(opening: HeadContents, token: str, cut_of: CutOf) -> Asking[HeadContents | None]:
    """Return a head that records where its tail ends, so that the tail can no longer grow.

    Return None if another owner has taken over since and its collection has removed a segment.
    Raises CorruptionError if a segment is missing otherwise, or is damaged.
    """
    if not opening.tail or opening.tail[-1].last is not None:
        return opening
    going_on = opening.tail[-1]
    listed = yield ListObjects(names.segments(going_on.epoch), names.segment(going_on.epoch, going_on.first - 1))
    there = {names.number_of(name) for name in listed}
    last = max((number for number in there if number >= going_on.first), default=going_on.first - 1)
    gap = next((number for number in range(going_on.first, last) if number not in there), None)
    if gap is not None:
        now = yield ReadToken(names.HEAD)
        if now != token:
            return None
        raise _damaged(names.segment(going_on.epoch, gap), "missing from the storage")
    while last >= going_on.first:
        name = names.segment(going_on.epoch, last)
        found: StoredObject | None = yield ReadObject(name)
        if found is None:
            return None
        if found.data != END:
            try:
                return opening.cut_at(last, cut_of(found.data))
            except CorruptionError as error:
                raise _damaged(name, "damaged") from error
        last -= 1
    return opening.cut_at(last, None)


def _damaged(name: str, what: str) -> CorruptionError:
    return CorruptionError(f"{name} is {what}", object=name)


def append(owned: Owned, number: int, data: bytes) -> Asking[None]:
    """Put a segment, and check that it is valid (F2).

    Raises:
        FencedError: the store has another owner.
    """
    yield from put(names.segment(owned.head.epoch, number), data)
    yield from check(owned)


def check(owned: Owned) -> Asking[None]:
    """Check that the store still has this owner. Raises FencedError."""
    token = yield ReadToken(names.HEAD)
    if token != owned.token:
        raise fenced()


def change(owned: Owned, head: HeadContents) -> Asking[Owned]:
    """Change the head as its owner. Raises FencedError."""
    token = yield from exchange(names.HEAD, head.encode(), owned.token)
    if token is None:
        raise fenced()
    return Owned(head, token)


def beat(owned: Owned) -> Asking[Owned]:
    """Advance the beat, which shows waiting machines that the owner is alive. Raises FencedError."""
    return (yield from change(owned, owned.head.moved()))


def rebase(owned: Owned, base: BaseImage, next_number: int) -> Asking[Owned]:
    """Name a new base in the head, and begin the tail after the base. This epoch must have put the base (F5).

    Raises FencedError.
    """
    return (yield from change(owned, owned.head.based(base, next_number)))


def free(owned: Owned, last: int, cut: Cut | None) -> Asking[Owned]:
    """Release a store and close its tail. The caller must repeat this until it returns. Raises FencedError."""
    # Without this marker, a clone could still put a segment with this number, which the cut would exclude.
    yield from put(names.segment(owned.head.epoch, last + 1), END)
    return (yield from change(owned, replace(owned.head.cut_at(last, cut), state="free")))


def take_up(owned: Owned) -> Asking[Owned]:
    """Become the owner of a released store again. Raises FencedError if it has had another owner since."""
    return (yield from change(owned, _next(owned.head, owned.head.owner).begun()))


def forget(owned: Owned, store_id: bytes) -> Asking[Owned]:
    """Release a deleted store. The next store with its name gets the id `store_id`. Raises FencedError."""
    old = owned.head
    gone = (*old.gone, old.store_id)
    return (yield from change(owned, replace(old, state="free", tail=(), base=None, store_id=store_id, gone=gone)))


def fenced() -> FencedError:
    """Return the error of an owner that has lost its store to another owner."""
    return FencedError("another owner has taken this store over")
