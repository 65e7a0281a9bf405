"""Bodies of records: encoded, decoded, and refused if they are not valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.errors import CorruptionError, ValueTypeError
from statelog.format import cbor
from statelog.format.record import FLAG_REDACTED, Record, decode_record, encode_record
from statelog.format.unregistered import Unregistered
from statelog.log.events import default_id, parse_default_id, read_checkpoint
from statelog.log.kinds.table import decode_event
from statelog.log.times import to_datetime, to_time_us


def record_of(kind, body):
    return Record(kind, 0, 7, 99, bytes(20), body, 0, 100)


@given(st.integers(1, 2**63), st.binary(min_size=20, max_size=20))
def test_a_default_id_has_its_lsn(lsn, digest):
    assert parse_default_id(default_id(lsn, digest)) == lsn


@pytest.mark.parametrize(
    "text", ["", "~", "7", "7~", "~0123456789abcdef", "7~0123", "x~0123456789abcdef", "\u0667~0123456789abcdef"]
)
def test_other_ids_are_not_default_ids(text):
    assert parse_default_id(text) is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (1, []),
        (1, ["t"]),
        (2, [1]),
        (2, list(range(40))),
        (3, []),
        (4, [1, 2]),
        (5, [1, 2, 3]),
        (6, []),
        (99, [1]),
        (8, [1]),
        (8, [0, {}]),
        (8, [0, {}, "t"]),
        (8, [0, {}, 7]),
        (8, [1, {}, "*"]),
    ],
)
def test_a_body_that_does_not_fit_its_type_is_damage(kind, body):
    with pytest.raises(CorruptionError) as caught:
        decode_event(record_of(kind, cbor.encode(body)))
    assert caught.value.lsn == 7


def test_events_describe_the_acts_of_users(store):
    thread = store.thread("t", schema={"n": max})
    thread.commit({"n": 1}, id="mine", metadata={"k": (1,)})
    thread.fork("branch", at=0)
    thread.tag("here")
    thread.rollback(0)
    kinds = []
    for lsn in range(1, store.last_lsn + 1):
        with store._engine.read() as view:
            event = decode_event(view.record(lsn))
        kinds.append(type(event).__name__)
    assert kinds == ["ThreadEvent", "CheckpointEvent", "ForkEvent", "TagEvent", "CheckpointEvent"]


def record_with(type_, body, flags=0, lsn=7):
    return encode_record(type_, lsn=lsn, time_us=99, previous_chain=bytes(20), body=body, flags=flags)[0]


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_checkpoint_is_read_by_both_decoders_alike(store, size):
    thread = store.thread("t")
    thread.commit({"n": 0})
    thread.commit({"n": "x" * size}, id="mine", metadata={"k": (1,)})
    thread.rollback(0)
    thread.commit({"n": 2})
    with store._engine.read() as view:
        for version in range(4):
            lsn = view.entry(1, 0, version).lsn
            data = view.transaction.get_log(lsn)
            event = decode_event(decode_record(data, lsn))
            assert read_checkpoint(data, lsn) == (event, event.digest)


def test_other_records_are_not_read_as_checkpoints(store):
    store.thread("t").commit({"n": 0}, id="mine")
    with store._engine.read() as view:
        thread, checkpoint = (bytes(view.transaction.get_log(lsn)) for lsn in (1, 2))
    body = decode_record(checkpoint, 2).body
    assert read_checkpoint(record_with(2, body), 7) is not None
    for data in (
        thread,
        record_with(3, body),
        record_with(2, body, lsn=8),
        record_with(2, body, flags=FLAG_REDACTED),
        record_with(2, body[:-1]),
        record_with(2, body.replace(b"\x64mine", b"\xc1\x00\x00\x00\x00")),
        record_with(2, body)[:-1] + b"\x00",
        b"",
    ):
        assert read_checkpoint(data, 7) is None


@pytest.fixture
def foreign(path, monkeypatch):
    """A store whose metadata has a value of a codec that this process no longer has."""

    class Money:
        pass

    monkeypatch.setattr(cbor, "_codecs_by_type", {})
    monkeypatch.setattr(cbor, "_codecs_by_name", {})
    statelog.register_codec(Money, name="events.money", encode=lambda _value: [1, 2], decode=lambda _items: Money())
    with statelog.open(path) as opened:
        thread = opened.thread("t")
        for number in range(4):
            thread.commit({"x": number}, metadata={"cost": Money(), "all": {Money()}, "n": number})
        cbor._codecs_by_type.clear()
        cbor._codecs_by_name.clear()
        yield opened
        assert opened.verify().problems == []


def test_an_event_with_an_unregistered_codec_can_be_read(foreign):
    thread = foreign.thread("t")
    cost = Unregistered("events.money", [1, 2])
    assert thread.head.metadata["cost"] == cost
    assert {each.codec for each in thread.head.metadata["all"]} == {"events.money"}
    assert [each.body["metadata"]["n"] for each in foreign.log() if each.type == "checkpoint"] == [0, 1, 2, 3]
    assert thread.rollback(1).metadata == {}
    assert foreign.rebuild_index() == foreign.last_lsn
    foreign.prune(keep_last=2)
    assert [each.metadata["n"] for each in thread.history() if each.metadata] == [3]
    with pytest.raises(ValueTypeError):
        thread.commit({}, metadata=thread.at(3).metadata)


@given(st.integers(0, 2**53))
def test_times_are_restored_to_the_microsecond(time_us):
    moment = to_datetime(time_us)
    assert moment.tzinfo is UTC
    assert to_time_us(moment) == time_us
    assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=time_us)
