"""Bodies of records: encoded and decoded, and refused where they do not fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import Record
from statelog.log.events import decode_event, default_id, parse_default_id
from statelog.log.times import to_datetime, to_time_us


def record_of(kind, body):
    return Record(kind, 0, 7, 99, bytes(20), body, 0, 100)


@given(st.integers(1, 2**63), st.binary(min_size=20, max_size=20))
def test_a_default_id_tells_its_lsn(lsn, digest):
    assert parse_default_id(default_id(lsn, digest)) == lsn


@pytest.mark.parametrize(
    "text", ["", "~", "7", "7~", "~0123456789abcdef", "7~0123", "x~0123456789abcdef", "\u0667~0123456789abcdef"]
)
def test_other_ids_are_no_default_ids(text):
    assert parse_default_id(text) is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [(1, []), (1, ["t"]), (2, [1]), (2, list(range(40))), (3, []), (4, [1, 2]), (5, [1, 2, 3]), (6, []), (99, [1])],
)
def test_a_body_that_does_not_fit_its_type_is_damage(kind, body):
    with pytest.raises(CorruptionError) as caught:
        decode_event(record_of(kind, cbor.encode(body)))
    assert caught.value.lsn == 7


def test_events_say_what_users_did(store):
    thread = store.thread("t", schema={"n": max})
    thread.commit({"n": 1}, id="mine", metadata={"k": (1,)})
    thread.fork("branch", at=0)
    thread.tag("here")
    thread.rollback(0)
    kinds = []
    for lsn in range(1, store.last_lsn + 1):
        with store.read() as view:
            event = decode_event(view.record(lsn))
        kinds.append(type(event).__name__)
    assert kinds == ["ThreadEvent", "CheckpointEvent", "ForkEvent", "TagEvent", "CheckpointEvent"]


@given(st.integers(0, 2**53))
def test_times_come_back_to_the_microsecond(time_us):
    moment = to_datetime(time_us)
    assert moment.tzinfo is UTC
    assert to_time_us(moment) == time_us
    assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=time_us)
