"""Writes of tasks in one value, and writes that were stored task by task or one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import config
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver.bundles import (
    decode_bundles,
    decode_write,
    encode_alone,
    encode_bundles,
    encode_writes,
    join_bundles,
    read_bundle,
)
from statelog.adapters.langgraph.saver.checkpoint_reader import decode_writes
from statelog.adapters.langgraph.values.codec import ValueCodec
from statelog.adapters.langgraph.values.msgpack_items import pack, pack_bytes, pack_text
from statelog.adapters.langgraph.values.names import WRITES_BRANCH, place_of, write_name, writes_prefix
from statelog.format import cbor
from statelog.kernels.msgpack import join_array

CODEC = ValueCodec(JsonPlusSerializer())

values = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.text(max_size=40),
    st.binary(max_size=9),
    st.lists(st.text(min_size=30, max_size=50), max_size=4),
    st.lists(st.integers(0, 9), max_size=4),
)
nested_values = st.recursive(
    values, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner), max_leaves=12
)
writes = st.lists(
    st.tuples(st.integers(0, 40), st.text(max_size=4), values), unique_by=lambda write: write[0], min_size=1
)


@given(st.dictionaries(st.text(max_size=3), nested_values))
def test_a_dict_is_packed_as_the_serialiser_packs_it(value):
    """If a value is not plain, the serialiser packs it."""
    kind, data = CODEC.dump(value, "x")
    assert CODEC.dump_part(value, "x") == [data]
    assert kind == "msgpack"
    assert CODEC.load_part(CODEC.dump_part(value, "x")) == value


def encoded(*found, task="task", path="path"):
    return encode_writes(CODEC, task, path, found, what="task")


def decode(item):
    return [
        (bundle.task_id, bundle.path, number, write.channel, decode_write(CODEC, write))
        for bundle in decode_bundles(read_bundle(item))[0]
        for number, write in bundle.writes.items()
    ]


def expected(*tasks):
    return [(task, path, *write) for task, path, found in tasks for write in found]


tasks = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), writes), min_size=1, max_size=4)


@given(tasks, tasks)
def test_bundled_values_are_restored(some, more):
    held, new = [
        encode_bundles([encoded(*found, task=task, path=path) for task, path, found in each]) for each in (some, more)
    ]
    assert decode(held) == expected(*some)
    assert decode(join_bundles(held, new)) == expected(*some, *more)
    assert not decode_bundles(read_bundle(held))[1]


@given(writes, st.text(max_size=3), st.text(max_size=3))
def test_values_stored_separately_are_restored(found, task, path):
    item = encode_alone(encoded(*found, task=task, path=path))
    assert decode(item) == expected((task, path, found))
    assert decode_bundles(read_bundle(item))[1]


@given(st.lists(writes, min_size=1, max_size=4), st.booleans())
def test_the_first_of_several_writes_with_a_number_is_kept(calls, is_first_alone):
    rows = [[*read_bundle(encode_bundles([encoded(*found)]))] for found in calls]
    if is_first_alone:
        rows[:1] = [read_bundle(encode_alone(encoded(*calls[0])))]
    first = {number: (channel, value) for found in reversed(calls) for number, channel, value in reversed(found)}
    assert decode_writes(CODEC, rows) == [("task", *first[number]) for number in sorted(first)]


@given(st.lists(st.text(min_size=40, max_size=60), min_size=1, max_size=9))
def test_a_header_before_the_items_is_read_like_one_after_them(texts):
    item = encode_bundles([encoded((0, "messages", texts)), encoded((0, "x", 1), task="another")])
    *held, header = items.read_list(item)
    assert len(held) == len(texts)
    former = items.pack_list([pack(cbor.decode(header)), *held])
    assert decode(former) == decode(item) == [("task", "path", 0, "messages", texts), ("another", "path", 0, "x", 1)]
    assert decode(join_bundles(former, item)) == decode(item) * 2


def one_by_one(task, path, channel, number, *value, values=()):
    """Return a write in the form before bundles."""
    packed = pack(join_array([*map(pack_text, (task, path, channel, str(number))), *value]))
    return items.pack_list([packed, *map(pack, values)]) if values else packed


def test_writes_stored_one_by_one_can_be_read(tmp_path):
    texts = [f"{number} " + "x" * 50 for number in range(3)]
    dumped = [CODEC.dump(text, "")[1] for text in texts]
    held = [
        one_by_one("task", "path", "int", 0, CODEC.dump(7, "")[1]),
        one_by_one("task", "path", "list", 1, values=dumped),
        one_by_one("task", "path", "bytes", 2, pack_text("bytes"), pack_bytes(b"\x00\xff")),
    ]
    for item, write in zip(held, [(0, "int", 7), (1, "list", texts), (2, "bytes", b"\x00\xff")], strict=True):
        assert decode(item) == [("task", "path", *write)]
    with StatelogSaver.open(tmp_path / "s") as saver:
        checkpoint = empty_checkpoint()
        at = saver.put(config("t"), checkpoint, {"source": "loop", "step": 0}, {})
        prefix = writes_prefix(place_of(at))
        named = [items.put(write_name(prefix, "task", number), item) for number, item in enumerate(held)]
        Lineage(saver.store, "t").commit_aside(WRITES_BRANCH, named)
        expected = [("task", "int", 7), ("task", "list", texts), ("task", "bytes", b"\x00\xff")]
        assert saver.get_tuple(at).pending_writes == expected
        # The task runs again, and writes more. The first write of each number is kept.
        saver.put_writes(at, [("int", 8), ("list", []), ("bytes", b""), ("new", 1)], "task", "path")
        found = saver.get_tuple(at).pending_writes
        assert found == [*expected, ("task", "new", 1)]


def test_the_first_write_is_selected_before_channels_are_filtered():
    rows = [
        [encode_alone(encoded((0, "a", 1), (1, "d", "second")))],
        [one_by_one("task", "path", "b", 1, CODEC.dump(2, "")[1])],
    ]
    assert decode_writes(CODEC, rows) == [("task", "a", 1), ("task", "b", 2)]
    assert decode_writes(CODEC, rows, {"d"}) == []


def test_a_task_can_write_in_several_calls(tmp_path):
    message = HumanMessage("m" * 3000, id="1")
    found = []
    with StatelogSaver.open(tmp_path / "s") as ours:
        for saver in (ours, InMemorySaver()):
            at = saver.put(config("t"), empty_checkpoint(), {"source": "loop", "step": 0}, {})
            saver.put_writes(at, [("a", 1), ("messages", [message])], "task", "path")
            saver.put_writes(at, [("a", 2), ("b", 3), ("messages", [message, message]), ("c", None)], "task", "path")
            saver.put_writes(at, [("d", 4)], "another", "path")
            found.append(saver.get_tuple(at).pending_writes)
        assert ours.store.verify().ok
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
    assert ("task", "messages", [message, message]) in found[0]
    assert ("task", "b", 3) not in found[0]


def test_the_path_of_a_task_does_not_identify_its_writes(tmp_path):
    found = []
    with StatelogSaver.open(tmp_path / "s") as ours:
        for saver in (ours, InMemorySaver()):
            at = saver.put(config("t"), empty_checkpoint(), {"source": "loop", "step": 0}, {})
            saver.put_writes(at, [("a", 1), ("b", 2)], "task", "path 1")
            saver.put_writes(at, [("a", 3), ("b", 4), ("c", 5)], "task", "path 2")
            saver.put_writes(at, [("a", 6)], "task", "path 0")
            found.append(saver.get_tuple(at).pending_writes)
    assert found[0] == found[1] == [("task", "a", 1), ("task", "b", 2), ("task", "c", 5)]
