"""Who owns a store, and which segments count: generators of requests, which somebody else carries out. DESIGN.md 2.

A generator yields `Request`s, is sent their answers, and returns what came of it. It has no clock, thread or socket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from statelog.errors import CorruptionError, FencedError
from statelog.fleet import head as heads
from statelog.fleet import names
from statelog.fleet.archive import Found, Outcome
from statelog.fleet.head import Base, Cut, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class Read(NamedTuple):
    """Asks for an object: `Found`, or None."""

    name: str


class Look(NamedTuple):
    """Asks for the token of an object, or None."""

    name: str


class Create(NamedTuple):
    """Asks to put an object where there is none: its token, or an `Outcome`."""

    name: str
    data: bytes


class Swap(NamedTuple):
    """Asks to replace an object that has this token: the new one, or an `Outcome`."""

    name: str
    data: bytes
    token: str


class List(NamedTuple):
    """Asks for the names that begin so, and sort behind another."""

    prefix: str
    after: str = ""


Request: TypeAlias = Read | Look | Create | Swap | List
Asking: TypeAlias = "Generator[Request, Any, T]"


class Owned(NamedTuple):
    """A head as its owner has put it, and its token."""

    head: Head
    token: str


class Held(NamedTuple):
    """A head that another owns."""

    head: Head
    token: str


END = b"statelog: here the owner has ended"
"""What is put behind the last segment before a head becomes free: no segment, but it takes the number of the next."""

CutOf: TypeAlias = "Callable[[bytes], Cut]"
"""Tells where the log is at the end of a segment, by the segment's bytes."""


def put(name: str, data: bytes) -> Asking[str]:
    """Create an object (F6); return its token.

    Raises:
        FencedError: another has put something else there.

    """
    while True:
        answer = yield Create(name, data)
        if not isinstance(answer, Outcome):
            return str(answer)
        held: Found | None = yield Read(name)
        if held is None:  # a conflict in passing, or it never arrived
            continue
        if held.data == data:  # an answer was lost
            return held.token
        message = f"another has put {name}"
        raise FencedError(message, object=name)


def exchange(name: str, data: bytes, token: str) -> Asking[str | None]:
    """Swap an object; return its new token, None if another has changed it."""
    while True:
        answer = yield Swap(name, data, token)
        if not isinstance(answer, Outcome):
            return str(answer)
        held: Found | None = yield Read(name)
        if held is None:
            return None
        if held.data == data:
            return held.token
        if held.token != token:
            return None
        # It never arrived. If it still does, it does what the next one asks, or is stale.


def begin(owner: tuple[str, bytes], store_id: bytes) -> Asking[Owned | None]:
    """Own a store that nobody has made yet; None if somebody has."""
    made = Head(1, owner, "open", (), store_id).begun()
    try:
        token = yield from put(names.HEAD, made.encode())
    except FencedError:
        return None
    return Owned(made, token)


def take(
    owner: tuple[str, bytes], cut_of: CutOf, *, may_take: Callable[[Held], bool] = lambda _held: True
) -> Asking[Owned | Held | None]:
    """Own a store that is free, or that may be taken from its owner (F3).

    Args:
        owner: who is to own it.
        cut_of: asked of the last segment that counts.
        may_take: asked before it is taken from an owner.

    Returns:
        None if there is no such store; `Held` if it may not be taken.

    """
    while True:
        found: Found | None = yield Read(names.HEAD)
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


def _next(old: Head, owner: tuple[str, bytes]) -> Head:
    return replace(old, epoch=old.epoch + 1, owner=owner, state="opening", beat=0)


def _cut(opening: Head, token: str, cut_of: CutOf) -> Asking[Head | None]:
    """Return a head with the cut of its tail, which nobody adds to any more.

    None if a segment is gone: another has taken over since, and what it let go was collected. Raises CorruptionError:
    one is missing, or damaged.
    """
    if not opening.tail or opening.tail[-1].last is not None:
        return opening
    going_on = opening.tail[-1]
    listed = yield List(names.segments(going_on.epoch), names.segment(going_on.epoch, going_on.first - 1))
    there = {names.number_of(name) for name in listed}
    last = max((number for number in there if number >= going_on.first), default=going_on.first - 1)
    gap = next((number for number in range(going_on.first, last) if number not in there), None)
    if gap is not None:
        now = yield Look(names.HEAD)
        if now != token:
            return None
        raise _damaged(names.segment(going_on.epoch, gap), "missing from the storage")
    while last >= going_on.first:
        name = names.segment(going_on.epoch, last)
        found: Found | None = yield Read(name)
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
    """Put a segment, and look that it counts (F2).

    Raises:
        FencedError: the store has another owner.

    """
    yield from put(names.segment(owned.head.epoch, number), data)
    yield from check(owned)


def check(owned: Owned) -> Asking[None]:
    """Look whether a store still has this owner. Raises FencedError."""
    token = yield Look(names.HEAD)
    if token != owned.token:
        raise fenced()


def change(owned: Owned, head: Head) -> Asking[Owned]:
    """Change the head as its owner. Raises FencedError."""
    token = yield from exchange(names.HEAD, head.encode(), owned.token)
    if token is None:
        raise fenced()
    return Owned(head, token)


def beat(owned: Owned) -> Asking[Owned]:
    """Tell those who wait that the owner is there. Raises FencedError."""
    return (yield from change(owned, owned.head.moved()))


def rebase(owned: Owned, base: Base, next_number: int) -> Asking[Owned]:
    """Have the tail begin behind a base that was put under this epoch (F5). Raises FencedError."""
    return (yield from change(owned, owned.head.based(base, next_number)))


def free(owned: Owned, last: int, cut: Cut | None) -> Asking[Owned]:
    """Give a store up, with its tail closed; done again until it returns. Raises FencedError."""
    yield from put(names.segment(owned.head.epoch, last + 1), END)  # or a clone puts there what the cut leaves out
    return (yield from change(owned, replace(owned.head.cut_at(last, cut), state="free")))


def take_up(owned: Owned) -> Asking[Owned]:
    """Own a store again that was given up, if nobody has owned it since. Raises FencedError."""
    return (yield from change(owned, _next(owned.head, owned.head.owner).begun()))


def forget(owned: Owned, store_id: bytes) -> Asking[Owned]:
    """Give up a store that is deleted: the next one of its name has another id. Raises FencedError."""
    old = owned.head
    gone = (*old.gone, old.store_id)
    return (yield from change(owned, replace(old, state="free", tail=(), base=None, store_id=store_id, gone=gone)))


def fenced() -> FencedError:
    """Return the error of who owns a store no more."""
    return FencedError("another has taken this store over")
