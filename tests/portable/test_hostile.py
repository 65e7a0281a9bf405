"""Hostile exports are refused at the wrong byte, with little memory, and nothing is stored."""

import random
import tracemalloc

import fuzz_exports
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import (
    FLAG_REDACTED,
    FLAG_VACUUMED,
    NO_DIGEST,
    NodeRow,
    encode_record,
    encode_short_record,
    pack_nodes,
    varint,
)
from statelog.limits import POLICIES_MAX
from statelog.portable.frames import EVENT, LOG, NODE, RECORD, THREADS
from statelog.portable.thread_events import Exported, encode_event, encode_node
from statelog.tree.node import CHUNK, LEAF, PIECE, ROOT, node_digest

CORPUS = fuzz_exports.corpus()
EMPTY_DICT = b"\x02\x00\x00\x00"
"""Content of the root of an empty dict: kind, count, levels, tail count."""


@pytest.fixture
def forge(join, piece):
    """Return an export of the given frames."""

    def make(kind, frames, chain=NO_DIGEST):
        header = {
            "magic": "statelog export",
            "format": 1,
            "kind": kind,
            "store_id": bytes(16),
            "since": 0,
            "chain": bytes(20),
            "last": 9,
        }
        trailer = {"frames": 0, "last": len(frames), "chain": chain, "digest": b""}
        return join([piece(0x48, cbor.encode(header)), *frames, piece(0x5A, cbor.encode(trailer))])

    return make


def short_record(type_, flags, lsn, body, nodes=None):
    data = encode_short_record(type_, 0, lsn, lsn, previous_chain=b"", body=body, nodes=nodes or {})
    rest = data[8:10] + flags.to_bytes(2) + data[12:]
    return ((xxhash.xxh3_64_intdigest(rest) + lsn * 0x9E3779B97F4A7C15) % 2**64).to_bytes(8) + rest


@pytest.fixture
def forge_log(forge, piece):
    """Return an export of records, each (type, body, nodes, flags), with a correct chain and checksums."""

    def make(*records):
        frames, chain = [], NO_DIGEST
        for lsn, (type_, body, nodes, flags) in enumerate(records, 1):
            data, chain = encode_record(
                type_, lsn=lsn, time_us=lsn, previous_chain=chain, body=body, nodes=pack_nodes(nodes), flags=flags
            )
            if flags & FLAG_VACUUMED:
                data = short_record(type_, flags, lsn, body)
            frames.append(piece(RECORD, data))
        return forge(LOG, frames, chain)

    return make


@pytest.fixture
def refused(open_store, take):
    """Check that an import is refused with its offset, uses little memory, and leaves the store sound."""

    def check(data, match, *, memory_bytes_max=8_000_000):
        store = open_store()
        tracemalloc.start()
        try:
            with pytest.raises(CorruptionError, match=match) as caught:
                take(store, data)
            assert tracemalloc.get_traced_memory()[1] < memory_bytes_max
        finally:
            tracemalloc.stop()
        assert 0 <= caught.value.offset <= len(data)
        assert store.verify().problems == []

    return check


def node_row(type_, content, locators=b""):
    return NodeRow(type_, node_digest(type_, content), content + locators, len(content))


def thread_body(name="t"):
    return cbor.encode([name, {}])


def checkpoint_body(root, lsn=0, node=0, version=0, **changes):
    fields = {
        "thread": 1,
        "branch": 0,
        "version": version,
        "parent_branch": None,
        "parent_version": None,
        "parent_digest": None,
        "jump_branch": None,
        "jump_version": None,
        "depth": 0,
        "jump_depth": 0,
        "root": root,
        "root_lsn": lsn,
        "root_node": node,
        "id": None,
        "metadata": {},
        "written": [],
        "borrowed": [],
    }
    return cbor.encode(list({**fields, **changes}.values()))


ROOT_ROW = node_row(ROOT, EMPTY_DICT)
THREAD = (1, thread_body(), (), 0)
GOOD = (2, checkpoint_body(ROOT_ROW.digest), (ROOT_ROW,), 0)
NEXT = (2, checkpoint_body(ROOT_ROW.digest, version=1), (ROOT_ROW,), 0)


def test_control_a_correct_forged_log_is_accepted(forge_log, open_store, take):
    """Otherwise, the following tests would pass whatever they forge."""
    store = open_store()
    take(store, forge_log(THREAD, GOOD))
    assert store.thread("t").state == {}


@pytest.mark.parametrize(
    ("record", "match"),
    [
        ((12, b"\x80", (), 0), "unknown type 12"),
        ((11, b"\x80", (), 0), "0 fields instead of 2"),
        ((11, cbor.encode([1, [1]]), (), 0), "field 0"),
        ((11, cbor.encode([0, [0]]), (), 0), "field 1"),
        ((11, cbor.encode([0, [1, 0]]), (), 0), "field 1"),
        ((11, cbor.encode([0, [1] * 1025]), (), 0), "field 1"),
        ((11, cbor.encode([0, [1 << 62, 1 << 62]]), (), 0), "field 1"),
        ((11, cbor.encode([0, [1]]), (), 0), "it removes record 1, of a type that retention keeps"),
        ((11, cbor.encode([0, [99]]), (), 0), "it removes record 99, which is not an earlier record"),
        ((10, b"\x80", (), 0), "0 fields instead of 14"),
        ((9, cbor.encode([1, 1, []]), (), 0), "thread 1 cannot lend nodes to thread 1"),
        ((9, cbor.encode([1, 2, []]), (), 0), "thread 2 cannot lend nodes to thread 1"),
        ((9, cbor.encode([0, 0, []]), (), 0), "thread 0 cannot lend nodes to thread 0"),
        ((9, cbor.encode([1, 0, []]), (), 0), "thread 0 cannot lend nodes to thread 1"),
        ((9, cbor.encode([1, 2, [-1]]), (), 0), "field 2"),
        ((9, cbor.encode([1, 2]), (), 0), "2 fields"),
        ((7, cbor.encode([1, bytes(20), False]), (), 0), "field 2"),
        ((1, thread_body(), (), 8), "flags 0x0008"),
        ((1, thread_body(), (), FLAG_VACUUMED), "flags 0x0002"),
        ((1, b"\xa0", (), 0), "not an array"),
        ((1, b"\x82\x61t", (), 0), "invalid CBOR item"),
        ((1, b"\x82\x61t\xa0\x00", (), 0), "invalid CBOR item"),
        ((1, cbor.encode(["u"]), (), 0), "1 fields instead of 2"),
        ((1, cbor.encode(["", {}]), (), 0), "field 0"),
        ((1, cbor.encode(["u" * 401, {}]), (), 0), "field 0"),
        ((1, cbor.encode(["u", {"c": 1}]), (), 0), "field 1"),
        ((1, cbor.encode(["u", {"c" * 256: "add"}]), (), 0), "field 1"),
        ((1, thread_body("t"), (), 0), "thread 't' already exists"),
        ((8, cbor.encode([0, {}]), (), 0), "field 0"),
        ((8, cbor.encode([0, {"keep": 1}, "*"]), (), 0), "field 1"),
        ((8, cbor.encode([0, {}, "*" * 401]), (), 0), "field 2"),
        ((8, cbor.encode([0, {}, bytes(19)]), (), 0), "field 2"),
        ((8, cbor.encode([0, {}, "u"]), (), 0), "does not match type 8"),
        ((8, cbor.encode([1, {}, "*"]), (), 0), "field 0"),
        ((4, cbor.encode([1, 2, "b", 0, 0]), (), 0), "is out of order"),
        ((4, cbor.encode([7, 1, "b", 0, 0]), (), 0), "no thread 7"),
        ((4, cbor.encode([1, 1, "b", -1, 0]), (), 0), "field 3"),
        ((5, cbor.encode([1, [1]]), (), 0), "field 1"),
        ((6, cbor.encode([1, "tag", 1]), (), 0), "tags record 1"),
        ((6, cbor.encode([1, "tag", 99]), (), 0), "tags record 99"),
        ((7, cbor.encode([1, bytes(20)]), (), 0), "the id of another thread"),
        ((8, cbor.encode([1, {"keep_last": [1]}]), (), 0), "field 1"),
        ((8, cbor.encode([1, {"other": 1}]), (), 0), "field 1"),
        ((2, checkpoint_body(ROOT_ROW.digest, thread=5), (ROOT_ROW,), 0), "no thread 5"),
        ((2, checkpoint_body(ROOT_ROW.digest, branch=1), (ROOT_ROW,), 0), "is out of order"),
        ((2, checkpoint_body(ROOT_ROW.digest, version=2**32 - 1), (ROOT_ROW,), 0), "field 2"),
        ((2, checkpoint_body(ROOT_ROW.digest, depth=3), (ROOT_ROW,), 0), "depth does not match"),
        ((2, checkpoint_body(ROOT_ROW.digest, parent_branch=0), (ROOT_ROW,), 0), "does not name its parent in full"),
        (
            (
                2,
                checkpoint_body(ROOT_ROW.digest, parent_branch=0, parent_version=0, parent_digest=bytes(20), depth=1),
                (ROOT_ROW,),
                0,
            ),
            "its own parent",
        ),
        ((2, checkpoint_body(ROOT_ROW.digest, jump_branch=0, jump_version=3), (ROOT_ROW,), 0), "not an ancestor"),
        ((2, checkpoint_body(ROOT_ROW.digest, id=""), (ROOT_ROW,), 0), "field 13"),
        ((2, checkpoint_body(ROOT_ROW.digest, metadata=[]), (ROOT_ROW,), 0), "field 14"),
        ((2, checkpoint_body(ROOT_ROW.digest, metadata={"x": "y" * 70_000}), (ROOT_ROW,), 0), "field 14"),
        ((2, checkpoint_body(ROOT_ROW.digest, written=[1]), (ROOT_ROW,), 0), "field 15"),
        ((2, checkpoint_body(bytes(20)), (ROOT_ROW,), 0), "root of its state is not at"),
        ((2, checkpoint_body(ROOT_ROW.digest, node=3), (ROOT_ROW,), 0), "root of its state is not at"),
        ((2, checkpoint_body(ROOT_ROW.digest, lsn=9), (ROOT_ROW,), 0), "root of its state is not at"),
        ((3, checkpoint_body(ROOT_ROW.digest, target=0), (ROOT_ROW,), 0), "field 17"),
        ((3, checkpoint_body(ROOT_ROW.digest, target=5), (ROOT_ROW,), 0), "rolls back to a later record"),
        ((2, cbor.encode([1, bytes(20), None, []]), (), FLAG_REDACTED | FLAG_VACUUMED), "4 fields"),
        ((2, cbor.encode([1, bytes(19), []]), (), FLAG_REDACTED), "field 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_record_is_refused(forge_log, refused, record, match):
    refused(forge_log(THREAD, record), match)


LIST_ROOT = b"\x00\x01\x00\x01"
"""Content of the root of a list with one entry, before the entry."""


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ([NodeRow(LEAF, bytes(20), b"\x01", 1)], "does not match its digest"),
        ([NodeRow(7, bytes(20), b"\x01", 1)], "damaged node table"),
        ([node_row(LEAF, b"\x18\x01")], "invalid CBOR item"),
        ([node_row(LEAF, b"\x01", b"\x00\x00")], "locators"),
        ([node_row(PIECE, b"p", b"\x00\x00")], "bytes of locators"),
        ([node_row(PIECE, b"p" * 20_000)], "a piece must not have 20000 bytes"),
        ([node_row(ROOT, LIST_ROOT)], "damaged"),
        ([node_row(ROOT, b"\x09\x00\x00\x00")], "damaged"),
        ([node_row(ROOT, LIST_ROOT + b"\xfc" + bytes(20))], "damaged|locators"),
        ([node_row(ROOT, LIST_ROOT + b"\xfc" + bytes(20), b"\x00\x05")], "refers to node 5 of record 2"),
        ([node_row(ROOT, LIST_ROOT + b"\xfc" + bytes(20), b"\x09\x00")], "refers to node 0 of record 9"),
        (
            [node_row(LEAF, b"\x01"), node_row(ROOT, LIST_ROOT + b"\xfd" + node_digest(LEAF, b"\x01"), b"\x00\x00")],
            "refers to node 0",
        ),
        ([node_row(ROOT, b"\x02\x01\x00\x01\x01\x01")], "damaged node"),
        ([node_row(ROOT, b"\x00\x05\x00\x01\x01")], "states 5 entries but has 1|damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_node_is_refused(forge_log, refused, nodes, match):
    refused(forge_log(THREAD, (2, checkpoint_body(ROOT_ROW.digest), nodes, 0)), match)


@pytest.mark.slow
def test_more_policies_than_the_limit_are_refused(forge_log, refused, open_store, take):
    records = [(8, cbor.encode([0, {"keep_last": 1}, f"{number}-*"]), (), 0) for number in range(POLICIES_MAX + 1)]
    take(open_store("enough.state"), forge_log(*records[:-1]))
    refused(forge_log(*records), "more than 256 policies")


def chunk(level, *entries, kind=0):
    return bytes((kind, level)) + varint(len(entries)) + b"".join(entries)


@pytest.mark.parametrize(
    ("covered", "level"), [(3, 1), (2, 2)], ids=["it says three of two", "it is a level above its place"]
)
def test_a_tree_with_inconsistent_levels_is_refused(forge_log, refused, covered, level):
    """Each node has its digest, and each reference leads to it, but the parent has wrong facts about it."""
    below = node_row(CHUNK, chunk(0, b"\x01", b"\x02"))
    above = node_row(CHUNK, chunk(level, varint(covered) + below.digest), b"\x00\x00")
    refused(forge_log(THREAD, (2, checkpoint_body(ROOT_ROW.digest), [below, above], 0)), "does not match the chunk")


def test_a_root_with_a_wrong_open_level_is_refused(forge_log, refused):
    below = node_row(CHUNK, chunk(0, b"\x01", b"\x02"))
    opened = node_row(CHUNK, chunk(1, varint(2) + below.digest), b"\x00\x00")
    content = b"\x00" + varint(5) + varint(1) + varint(5) + opened.digest + varint(0)
    root = node_row(ROOT, content, b"\x00\x01")
    refused(forge_log(THREAD, (2, checkpoint_body(ROOT_ROW.digest), [below, opened, root], 0)), "open level 1")


def test_a_state_that_is_not_a_dict_is_refused(forge_log, refused):
    root = node_row(ROOT, LIST_ROOT + b"\x01")
    refused(forge_log(THREAD, (2, checkpoint_body(root.digest), (root,), 0)), "is not a dict")


def test_a_broken_chain_is_refused(rich, export, split, join, piece, refused):
    pieces = split(export(rich))
    payload = bytearray(pieces[5].payload)
    payload[40] ^= 1
    payload[:8] = xxhash.xxh3_64_digest(payload[8:])
    pieces[5] = piece(RECORD, bytes(payload))
    refused(join(pieces), "does not continue the chain")


def test_a_time_that_goes_back_is_refused(forge, refused, piece):
    frames, chain = [], NO_DIGEST
    for lsn, (type_, body, nodes, _flags) in enumerate([THREAD, GOOD, NEXT], 1):
        data, chain = encode_record(type_, lsn=lsn, time_us=9, previous_chain=chain, body=body, nodes=pack_nodes(nodes))
        frames.append(piece(RECORD, data))
    refused(forge(LOG, frames, chain), "time of record 3")


def test_a_time_before_the_calendar_is_refused(forge, refused, piece):
    data, _chain = encode_record(1, lsn=1, time_us=0, previous_chain=NO_DIGEST, body=thread_body())
    refused(forge(LOG, [piece(RECORD, data)]), "time of record 1")


def test_a_time_beyond_the_calendar_is_refused(forge, refused, piece):
    data, _chain = encode_record(1, lsn=1, time_us=2**60, previous_chain=NO_DIGEST, body=thread_body())
    refused(forge(LOG, [piece(RECORD, data)]), "time of record 1")


# --- claims without substance --------------------------------------------------------


def seal(data):
    return xxhash.xxh3_64_digest(bytes(data[8:])) + bytes(data[8:])


def test_a_claimed_number_of_nodes_allocates_no_memory(forge, refused, piece):
    data = bytearray(encode_record(1, lsn=1, time_us=1, previous_chain=NO_DIGEST, body=thread_body())[0])
    data[52:56] = (1 << 22).to_bytes(4)
    refused(forge(LOG, [piece(RECORD, seal(data))]), "damaged node table")


@pytest.mark.slow
def test_millions_of_vacuumed_nodes_allocate_no_memory(forge, open_store, take, piece, monkeypatch):
    """They are allowed: a large commit may have lost nearly all of its nodes."""
    monkeypatch.setattr("statelog.portable.log_import.LogImporter._check_trailer", lambda _self: None)
    body = cbor.encode([1, bytes(20), []])
    data = short_record(2, FLAG_REDACTED | FLAG_VACUUMED, 1, body, {(1 << 22) - 1: node_row(LEAF, b"\x01")})
    store = open_store()
    tracemalloc.start()
    try:
        take(store, forge(LOG, [piece(RECORD, data)]))
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert store.last_lsn == 1


@pytest.mark.parametrize(
    "item", [b"\x9a\xff\xff\xff\xff", b"\xba\xff\xff\xff\xff", b"\x5b" + b"\xff" * 8], ids=bytes.hex
)
def test_a_claimed_count_in_a_body_allocates_no_memory(forge_log, refused, item):
    refused(forge_log((1, b"\x82\x61t" + item, (), 0)), "invalid CBOR item")


@pytest.mark.slow
def test_a_body_of_millions_of_items_is_not_decoded(forge_log, refused):
    body = b"\x82\x61t\x9a" + (4_000_000).to_bytes(4) + b"\x80" * 4_000_000
    refused(forge_log((1, body, (), 0)), "field 1", memory_bytes_max=20_000_000)


def test_a_long_array_instead_of_a_body_is_not_split(forge_log, refused):
    body = b"\x9a" + (4_000_000).to_bytes(4) + b"\x80" * 4_000_000
    refused(forge_log((1, body, (), 0)), "not an array of fields", memory_bytes_max=20_000_000)


def test_nodes_without_an_event_do_not_accumulate(forge, refused, piece, monkeypatch):
    monkeypatch.setattr("statelog.portable.thread_import._GROUP_SIZE_BYTES_MAX", 1_000_000)
    leaf = piece(NODE, encode_node(LEAF, cbor.encode("x" * 50_000), ()))
    refused(forge(THREADS, [leaf] * 100), "bytes of nodes are too many for one event")


def test_a_deeply_nested_value_is_refused(forge_log, refused):
    refused(forge_log((1, b"\x82\x61t" + b"\x81" * 100_000 + b"\x00", (), 0)), "invalid CBOR item")


# --- exports of threads --------------------------------------------------------------


def event(type_, *fields, thread=0, time_us=1, continues=False, lsn=1):
    return encode_event(Exported(type_, thread, lsn, time_us, continues, list(fields)))


def checkpoint(root=0, version=0, parent=None, parent_branch=None, parent_version=None, parent_digest=None, depth=0):
    return (
        0, version, parent, parent_branch, parent_version, parent_digest, None, None, depth, 0, root, None,
        b"\xa0", b"\x80",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        ([(EVENT, b"\x00")], "not an array"),
        ([(EVENT, b"\x80")], "unknown type"),
        ([(EVENT, event(1, "t", {}, thread=1))], "is out of order"),
        ([(EVENT, event(1, "t", {})), (EVENT, event(1, "t", {}, thread=1))], "begins twice"),
        ([(EVENT, event(5, {}, thread=0))], "has not begun yet"),
        ([(EVENT, event(1, "t", {}, time_us=2**61))], "time"),
        ([(EVENT, event(1, "t", {}, lsn=0))], "an invalid LSN or time: 0, "),
        ([(EVENT, event(1, "t", {})), (EVENT, event(2, *checkpoint()))], "is not in the stream yet"),
        ([(NODE, b"")], "without content"),
        ([(NODE, b"\x01\x05\x01")], "the stated 5 bytes of content"),
        ([(NODE, b"\x09\x01\x01")], "unknown type 9"),
        ([(NODE, encode_node(LEAF, b"\x18\x01", ()))], "CBOR"),
        ([(NODE, encode_node(ROOT, LIST_ROOT + b"\xfc" + bytes(20), (0,)))], "refers to node 0"),
        ([(NODE, encode_node(LEAF, b"\x01", ()))], "belong to no event"),
        (
            [
                (EVENT, event(1, "t", {})),
                (NODE, encode_node(LEAF, b"\x01", ())),
                (EVENT, event(2, *checkpoint())),
            ],
            "not a root",
        ),
        (
            [
                (EVENT, event(1, "t", {})),
                (NODE, encode_node(ROOT, LIST_ROOT + b"\x01", ())),
                (EVENT, event(2, *checkpoint())),
            ],
            "not a dict",
        ),
        (
            [
                (EVENT, event(1, "t", {})),
                (NODE, encode_node(ROOT, EMPTY_DICT, ())),
                (EVENT, event(2, *checkpoint(parent=0, parent_branch=0, parent_version=0, depth=1))),
            ],
            "refers to event 0",
        ),
        (
            [
                (EVENT, event(1, "t", {})),
                (NODE, encode_node(ROOT, EMPTY_DICT, ())),
                (EVENT, event(2, *checkpoint())),
                (
                    EVENT,
                    event(
                        2,
                        *checkpoint(
                            version=1, parent=1, parent_branch=0, parent_version=0, parent_digest=bytes(20), depth=1
                        ),
                    ),
                ),
            ],
            "does not match its digest",
        ),
        ([(EVENT, event(1, "t", {})), (EVENT, event(6, "tag", 0))], "refers to event 0"),
        ([(EVENT, event(1, "t", {})), (EVENT, event(6, "tag", 7))], "refers to event 7"),
        ([(EVENT, event(1, "t", {})), (RECORD, b"")], "does not belong in an export of threads"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_stream_of_threads_is_refused(forge, refused, piece, frames, match):
    refused(forge(THREADS, [piece(*frame) for frame in frames]), match)


def test_control_a_correct_forged_stream_is_accepted(forge, open_store, take, piece):
    frames = [
        piece(EVENT, event(1, "t", {})),
        piece(NODE, encode_node(ROOT, EMPTY_DICT, ())),
        piece(EVENT, event(2, *checkpoint())),
    ]
    store = open_store()
    take(store, forge(THREADS, frames))
    assert store.thread("t").state == {}


def test_a_thread_named_like_a_path_creates_no_file(forge, open_store, take, piece, tmp_path):
    frames = [
        piece(EVENT, event(1, "../../etc/passwd", {})),
        piece(NODE, encode_node(ROOT, EMPTY_DICT, ())),
        piece(EVENT, event(2, *checkpoint())),
    ]
    store = open_store()
    take(store, forge(THREADS, frames))
    assert [info.id for info in store.threads()] == ["../../etc/passwd"]
    store.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new.state", "new.state-lock"]


# --- mutations ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPUS)
def test_the_unchanged_corpus_is_accepted(name, tmp_path):
    """Otherwise, its mutations would be refused for the wrong reason.

    After a change of format: fuzz_exports.py --write-corpus.
    """
    assert fuzz_exports.attempt(CORPUS[name], tmp_path) == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPUS)
def test_mutated_exports_do_no_harm(name, tmp_path):
    rng = random.Random(name)
    outcomes = [fuzz_exports.attempt(fuzz_exports.mutate_export(rng, CORPUS[name]), tmp_path) for _ in range(60)]
    assert outcomes.count("CorruptionError") > 30


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.data())
def test_spliced_exports_do_no_harm(tmp_path_factory, data):
    """They join the beginning of one export and the end of another."""
    one, other = (CORPUS[data.draw(st.sampled_from(sorted(CORPUS)))] for _ in range(2))
    at, to = data.draw(st.integers(0, len(one))), data.draw(st.integers(0, len(other)))
    fuzz_exports.attempt(one[:at] + other[to:], tmp_path_factory.mktemp("spliced"))


def test_harm_is_detected(tmp_path, monkeypatch):
    """Negative control: an import that does not check its nodes."""
    monkeypatch.setattr("statelog.portable.log_import.LogImporter._check_nodes", lambda _self, _batch: None)
    rng = random.Random(1)

    def fuzz():
        for _ in range(500):
            fuzz_exports.attempt(fuzz_exports.mutate_export(rng, CORPUS["log"]), tmp_path)

    with pytest.raises(AssertionError):
        fuzz()
