"""The walk from a root to an item of a list agrees with the reading of one node after the other."""

from __future__ import annotations

import pytest

import statelog
from statelog import kernels, reducers
from statelog.format import cbor
from statelog.store.session import session_of

MARK = cbor.encode("mark")


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s.state", durability="interval") as opened:
        yield opened


def item(number):
    """Return an item that is stored in a leaf, in its slot, or in nodes of its own."""
    return [{"n": number, "text": "t" * 200}, number, ["x" * 300] * 20][min(number % 3, number % 7)]


def unchanged(_lsn, record):
    return record


def walk(store, key, position, *, change=unchanged):
    """Return the decoded item, and whether the state has the mark; None if the kernel does not find the item."""
    with session_of(store).read() as view:
        head = view.head_checkpoint(view.thread_lsn("t"), 0)[0]
        root = head.root_digest, head.root_lsn, head.root_node

        def lend(lsn):
            record = view.transaction.get_log(lsn)
            return record and change(lsn, record)

        found = kernels.item_find(lend, *root, key=cbor.encode(key), position=position, mark=MARK)
    return found and (cbor.decode(found[0]), found[1])


def fill(store, count, reducer=reducers.extend, make=item):
    others = ["few", "dict", "text", "mark", "zitems", *(f"channel {number:03}" for number in range(300))]
    thread = store.thread("t", schema={"items": reducer, **dict.fromkeys(others, reducers.replace)})
    for start in range(0, count, 170):
        thread.commit({"items": [make(number) for number in range(start, min(start + 170, count))]})
    return thread


@pytest.mark.parametrize("count", [20, 129, 1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_items_in_leaves_and_slots_are_found(store, count):
    fill(store, count)
    for position in {*range(0, count, max(count // 200, 1)), count - 1}:
        expected = None if isinstance(item(position), list) else (item(position), False)
        assert walk(store, "items", position) == expected


def test_items_of_a_keyed_list_are_found(store):
    fill(store, 500, reducers.upsert("n"), lambda number: {"n": number, "text": "t" * (number % 300)})
    assert [walk(store, "items", position)[0]["n"] for position in range(500)] == [*range(500)]


@pytest.mark.parametrize("key", ["items", "zitems"])
def test_the_mark_is_found_before_and_behind_the_key(store, key):
    fill(store, 20).commit({"mark": 1, "zitems": [item(0)] * 20})
    assert walk(store, key, 0) == (item(0), True)


@pytest.mark.parametrize(
    ("key", "position"),
    [("items", 20), ("items", 1 << 40), ("no", 0), ("few", 0), ("dict", 0), ("text", 0)],
)
def test_other_places_are_not_found(store, key, position):
    fill(store, 20).commit({"few": [1, 2], "dict": {str(n): "t" * 99 for n in range(99)}, "text": "t" * 9999})
    assert walk(store, key, position) is None


def test_a_state_of_several_nodes_is_left_to_the_caller(store):
    fill(store, 20).commit({f"channel {number:03}": number for number in range(300)})
    assert walk(store, "items", 0) is None


def test_a_missing_record_is_not_found(store):
    fill(store, 500)
    lent = []
    walk(store, "items", 0, change=lambda lsn, record: lent.append(lsn) or record)
    assert len(lent) > 1
    for missing in lent:
        assert walk(store, "items", 0, change=lambda lsn, record, none=missing: record if lsn != none else None) is None


def test_no_damaged_byte_of_a_node_is_trusted(store):
    fill(store, 400)
    expected = walk(store, "items", 0)
    records = {}
    walk(store, "items", 0, change=lambda lsn, record: records.setdefault(lsn, bytes(record)))
    assert len(records) > 1
    for lsn, record in records.items():
        for at in range(0, len(record), 311):
            damaged = bytes([*record[:at], record[at] ^ 0x55, *record[at + 1 :]])

            def lend(number, record, lsn=lsn, damaged=damaged):
                return damaged if number == lsn else record

            assert walk(store, "items", 0, change=lend) in (None, expected)
