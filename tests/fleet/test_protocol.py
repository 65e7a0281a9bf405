"""Who owns a store, and what counts (F1 to F6): every order of events at small size, and wrong protocols."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from exploring import Explorer, Remove, cut_of

from statelog.errors import CorruptionError, FencedError, NewerFormatError
from statelog.fleet import head as heads
from statelog.fleet import names, protocol
from statelog.fleet.archive import Found, Outcome
from statelog.fleet.head import Base
from statelog.fleet.protocol import Create, List, Owned, Read, Swap
from statelog.format import cbor

ID = b"i" * 16


def own(nonce):
    """Own the store, made if need be; taken from whoever has it."""
    while True:
        owned = yield from protocol.take(("w", nonce), cut_of)
        if owned is None:
            owned = yield from protocol.begin(("w", nonce), ID)
        if owned is not None:
            return owned


def serve(owned, served):
    """Read all that an owner begins with, and write it down."""
    found = []
    for stretch in owned.head.tail[:-1]:
        for number in range(stretch.first, stretch.last + 1):
            each = yield Read(names.segment(stretch.epoch, number))
            if each is None:  # collected: somebody owns the store by now
                return
            found.append(each.data)
    served.append(tuple(found))


def writing(*numbers, is_freed=False, own=own, append=protocol.append):
    """Return a program that owns the store, and appends."""

    def program(nonce, label, acknowledged, served):
        owned = yield from own(nonce)
        yield from serve(owned, served)
        for number in numbers:
            data = b"%s-%d-%d" % (label[0], owned.head.epoch, number)
            yield from append(owned, number, data)
            acknowledged.append(data)
        if is_freed:
            yield from protocol.free(owned, len(numbers), cut_of(b"-%d" % len(numbers)) if numbers else None)

    return program


def test_three_writers_and_three_epochs():
    assert Explorer([writing(1), writing(1), writing(1)]).find() > 500


def test_two_writers_with_lost_and_late_requests():
    assert Explorer([writing(1, 2), writing(1, is_freed=True)], faults=1).find() > 500


@pytest.mark.soak
def test_three_writers_with_lost_and_late_requests():
    Explorer([writing(1, 2), writing(1, is_freed=True), writing(1)], faults=2).find()


def test_two_writers_and_two_clones_made_at_any_moment():
    """A machine that was paused, and resumed twice: the clones have the same epoch and the same nonce."""
    assert Explorer([writing(1), writing(1)], clones=1).find() > 200
    assert Explorer([writing(1)], clones=2).find() > 200


def collecting(nonce, _label, _acknowledged, _served):
    """Own the store, and remove what the head names no more (F4)."""
    owned = yield from own(nonce)
    named = {names.segment(each.epoch, n) for each in owned.head.tail[:-1] for n in range(each.first, each.last + 1)}
    listed = yield List("log/")
    yield from protocol.check(owned)
    for name in listed:
        if name not in named and not name.startswith(names.segments(owned.head.epoch)):
            yield Remove(name)


def test_collection_beside_writers():
    assert Explorer([writing(1, 2), collecting, writing(1)]).find() > 500


# --- wrong protocols ------------------------------------------------------------------------


def append_without_a_look(owned, number, data):
    yield from protocol.put(names.segment(owned.head.epoch, number), data)


def append_by_a_plain_put(owned, number, data):
    """Put over what may be there."""
    name = names.segment(owned.head.epoch, number)
    while True:
        answer = yield Create(name, data)
        if not isinstance(answer, Outcome):
            break
        held = yield Read(name)
        yield Swap(name, data, held.token)
        break
    yield from protocol.check(owned)


def own_by_listing_first(nonce):
    """List the old tail before the swap to opening."""
    while True:
        found = yield Read(names.HEAD)
        if found is None:
            owned = yield from protocol.begin(("w", nonce), ID)
            if owned is not None:
                return owned
            continue
        old = heads.decode(names.HEAD, found.data)
        opening = protocol._next(old, ("w", nonce))
        cut = yield from protocol._cut(opening, cut_of)
        token = yield from protocol.exchange(names.HEAD, cut.begun().encode(), found.token)
        if token is not None:
            return Owned(cut.begun(), token)


def own_without_a_cut(nonce):
    """Leave the old tail open in the head: whoever reads takes what is there then."""
    while True:
        found = yield Read(names.HEAD)
        if found is None:
            owned = yield from protocol.begin(("w", nonce), ID)
            if owned is not None:
                return owned
            continue
        old = heads.decode(names.HEAD, found.data)
        listed = yield List(names.segments(old.tail[-1].epoch))
        made = protocol._next(old, ("w", nonce)).cut_at(max(len(listed), 1), None).begun()
        token = yield from protocol.exchange(names.HEAD, made.encode(), found.token)
        if token is not None:
            return Owned(made, token)


def collecting_without_a_swap(_nonce, _label, _acknowledged, _served):
    """Remove what an old head did not name, without owning the store."""
    found = yield Read(names.HEAD)
    listed = yield List("log/")
    if found is None:
        return
    head = heads.decode(names.HEAD, found.data)
    named = {names.segment(each.epoch, n) for each in head.tail if each.last for n in range(each.first, each.last + 1)}
    for name in listed:
        if name not in named:
            yield Remove(name)


@pytest.mark.parametrize(
    ("writers", "how"),
    [
        ([writing(1, append=append_without_a_look), writing(1)], {}),
        ([writing(1, append=append_by_a_plain_put)], {"clones": 1}),
        ([writing(1, own=own_by_listing_first), writing(1, own=own_by_listing_first)], {}),
        ([writing(1, own=own_without_a_cut), writing(1, own=own_without_a_cut)], {}),
        ([writing(1), collecting_without_a_swap], {}),
    ],
    ids=["no look after the put", "plain put", "listing before the swap", "no cut", "collection without a swap"],
)
def test_wrong_protocols_are_caught(writers, how):
    with pytest.raises(AssertionError, match=r"was acknowledged|was served|is named"):
        Explorer(writers, **how).find()


# --- one at a time ----------------------------------------------------------------------------


def run(asking, *answers):
    """Return what a generator asks for, given these answers; or what it returns."""
    request = next(asking)
    for answer in answers:
        try:
            request = asking.send(answer)
        except StopIteration as ended:
            return ended.value
    return request


def test_exists_already_is_success_retry_or_fence():
    """F6."""
    assert run(protocol.put("x", b"1"), Outcome.REFUSED, Found(b"1", "t")) == "t"
    assert run(protocol.put("x", b"1"), Outcome.UNKNOWN, None) == Create("x", b"1")
    with pytest.raises(FencedError):
        run(protocol.put("x", b"1"), Outcome.REFUSED, Found(b"2", "t"))


def test_a_head_comes_back_and_damage_is_found():
    head = replace(
        heads.Head(3, ("w", b"n" * 16), "open", (), ID).begun(), base=Base(7, 2, b"c" * 20), beat=4, gone=(b"g" * 16,)
    )
    data = head.encode()
    assert heads.decode("head", data) == head
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with suppress(CorruptionError, NewerFormatError):
            assert heads.decode("head", damaged) != head
    with pytest.raises(NewerFormatError, match="format 2"):
        heads.decode("head", cbor.encode({**cbor.decode(data), "format": 2}))
