"""Programs made of the protocol's generators: writers, a collector and a reader. Wrong ones differ in one rule."""

from __future__ import annotations

from exploring import Acknowledged, Myself, Owning, Remove, Served, cut_of, digest_of, leads_to, list_name, lsn_of

from statelog.errors import FencedError
from statelog.fleet import names, protocol
from statelog.fleet.head import BaseImage, decode
from statelog.fleet.protocol import ListObjects, Owned, ReadObject, ReadToken

STORE = b"i" * 16


class Rules:
    """The correct rules of the protocol."""

    take = staticmethod(protocol.take)
    append = staticmethod(protocol.append)
    free = staticmethod(protocol.free)

    @staticmethod
    def rebase(owned, base, number):
        """Make the head name a stored base, and then remove what it no longer names (F4)."""
        owned = yield from protocol.rebase(owned, base, number)
        yield from collect_by(owned.head)
        return owned

    @staticmethod
    def imaged(data, _epoch):
        """Return the content of a base: all shipped data, and nothing else."""
        return data

    @staticmethod
    def may_read(head):
        """Return whether a reader may list the tail. While a head opens, its cut is unknown (F3)."""
        return head.state != "opening"

    @staticmethod
    def is_to_come(name, head):
        """Return True if a later head may name an object (F5)."""
        kind, *parts = name.split("/")
        lsn, epoch = (int(part) for part in parts[0].split("-")) if kind == "base" else (0, int(parts[0]))
        if epoch > head.epoch:
            return True
        if kind == "base":
            return epoch == head.epoch and (head.base is None or lsn > head.base.lsn)
        if epoch == head.epoch and head.state == "opening":
            return True
        goes_on = head.tail[-1:] if head.state != "free" else ()
        return any(epoch == stretch.epoch and names.number_of(name) >= stretch.first for stretch in goes_on)

    @staticmethod
    def is_known_after(token):
        """Return whether the listing of a reader is valid, because the head has not changed (F2)."""
        return (yield ReadToken(names.HEAD)) == token


def writer(name, plan, rules=Rules, *, epochs=3):
    """Return a program.

    Its plan is letters: `b`egin, `t`ake from whoever owns it, `w`ait until it is free and take it; `a`ppend, append
    `m`ore if it is a clone, `h`eartbeat, `i`mage as a base, `f`ree; `p`ark, and take `u`p what was parked. A writer
    that is fenced goes on with the next `t` or `w`. Nobody takes from an owner after some epochs: two that take from
    each other would do so for ever.
    """

    def may_take(held):
        return held.head.epoch < epochs

    def program():
        at, owned, data, number = 0, None, (), 0
        while at < len(plan):
            step = plan[at]
            at += 1
            try:
                if step in "btw":
                    owned = yield from _opened(step, (name, b"%d" % at), may_take, rules)
                    if owned is not None:
                        data, number = (yield from _served(owned)), 1
                        owned = owned if data is not None else None
                elif owned is not None:
                    owned, data, number = yield from _done(step, owned, data, number, rules)
            except FencedError:
                owned = None

    return program


def _opened(step, owner, may_take, rules):
    if step == "b":
        owned = yield from protocol.begin(owner, STORE)
    elif step == "t":
        owned = yield from rules.take(owner, cut_of, may_take=may_take)
    else:
        owned = yield from rules.take(owner, cut_of, may_take=_never)
    if not isinstance(owned, Owned):
        return None
    yield Owning(owned.head.epoch, owner)
    return owned


def _never(_held):
    return False


def _served(owned):
    """Read the data with which an owner begins. None if a later owner has removed it."""
    return (yield Served(owned.head.base, leads_to(owned.head, ())))


def _done(step, owned, data, number, rules):
    epoch = owned.head.epoch
    if step in "am":
        myself = yield Myself()
        if step == "m" and myself == owned.head.owner[0]:
            return owned, data, number
        segment = b"%d of %s in %d" % (len(data) + 1, myself.encode(), epoch)
        yield from rules.append(owned, number, segment)
        yield Acknowledged(epoch, number, segment)
        return owned, (*data, segment), number + 1
    if step == "h":
        return (yield from protocol.beat(owned)), data, number
    if step == "i":
        data = rules.imaged(data, epoch)
        image = b"\n".join(data)
        base = BaseImage(lsn_of(data[-1]), epoch, digest_of(image))
        yield from protocol.put(list_name(base), image)
        return (yield from rules.rebase(owned, base, number)), data, number
    if step == "u":
        owned = yield from protocol.take_up(owned)
        yield Owning(owned.head.epoch, owned.head.owner)
        return owned, data, 1
    assert step in "fp"
    parked = yield from rules.free(owned, number - 1, cut_of(data[-1]) if number > 1 else None)
    return parked if step == "p" else None, data, number


def collect_by(head, rules=Rules):
    """Remove what a head no longer names. What an owner may still name later stays (F4, F5)."""
    listed = yield ListObjects("")
    named = {names.HEAD, *leads_to(head, listed), *([list_name(head.base)] if head.base else [])}
    gone = tuple(name for name in listed if name not in named and not rules.is_to_come(name, head))
    if gone:
        yield Remove(gone)


def collector(rules=Rules):
    """Return a program that owns nothing, and removes what the head no longer names."""

    def program():
        found = yield ReadObject(names.HEAD)
        if found is not None:
            yield from collect_by(decode(names.HEAD, found.data), rules)

    return program


def reader(rules=Rules):
    """Return a program that reads the valid data twice."""

    def program():
        left = 2
        while left:
            left -= 1
            found = yield ReadObject(names.HEAD)
            head = None if found is None else decode(names.HEAD, found.data)
            if head is None or not rules.may_read(head):
                continue
            listed = yield ListObjects("log/")
            if (yield from rules.is_known_after(found.token)):
                yield Served(head.base, leads_to(head, listed))

    return program
