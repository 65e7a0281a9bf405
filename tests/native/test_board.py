"""Compares the kernel that reads records of entries with the general path. A damaged record is never plain."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.board import reads
from statelog.format import cbor
from statelog.kernels.board import NO_AGENT, EntryFacts, entries_read

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=200), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=30),
        st.dictionaries(st.text(max_size=9), inner, max_size=30),
        st.tuples(inner, inner),
    ),
    max_leaves=40,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with statelog.open(tmp_path_factory.mktemp("board") / "agent.state", durability="interval") as opened:
        yield opened


def record_of(store, entry):
    with store._engine.read() as view:
        return bytes(view.transaction.get_log(entry.version)), reads.read_entry(view, entry.version)


def read_one(record, lsn, *, with_values=True):
    facts, data, are_plain = entries_read(record, [len(record)], [lsn.to_bytes(8)], with_values=with_values)
    assert len(facts) == 1
    assert are_plain is (facts[0][0] == 1)
    return EntryFacts(*facts[0]), data


@given(
    value=VALUES, agent=st.none() | st.text(min_size=1, max_size=20), priority=st.integers(-127, 127), data=st.data()
)
def test_a_plain_record_equals_that_of_the_general_path(store, value, agent, priority, data):
    delay_s, ttl_s = data.draw(st.sampled_from([None, 5])), data.draw(st.sampled_from([None, 60]))
    try:
        board = store.board(agent=agent)
        entry = board.set("key", value, priority=priority, delay_s=delay_s, ttl_s=ttl_s)
    except statelog.StatelogError:
        return  # The agent or the value cannot be stored.
    record, found = record_of(store, entry)
    facts, out = read_one(record, entry.version)
    event = found.event
    item = out[facts.value_at : facts.value_end]
    if facts.root_lsn:
        assert (item, facts.root_lsn, facts.root_node) == (event.root_digest, event.root_lsn, event.root_node)
        assert event.root_lsn != entry.version or len(cbor.encode(value)) > 64
    else:
        assert item == cbor.encode(value)
    read_agent = None if facts.agent_at == NO_AGENT else out[facts.agent_at : facts.value_at].decode()
    assert (facts.is_plain, facts.lsn, read_agent, facts.act) == (1, entry.version, event.agent, event.act)
    assert (facts.time_us, facts.created_us, facts.expires_us) == (found.time_us, event.created_us, event.expires_us)
    assert [facts.rank, facts.ready_us, facts.attempts] == (event.order or [128, 0, 0])
    assert board.get("key").value == value
    without, names = read_one(record, entry.version, with_values=False)
    assert (without.is_plain, names) == (1, (event.agent or "").encode())


@pytest.mark.parametrize("value", [7, "x" * 100, {"a": 1, "b": "y" * 90}], ids=["inline", "leaf", "root"])
def test_a_flipped_bit_is_never_plain(store, value):
    entry = store.board(agent="me").set(f"flipped/{type(value).__name__}", value)
    record, _found = record_of(store, entry)
    assert read_one(record, entry.version)[0].is_plain
    for at in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[at // 8] ^= 1 << at % 8
        assert not read_one(bytes(damaged), entry.version)[0].is_plain, at
    for size in range(len(record)):
        assert not read_one(record[:size], entry.version)[0].is_plain
    assert not read_one(record, entry.version + 1)[0].is_plain


def test_deleted_or_claimed_entries_are_not_plain(store):
    board = store.board(agent="me")
    for act in (lambda: board.delete("a"), lambda: board.claim("a"), lambda: board.set("a", 2)):
        board.set("a", 1)
        act()
        [last, *_] = board.history("a")
        assert not read_one(record_of(store, last)[0], last.version)[0].is_plain


def test_entries_that_have_no_room_come_with_the_next_call(store):
    board = store.board()
    sizes = [100, 40_000, *[16_000] * 6, 9]
    entries = [board.set(f"room/{number}", f"{number}" * size) for number, size in enumerate(sizes)]
    records = [record_of(store, entry)[0] for entry in entries]
    lsns = [entry.version.to_bytes(8) for entry in entries]
    read = []
    while len(read) < len(entries):
        at = len(read)
        facts, _data, _plain = entries_read(
            b"".join(records[at:]), list(map(len, records[at:])), lsns[at:], with_values=True
        )
        assert 0 < len(facts) < len(sizes)
        read += [(fact[0], fact[12] > 0) for fact in facts]
    assert read == [(1, False), (1, True), *[(1, False)] * 7]  # the second value is a tree of pieces
    random.Random(1).shuffle(entries)
    assert {entry.key: entry.value for entry in board.list("room/*")} == {entry.key: entry.value for entry in entries}
