"""The bytes of a head, and the meaning of "exists already" (F6)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from statelog.errors import CorruptionError, FencedError, NewerFormatError
from statelog.fleet import head as heads
from statelog.fleet import protocol
from statelog.fleet.archive import Outcome, StoredObject
from statelog.fleet.head import BaseImage
from statelog.fleet.protocol import CreateObject
from statelog.format import cbor

ID = b"i" * 16


def run(asking, *answers):
    """Return the last request of a generator after these answers, or its result."""
    request = next(asking)
    for answer in answers:
        try:
            request = asking.send(answer)
        except StopIteration as ended:
            return ended.value
    return request


def test_exists_already_is_success_retry_or_fence():
    """F6."""
    assert run(protocol.put("x", b"1"), Outcome.REFUSED, StoredObject(b"1", "t")) == "t"
    assert run(protocol.put("x", b"1"), Outcome.UNKNOWN, None) == CreateObject("x", b"1")
    with pytest.raises(FencedError):
        run(protocol.put("x", b"1"), Outcome.REFUSED, StoredObject(b"2", "t"))


def test_a_head_is_decoded_unchanged_and_damage_is_detected():
    head = replace(
        heads.HeadContents(3, ("w", b"n" * 16), "open", (), ID).begun(),
        base=BaseImage(7, 2, b"c" * 20),
        beat=4,
        gone=(b"g" * 16,),
    )
    data = head.encode()
    assert heads.decode("head", data) == head
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with suppress(CorruptionError, NewerFormatError):
            assert heads.decode("head", damaged) != head
    with pytest.raises(NewerFormatError, match="format 2"):
        heads.decode("head", cbor.encode({**cbor.decode(data), "format": 2}))
