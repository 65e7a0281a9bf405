"""The chain through short records: computed from the nearest record that has it, and broken by foreign data."""

from __future__ import annotations

import io

import pytest
from xxhash import xxh3_64_digest, xxh3_64_intdigest

import statelog
from statelog import kernels, reducers
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import (
    CHAINED_EVERY,
    FLAG_VACUUMED,
    FLAGS_AT,
    NO_DIGEST,
    decode_record,
    record_lsn,
    with_previous_chain,
)
from statelog.kernels.verify import RecordVerifier
from statelog.log.batch import read_log_end
from statelog.log.chain import read_chained

TURNS = 150


@pytest.fixture
def told(path):
    """A long chat whose messages retention has kept, and the former chain digests of its log."""
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("chat", schema={"messages": reducers.extend})
        for turn in range(TURNS):
            thread.commit({"messages": [f"message {turn} " * 20, f"reply {turn} " * 20]})
        said = {record.lsn: (record.previous_digest, record.digest) for record in store.log()}
        assert store.prune(keep_last=2).vacuumed_nodes > TURNS
        said |= {record.lsn: (record.previous_digest, record.digest) for record in store.log(after=len(said))}
        store.compact()
        yield store, said


def get(store, lsn):
    with store._engine.read() as view:
        return bytes(view.transaction.get_log(lsn))


def put(store, lsn, record):
    store._engine.cache.clear()
    store._engine.care(lambda transaction: transaction.replace_logs({lsn: record}))


def short_lsns(store):
    return [lsn for lsn in range(1, store.last_lsn + 1) if get(store, lsn)[FLAGS_AT] & FLAG_VACUUMED]


def resealed(rest, lsn):
    """Return a short record with the checksum it has under an LSN."""
    return ((xxh3_64_intdigest(rest) + lsn * 0x9E3779B97F4A7C15) % 2**64).to_bytes(8) + rest


def with_body(record, lsn, **changes):
    """Return a short record with other fields and a correct checksum."""
    old = decode_record(record, lsn)
    body = cbor.encode(list(old.redacted()._replace(**changes)))
    at = record.index(old.body, 20)
    return resealed(record[8:at] + body + record[at + len(old.body) :], lsn)


def problems_of(store):
    return [(problem.invariant, problem.lsn) for problem in store.verify().problems]


def test_nearly_all_of_a_long_chat_is_short(told):
    store, _said = told
    assert len(short_lsns(store)) >= TURNS - 3
    record = get(store, 20)
    nodes = sum(row[4] for row in kernels.record_rows(record).values())
    assert len(record) - nodes <= 20 + 25 + 1 + 2 * 7


@pytest.mark.slow
def test_the_log_has_the_same_chain_digests_from_any_starting_point(told):
    store, said = told
    for after in range(store.last_lsn):
        record = next(store.log(after=after))
        assert (record.previous_digest, record.digest) == said[record.lsn]
    assert {record.lsn: (record.previous_digest, record.digest) for record in store.log()} == said


@pytest.mark.slow
def test_the_chain_before_a_record_is_computed_from_few_records(told):
    store, said = told
    with store._engine.read() as view:
        for lsn in range(1, store.last_lsn + 1):
            read = []

            def get_log(at, read=read, view=view):
                read.append(at)
                return view.transaction.get_log(at)

            record, chain = read_chained(get_log, lsn)
            assert (record.previous_chain.hex(), chain.hex()) == said[lsn]
            assert len(read) <= CHAINED_EVERY
            assert decode_record(get(store, read[-1]), read[-1]).previous_chain


@pytest.mark.slow
def test_a_log_can_end_in_short_records(told):
    """As a salvage or an import that was cut off leaves it."""
    store, said = told
    with store._engine.read() as view:
        for lsn in short_lsns(store):

            class UpTo:
                get_log = view.transaction.get_log

                def last_lsn(self, lsn=lsn):
                    return lsn

            end = read_log_end(UpTo())
            assert (end.lsn, end.chain.hex()) == (lsn, said[lsn][1])


def test_a_chain_that_begins_with_a_short_record_begins_with_zeros():
    first = resealed(bytes([1, 2, 0, 6]) + (9).to_bytes(8) + cbor.encode([0, NO_DIGEST, []]) + b"\0", 1)
    record, chain = read_chained({1: first}.get, 1)
    assert record.previous_chain == NO_DIGEST
    assert len(chain) == 20
    assert read_chained({}.get, 1) is None
    assert read_chained({2: resealed(first[8:], 2)}.get, 2) is None


# --- forged --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("lsn", [2, 10, 63, 64, 65, 100, 127, 128])
def test_a_replaced_short_record_breaks_the_chain_at_the_next_record_that_has_it(told, lsn):
    store, _said = told
    record = get(store, lsn)
    put(store, lsn, with_body(record, lsn, digest=bytes(20)))
    says = next(at for at in range(lsn + 1, store.last_lsn + 1) if decode_record(get(store, at), at).previous_chain)
    assert says == min(lsn // CHAINED_EVERY * CHAINED_EVERY + CHAINED_EVERY, says)
    assert problems_of(store) == [("L3", says)]
    message = store.verify().problems[0].message
    first = max(lsn // CHAINED_EVERY * CHAINED_EVERY, 1)
    assert message == f"record {says} does not continue the chain of records {first} to {says - 1}"
    with pytest.raises(CorruptionError, match=f"record {says} does not continue the chain"):
        store.export(io.BytesIO())
    put(store, lsn, record)
    assert problems_of(store) == []


@pytest.mark.parametrize("lsn", [64, 128])
def test_a_wrong_chain_in_a_short_record_is_reported_there(told, lsn):
    store, _said = told
    put(store, lsn, with_previous_chain(get(store, lsn), bytes(20)))
    found = problems_of(store)
    assert found[0] == ("L3", lsn)
    assert {number for number, _lsn in found} == {"L3"}


@pytest.mark.parametrize("field", ["type", "continues", "time"])
def test_changes_of_chained_parts_of_a_short_record_are_detected(told, field):
    store, _said = told
    record = bytearray(get(store, 30))
    record[{"type": 9, "continues": FLAGS_AT, "time": 19}[field]] ^= 1
    put(store, 30, resealed(bytes(record[8:]), 30))
    assert ("L3", CHAINED_EVERY) in problems_of(store)


@pytest.mark.slow
@pytest.mark.parametrize(("lsn", "other"), [(20, 21), (20, 84), (64, 128), (70, 3)])
def test_a_short_record_at_the_place_of_another_is_detected(told, lsn, other):
    store, _said = told
    put(store, lsn, get(store, other))
    assert record_lsn(get(store, lsn)) == other
    assert ("R1", lsn) in problems_of(store)
    with pytest.raises(CorruptionError) as caught:
        list(store.log(after=lsn - 1))
    assert caught.value.lsn == lsn
    with pytest.raises(CorruptionError):
        list(store.log(after=lsn))  # of which the chain goes through it
    assert next(store.log(after=lsn // CHAINED_EVERY * CHAINED_EVERY + CHAINED_EVERY - 1)).lsn % CHAINED_EVERY == 0


@pytest.mark.slow
def test_no_byte_of_a_short_record_can_change(told):
    store, _said = told
    record = get(store, 40)
    for at in range(0, len(record), 7):
        put(store, 40, record[:at] + bytes([record[at] ^ 1 << at % 8]) + record[at + 1 :])
        assert ("R1", 40) in problems_of(store), at
    put(store, 40, record)
    assert problems_of(store) == []


@pytest.mark.slow
def test_a_replaced_message_is_detected_where_it_is_referred_to(told):
    """Its record has no digest, but records that refer to it have."""
    store, _said = told
    record = get(store, 40)
    forged = record.replace(b"message 38 message 38", b"message 38 massage 38")
    assert forged != record
    put(store, 40, resealed(forged[8:], 40))
    found = problems_of(store)
    assert found
    assert {number for number, _lsn in found} == {"T5"}
    assert min(lsn for _number, lsn in found) >= 40
    with pytest.raises(CorruptionError) as caught:
        store.thread("chat").state.to_python()
    assert caught.value.lsn == 40


@pytest.mark.slow
def test_the_kernel_and_the_node_by_node_check_report_the_same(told, monkeypatch):
    """Bytes are flipped under a valid checksum."""
    store, _said = told
    found = []
    for lsn in (40, 64):
        record = get(store, lsn)
        for at in range(8, len(record), 13):
            damaged = record[8:at] + bytes([record[at] ^ 1 << at % 8]) + record[at + 1 :]
            is_short = damaged[FLAGS_AT - 8] & FLAG_VACUUMED
            put(store, lsn, resealed(damaged, lsn) if is_short else xxh3_64_digest(damaged) + damaged)
            fast = [(each.invariant, each.lsn, each.node) for each in store.verify().problems]
            with monkeypatch.context() as patch:
                patch.setattr(RecordVerifier, "check", lambda _self, records: [None] * len(records))
                assert [(each.invariant, each.lsn, each.node) for each in store.verify().problems] == fast
            found.append(bool(fast))
        put(store, lsn, record)
    assert all(found)
    assert len(found) > 70
