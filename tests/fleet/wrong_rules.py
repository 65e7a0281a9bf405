"""Wrong rules. For each of them, the explorer must find a lost record."""

from __future__ import annotations

from dataclasses import replace

from exploring import Put
from programs import Rules, collect_by

from statelog.fleet import names, protocol
from statelog.fleet.head import HeadContents, Stretch, decode
from statelog.fleet.protocol import Owned, ReadObject


class NoLook(Rules):
    """A commit is acknowledged when its put has returned (against F2)."""

    @staticmethod
    def append(owned, number, data):
        yield from protocol.put(names.segment(owned.head.epoch, number), data)


class LookBefore(Rules):
    """The check comes before the put (against F2)."""

    @staticmethod
    def append(owned, number, data):
        yield from protocol.check(owned)
        yield from protocol.put(names.segment(owned.head.epoch, number), data)


class PlainPut(Rules):
    """A segment overwrites an existing one (against F6)."""

    @staticmethod
    def append(owned, number, data):
        yield Put(names.segment(owned.head.epoch, number), data)
        yield from protocol.check(owned)


class AnyIsMine(Rules):
    """Any existing segment is taken for the writer's own (against F6)."""

    @staticmethod
    def append(owned, number, data):
        yield protocol.CreateObject(names.segment(owned.head.epoch, number), data)
        yield from protocol.check(owned)


class UnknownIsDone(AnyIsMine):
    """A put without an answer counts as done (against F6)."""


class NoSwap(Rules):
    """The content of a base is removed before the head names the base (against F4)."""

    @staticmethod
    def rebase(owned, base, number):
        yield from collect_by(owned.head.based(base, number))
        return (yield from protocol.rebase(owned, base, number))


class OnlyWhatIsNamed(Rules):
    """A collector that has read an old head removes what a later owner has put (against F4)."""

    @staticmethod
    def is_to_come(name, head):
        return name.startswith((names.segments(head.epoch), "base/"))


class ListedBefore(Rules):
    """The old tail is listed before the swap to opening (against F3)."""

    @staticmethod
    def take(owner, cut_of, *, may_take):
        found = yield ReadObject(names.HEAD)
        if found is None:
            return None
        old = decode(names.HEAD, found.data)
        if old.state == "free" or not may_take(protocol.Held(old, found.token)):
            return None
        cut = yield from protocol._cut(_next(old, owner), found.token, cut_of)
        if cut is None:
            return None
        new = cut.begun()
        token = yield from protocol.exchange(names.HEAD, _next(old, owner).encode(), found.token)
        token = token and (yield from protocol.exchange(names.HEAD, new.encode(), token))
        return token and Owned(new, token)


class NoCut(Rules):
    """The cut is not stored, so a reader lists the old tail again (against F3)."""

    @staticmethod
    def take(owner, cut_of, *, may_take):
        found = yield ReadObject(names.HEAD)
        if found is None or not may_take(protocol.Held(decode(names.HEAD, found.data), found.token)):
            return None
        opening = _next(decode(names.HEAD, found.data), owner)
        token = yield from protocol.exchange(names.HEAD, opening.encode(), found.token)
        if token is None:
            return None
        cut = yield from protocol._cut(opening, token, cut_of)
        uncut = replace(opening, state="open", tail=(*opening.tail, Stretch(opening.epoch, 1)))
        token = yield from protocol.exchange(names.HEAD, uncut.encode(), token)
        return token and cut and Owned(cut.begun(), token)


class NoEnd(Rules):
    """A head becomes free without an end after its last segment, although a clone has added a segment."""

    @staticmethod
    def free(owned, last, cut):
        closed = owned.head.cut_at(last, cut)
        return (yield from protocol.change(owned, replace(closed, state="free")))


class AheadOfTheTail(Rules):
    """A base has a commit that its owner has not shipped, while a clone has shipped a different one."""

    @staticmethod
    def imaged(data, epoch):
        return (*data, b"%d of an image in %d" % (len(data) + 1, epoch))


class OpeningRead(Rules):
    """A reader lists the tail of an opening head (against F3)."""

    @staticmethod
    def may_read(_head):
        return True


class NoLookAfterListing(Rules):
    """A reader trusts its listing without a check (against F2)."""

    @staticmethod
    def is_known_after(_token):
        yield from ()
        return True


def _next(old, owner):
    return HeadContents(old.epoch + 1, owner, "opening", old.tail, old.store_id, old.base)
