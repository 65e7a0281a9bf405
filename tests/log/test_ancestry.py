"""Ancestors in a forged log: a walk ends with an error."""

from __future__ import annotations

import pytest

import statelog
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import decode_record, encode_record

VERSIONS = 12


@pytest.fixture
def store(path):
    """A thread with some versions, and two branches at its end. It is not verified."""
    with statelog.open(path) as opened:
        thread = opened.thread("t")
        for number in range(VERSIONS):
            thread.commit({"n": number})
        thread.fork("side", at=VERSIONS - 2, update={"n": -1})
        yield opened


def forge(store, version, **fields):
    """Give a version's record other fields, its checksum right: `f4` is the parent's version, 6 and 7 the jump."""
    lsn = store.thread("t").at(version).lsn
    with store._engine.read() as view:
        record = decode_record(bytes(view.transaction.get_log(lsn)), lsn)
    body = record.fields()
    for at, value in fields.items():
        body[int(at.removeprefix("f"))] = value
    made, _chain = encode_record(
        record.type,
        lsn=lsn,
        time_us=record.time_us,
        previous_chain=record.previous_chain,
        body=cbor.encode(body),
    )
    store._engine.care(lambda transaction: transaction.replace_logs({lsn: made}))


def test_a_parent_without_a_smaller_depth_is_damage(store):
    forge(store, 5, f4=6, f6=None, f7=None)  # 5 follows 6, which follows 5.
    thread = store.thread("t")
    with pytest.raises(CorruptionError) as caught:
        thread.at(5).ancestor(5)
    assert caught.value.lsn == thread.at(5).lsn


def test_a_jump_without_a_smaller_depth_is_damage(store):
    forge(store, 8, f7=8, f9=0)  # It jumps to itself.
    with pytest.raises(CorruptionError):
        store.thread("t").at(8).ancestor(8)


def test_a_common_ancestor_that_is_not_less_deep_is_damage(store):
    thread = store.thread("t")
    ours, theirs = thread.head, thread.checkout("side").head
    assert ours.common_ancestor(theirs).version == VERSIONS - 2
    for version in range(VERSIONS - 1):
        forge(store, version, f4=version, f6=None, f7=None)
    with pytest.raises(CorruptionError):
        thread.at(3).common_ancestor(thread.at(7))
