"""Every invariant that verify checks is broken once, and reported by its number."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_digest

from statelog import kernels, reducers
from statelog.errors import CorruptionError
from statelog.format import cbor, keys
from statelog.format.record import TYPE_CHECKPOINT, NodeRow, decode_record, encode_record, pack_nodes
from statelog.kernels import record_nodes
from statelog.kernels.verify import RecordFacts, RecordVerifier
from statelog.log.care import verify
from statelog.tree.node import CHUNK, LEAF, ROOT, node_digest


@pytest.fixture
def store(path):
    """A store with lists of several levels, large leaves and strings. It is not verified at the end."""
    import statelog

    with statelog.open(path) as opened:
        thread = opened.thread("t", schema={"log": reducers.extend, "text": reducers.replace})
        for number in range(5):
            thread.commit({"log": [f"{number}:{index} " + "x" * 70 for index in range(60)], "text": "y" * 20_000})
        thread.fork("branch", at=2, update={"text": "z" * 5000})
        thread.tag("tag", 3)
        assert opened.verify().problems == []
        yield opened


def read(store, lsn):
    with store._engine.read() as view:
        data = bytes(view.transaction.get_log(lsn))
    nodes = [NodeRow(kind, digest, data[at : at + total], size) for kind, digest, at, size, total in record_nodes(data)]
    return decode_record(data, lsn), nodes


def forge(store, lsn, *, record=None, nodes=None, **changes):
    """Replace a record by one that differs in a field, with a correct checksum."""
    old, rows = read(store, lsn)
    fields = {
        "type_": old.type,
        "lsn": lsn,
        "time_us": old.time_us,
        "previous_chain": old.previous_chain,
        "body": old.body,
        "flags": old.flags,
        "nodes": pack_nodes(rows if nodes is None else nodes),
        **changes,
    }
    replace(store, lsn, encode_record(**fields)[0] if record is None else record)


def replace(store, lsn, record):
    store._engine.cache.clear()
    store._engine.care(lambda transaction: transaction.replace_logs({lsn: record}))


def broken(store, *, deep=True):
    return {problem.invariant for problem in store.verify(deep=deep).problems}


def checkpoint_body(store, lsn, **changes):
    """Return a checkpoint's body with some of its fields (by position) changed."""
    fields = read(store, lsn)[0].fields()
    for at, value in changes.items():
        fields[int(at.removeprefix("f"))] = value
    return cbor.encode(fields)


LSN = 4
"""A checkpoint in the middle."""


def test_l1_a_missing_record_is_reported(store):
    key = keys.encode_lsn(LSN)
    store._engine.care(lambda transaction: delete_log(transaction, key))
    problems = store.verify().problems
    assert ("L1", LSN) in {(problem.invariant, problem.lsn) for problem in problems}


def delete_log(transaction, key):
    transaction.changes += 1
    assert transaction._raw.delete(key, b"", transaction._log)


def test_l2_a_version_that_is_not_later_than_the_previous_one_is_named(store):
    forge(store, LSN, time_us=read(store, LSN - 1)[0].time_us)
    assert ("L2", LSN) in {(problem.invariant, problem.lsn) for problem in store.verify().problems}


def test_l3_a_broken_chain_is_reported(store):
    forge(store, LSN, previous_chain=bytes(20))
    assert broken(store) == {"L3"}


def test_l3_a_changed_body_breaks_the_later_chain(store):
    old = read(store, LSN)[0]
    body = cbor.encode([*old.fields()[:-2], [], old.fields()[-1]])
    forge(store, LSN, body=body)
    assert ("L3", LSN + 1) in {(problem.invariant, problem.lsn) for problem in store.verify().problems}


@pytest.mark.parametrize("damage", ["changed", "missing", "extra", "unreadable"])
def test_l4_an_index_that_differs_from_the_log_is_reported(store, damage):
    with store._engine.read() as view:
        pairs = dict(view.transaction.scan_index(b"v"))
    key, payload = next(iter(pairs.items()))

    def change(transaction):
        if damage == "changed":
            transaction.put_index(key, payload[:-1] + bytes([payload[-1] ^ 1]))
        elif damage == "missing":
            transaction.delete_index(key)
        elif damage == "extra":
            transaction.put_index(b"v" + bytes(16), payload)
        else:
            transaction.changes += 1
            transaction._raw.put(key, payload + bytes(8), db=transaction._index)

    store._engine.care(change)
    assert broken(store) == {"L4"}
    assert broken(store, deep=False) == {"L4"}
    store.rebuild_index()
    assert broken(store) == set()


def test_l5_an_event_that_is_impossible_at_its_place_is_reported(store):
    forge(store, LSN, body=checkpoint_body(store, LSN, f2=9))
    assert "L5" in broken(store)


def test_l5_a_body_that_does_not_fit_its_type_is_reported(store):
    forge(store, LSN, body=cbor.encode([1, 2]))
    assert "L5" in broken(store)


def test_l5_an_unknown_type_of_record_is_reported(store):
    forge(store, LSN, type_=100)
    assert "L5" in broken(store)


def test_r1_a_type_of_the_first_record_in_another_record_is_reported(store):
    forge(store, LSN, type_=130)
    assert "R1" in broken(store)


@pytest.mark.parametrize("at", [0, 8, 12, 40, 56, 100, -1])
def test_r1_a_record_with_changed_bytes_is_named(store, at):
    with store._engine.read() as view:
        data = bytearray(view.transaction.get_log(LSN))
    data[at] ^= 0x10
    forge(store, LSN, record=bytes(data))
    assert ("R1", LSN) in {(problem.invariant, problem.lsn) for problem in store.verify().problems}
    assert "R1" in broken(store, deep=False)


def of_type(nodes, kind):
    return next(index for index, row in enumerate(nodes) if row.type == kind)


def changed(nodes, index, **changes):
    return [*nodes[:index], nodes[index]._replace(**changes), *nodes[index + 1 :]]


def test_t3_a_node_that_does_not_match_its_digest_is_named(store):
    nodes = read(store, 2)[1]
    index = of_type(nodes, LEAF)
    data = nodes[index].data
    forge(store, 2, nodes=changed(nodes, index, data=data[:-1] + bytes([data[-1] ^ 1])))
    problem = store.verify().problems[0]
    assert (problem.invariant, problem.lsn, problem.node) == ("T3", 2, index)
    assert broken(store, deep=False) == set(), "a shallow look reads no node"
    with pytest.raises(CorruptionError) as caught:
        list(store.thread("t").at(0).state["log"])
    assert (caught.value.lsn, caught.value.node) == (2, index)


@pytest.mark.parametrize("kind", [LEAF, CHUNK, ROOT])
def test_t4_a_malformed_node_is_reported(store, kind):
    nodes = read(store, 2)[1]
    index = of_type(nodes, kind)
    data = b"\xff" + nodes[index].data[1:]
    size = nodes[index].content_size
    forge(store, 2, nodes=changed(nodes, index, data=data, digest=node_digest(kind, data[:size])))
    assert "T4" in broken(store)


def test_t4_locators_that_are_not_one_per_ref_are_reported(store):
    nodes = read(store, 2)[1]
    index = of_type(nodes, CHUNK)
    forge(store, 2, nodes=changed(nodes, index, data=nodes[index].data + b"\x00\x00"))
    assert "T4" in broken(store)


def test_t5_a_ref_to_a_wrong_node_is_reported(store):
    nodes = read(store, 2)[1]
    index = of_type(nodes, CHUNK)
    row = nodes[index]
    locators = b"\x00\x01" * ((len(row.data) - row.content_size) // 2)
    forge(store, 2, nodes=changed(nodes, index, data=row.data[: row.content_size] + locators))
    assert "T5" in broken(store)


def test_t5_an_invalid_root_is_reported(store):
    forge(store, LSN, body=checkpoint_body(store, LSN, f11=2, f12=0))
    assert "T5" in broken(store)


def test_the_number_of_reported_problems_is_limited(store, monkeypatch):
    monkeypatch.setattr("statelog.log.care.verify.PROBLEMS_MAX", 3)
    with store._engine.read() as view:
        found = dict(view.transaction.scan_index(b""))
    store._engine.care(lambda transaction: [transaction.delete_index(key) for key in found])
    assert len(store.verify().problems) == 3


def test_a_consistent_forged_record_is_not_damage(store):
    last = store.last_lsn
    record, nodes = read(store, last)
    assert record.type != TYPE_CHECKPOINT
    forge(store, last)
    assert nodes == []
    assert broken(store) == set()


def problems_of(store):
    return [(problem.invariant, problem.lsn, problem.node) for problem in store.verify().problems]


def look_node_by_node(monkeypatch):
    monkeypatch.setattr(RecordVerifier, "check", lambda _self, records: [None] * len(records))


@pytest.mark.slow
def test_the_kernel_and_the_node_by_node_check_report_the_same(store, monkeypatch):
    """Bytes of records are flipped under a valid checksum. The kernel must not accept what must be reported."""
    found = []
    for lsn in (2, 4):
        with store._engine.read() as view:
            sound = bytes(view.transaction.get_log(lsn))
        for at in range(56, len(sound), 211):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << at % 8
            damaged[:8] = xxh3_64_digest(damaged[8:])
            replace(store, lsn, bytes(damaged))
            fast = problems_of(store)
            with monkeypatch.context() as patch:
                look_node_by_node(patch)
                assert problems_of(store) == fast
            found.append(bool(fast))
        replace(store, lsn, sound)
    assert all(found)
    assert len(found) > 100


def test_refs_that_the_kernel_does_not_cache_are_looked_up(store, monkeypatch):
    monkeypatch.setattr("statelog.kernels.verify._SEEN_COUNT", 1)
    looked_up = []
    record_node = kernels.record_node
    monkeypatch.setattr(kernels, "record_node", lambda *args: looked_up.append(args) or record_node(*args))
    assert problems_of(store) == []
    assert len(looked_up) > 20
    nodes = read(store, 2)[1]
    index = of_type(nodes, CHUNK)
    data = nodes[index].data
    forge(store, 2, nodes=changed(nodes, index, data=data, digest=bytes(20)))
    assert {number for number, lsn, _node in problems_of(store) if lsn > 2} >= {"T5"}


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 257, 1000, 5000])
def test_digests_of_the_kernel_equal_those_of_hashlib(size):
    content = bytes(range(256)) * 20
    leaf = cbor.encode(content[:size])
    row = NodeRow(LEAF, node_digest(LEAF, leaf), leaf, len(leaf))
    body = cbor.encode([content[:size]])
    options = {"lsn": 1, "time_us": 1, "previous_chain": bytes(20), "body": body, "nodes": pack_nodes([row])}
    record, chain = encode_record(TYPE_CHECKPOINT, **options)
    (found,) = RecordVerifier().check([(1, memoryview(record))])
    assert found == RecordFacts(1, int(len(leaf) >= 4096), chain, [])


def test_only_a_few_records_of_a_long_log_are_in_memory_at_a_time(store, monkeypatch):
    monkeypatch.setattr(verify, "_BATCH_SIZE_BYTES", 1)
    seen = []
    visit = verify._Verifier.visit

    def watched(self, lsn, data, found):
        seen.append(data)
        return visit(self, lsn, data, found)

    monkeypatch.setattr(verify._Verifier, "visit", watched)
    assert store.verify().ok
    assert len(seen) == store.last_lsn
    for data in seen[:-3]:
        with pytest.raises(ValueError, match="released"):
            len(data)
