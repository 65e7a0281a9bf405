"""Plain writes and groups of one record, made in C: as Python makes them, or not at all."""

import gc
import struct
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from statelog import kernels, reducers
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.log.direct import DirectCommit
from statelog.log.names import channel_key, channel_keys
from statelog.reducers import Overwrite, Prepared
from statelog.schema import Schema
from statelog.storage.journal.journal import encode_group
from statelog.store import writes
from statelog.testing import strategies as own

SCHEMA = Schema.of(
    {
        "put": reducers.replace,
        "sum": reducers.add,
        "one": reducers.append,
        "many": reducers.extend,
        "most": reducers.max,
        "notes": reducers.merge,
        "set": reducers.union,
        "keyed": reducers.upsert("id"),
    }
)


class Text(str):
    __slots__ = ()


def outcome(schema, updates):
    with mock.patch.object(reducers, "uuid4", return_value="the same"):  # of what is to be upserted without a key
        try:
            return writes.prepare_writes(schema, updates)
        except StatelogError as error:
            return type(error), str(error)


odd = st.one_of(
    own.values(), st.lists(own.values(), max_size=3), st.builds(Overwrite, st.integers()), st.just(object())
)
names = st.sampled_from([*SCHEMA.channels, "other", "", Text("put"), "\ud800", 7])


@given(
    st.lists(st.one_of(st.dictionaries(names, odd, max_size=3), st.integers()), max_size=3),
    st.sampled_from([SCHEMA, Schema.of(None)]),
)
@example([{"sum": [1, "a", None], "one": [1], "many": (1, 2), "most": 3}], SCHEMA)
@example([{"many": 1}], SCHEMA)
@example([{"keyed": {}}], SCHEMA)
@example([{"a": [["x" * 70_000], ["y" * 70_000]]}], Schema.of(None))
def test_writes_are_prepared_as_in_python(updates, schema):
    ours = outcome(schema, updates)
    with mock.patch.object(kernels, "prepare_plain", return_value=None):
        assert outcome(schema, updates) == ours
    place = (7, 2, schema.is_open, schema.plans, schema.plan_of_others, DirectCommit)
    for update in updates:
        direct = writes.plain_commit(place, update, b"metadata", 3, "id")
        if direct is not None:
            made = outcome(schema, [update])
            fields = (7, 2, made, b"metadata", writes.written_item(made), 3, schema.is_open, "id", None, None)
            assert type(direct) is DirectCommit
            assert direct == fields


def test_plain_writes_are_prepared_by_the_kernel():
    """Else the test above would compare Python with itself."""
    update = {"put": {"a": 1}, "sum": 2, "one": "x", "many": [1, 2], "most": 1.5}
    writes.prepare_writes(SCHEMA, [update])
    made = kernels.prepare_plain(update, SCHEMA.plans, channel_keys, SCHEMA.plan_of_others, Prepared)
    assert [type(write) for write in made] == [Prepared] * 5
    for refused in ({"put": object()}, {"keyed": []}, {"notes": {}}, {Text("put"): 1}, {"unseen": 1}, [], None):
        assert kernels.prepare_plain(refused, SCHEMA.plans, channel_keys, SCHEMA.plan_of_others, Prepared) is None


def test_plain_commits_are_made_by_the_kernel():
    place = (1, 0, False, SCHEMA.plans, SCHEMA.plan_of_others, DirectCommit)
    update = {"put": {"a": 1}, "sum": 2, "many": [1, 2]}
    writes.written_item(writes.prepare_writes(SCHEMA, [update]))  # its channels are known from here on
    assert writes.plain_commit(place, update, b"", None, None).written == cbor.encode(["many", "put", "sum"])
    for refused in ({"put": object()}, {"keyed": []}, {"notes": {}}, {Text("put"): 1}, {"unseen": 1}, [], None):
        assert writes.plain_commit(place, refused, b"", None, None) is None


def test_names_are_remembered_however_many_there_were_before():
    for number in range(3_000):
        name = f"name {number}"
        assert writes.encode_names((name,)) == cbor.encode([name])
        assert (name,) in writes._names
    assert len(writes._names) <= 1_024


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (channel_keys, {}, (1, 0), {}, b"", None, None),
        (channel_keys, {}, [], {}, b"", None, None),
        (channel_keys, {}, (1, 0, False, [], None, DirectCommit), {}, b"", None, None),
        ([], {}, (1, 0, False, {}, None, DirectCommit), {}, b"", None, None),
        (channel_keys, [], (1, 0, False, {}, None, DirectCommit), {}, b"", None, None),
        (channel_keys, {}, (1, 0, False, {"put": 3}, None, DirectCommit), {"put": 1}, b"", None, None),
    ],
)
def test_wrong_arguments_of_plain_commit(wrong):
    channel_key("put")
    with pytest.raises((TypeError, SystemError)):
        kernels.plain_commit(*wrong)


def test_channels_are_remembered_however_many_there_were_before():
    for number in range(10_000):
        channel_key(f"channel {number}")
        assert f"channel {number}" in channel_keys
    assert len(channel_keys) < 5_000


def test_changes_are_found_by_the_kernel():
    root, opens = (b"root", 3, 5), ((b"open", 4, 2), (b"above", 3, 1))
    lists = {channel_key(name): (b"digest", root, opens) for name in ("one", "many", "sum")}
    update = {"sum": [1, 2], "put": {"a": 1}, "one": "x", "many": [1, "b"]}
    none = (b"", 0, 0)
    assert kernels.plain_changes(writes.prepare_writes(SCHEMA, [update]), lists, channel_keys) == [
        (kernels.STEP_APPEND, b"\x63one", b"\x61x", 1, kernels.KIND_LIST, root, opens),
        (kernels.STEP_PUT, b"\x63put", b"\xa1\x61a\x01", 0, 0, none, ()),
        (kernels.STEP_APPEND, b"\x63sum", b"\x01\x02", 2, kernels.KIND_LIST, root, opens),
        (kernels.STEP_APPEND, b"\x64many", b"\x01\x61b", 2, kernels.KIND_LIST, root, opens),
    ]
    add = writes.prepare_writes(SCHEMA, [{"sum": 2}, {"put": 1}])
    operations = [change[0] for change in kernels.plain_changes(add, {}, channel_keys)]
    assert operations == [kernels.STEP_PUT, kernels.STEP_ADD]
    overwrite = writes.prepare_writes(SCHEMA, [{"many": Overwrite([7])}])
    assert kernels.plain_changes(overwrite, lists, channel_keys)[0][:3] == (kernels.STEP_PUT, b"\x64many", b"\x81\x07")
    assert kernels.plain_changes([], lists, channel_keys) == []


@pytest.mark.parametrize(
    "updates",
    [
        [{"one": 1}],  # a list that is not in memory
        [{"put": 1}, {"put": 2}],
        [{"keyed": [{"id": "a"}]}],
        [{"notes": {"k": 1}}],
        [{"many": []}],
        [{"put": 1, "most": 2}],
    ],
)
def test_changes_that_python_must_find(updates):
    lists = {channel_key("many"): (b"digest", (b"root", 3, 5), ())}
    prepared = writes.prepare_writes(SCHEMA, updates)
    assert kernels.plain_changes(prepared, lists, channel_keys) is None
    assert kernels.plain_changes(tuple(prepared), lists, channel_keys) is None
    assert kernels.plain_changes([object()], lists, channel_keys) is None
    assert kernels.plain_changes(prepared[:1], {channel_key("one"): (b"no root",)}, {}) is None


def test_wrong_arguments_of_plain_changes():
    prepared = writes.prepare_writes(SCHEMA, [{"one": 1}])
    for arguments in ((), (prepared, {}), (prepared, {}, [])):
        with pytest.raises(TypeError):
            kernels.plain_changes(*arguments)
    with pytest.raises(IndexError):
        kernels.plain_changes(prepared, {channel_key("one"): (b"no root",)}, channel_keys)
    with pytest.raises(TypeError):
        kernels.plain_changes([prepared[0]._replace(payload=["no bytes"])], {b"\x63one": (0, 1, 2)}, channel_keys)


@pytest.mark.parametrize(
    "arguments",
    [(), (1, 2), ({}, {}, {}, None), ({"a": 1}, {"a": 1}, {"a": b""}, None, Prepared)],
)
def test_wrong_arguments_of_prepare_plain(arguments):
    with pytest.raises((TypeError, SystemError)):
        kernels.prepare_plain(*arguments)


def test_an_update_that_changes_as_it_is_prepared():
    """Finalizers run where objects are made: what is taken out meanwhile is not lost hold of."""
    update = {f"k{number}": [["x" * 50]] for number in range(40)}
    schema = Schema.of(dict.fromkeys(update, reducers.extend))
    writes.prepare_writes(schema, [update])

    class Late:
        def __init__(self):
            self.me = self

        def __del__(self):
            for value in update.values():
                value.clear()
            update.clear()

    before = gc.get_threshold()
    try:
        for at in range(1, 120):
            update.update({f"k{number}": [["x" * 50] for _ in range(3)] for number in range(40)})
            Late()
            gc.set_threshold(at)
            made = kernels.prepare_plain(update, schema.plans, channel_keys, None, Prepared)
            gc.set_threshold(*before)
            assert made is None or len(made) <= 40
    finally:
        gc.set_threshold(*before)


@given(st.binary(min_size=16, max_size=16), *[st.integers(0, 2**64 - 1)] * 3, st.binary(max_size=3000))
def test_a_group_of_one_is_as_format_md_draws_it(session, epoch, lsn, flushed, record):
    rest = struct.pack(">IIQQQI", len(record) + 4, 1, epoch, lsn, flushed, len(record)) + record
    made = kernels.group_of_one(session, epoch, lsn, flushed, record)
    assert made == xxh3_64_digest(session + rest) + rest
    assert made == encode_group(session, epoch, lsn, [record], flushed=flushed)


@pytest.mark.parametrize(
    "arguments",
    [(), (b"", 1, 1, 1, b""), (bytes(16), -1, 1, 1, b""), (bytes(16), 1, 2**64, 1, b""), (bytes(16), 1, 1, 1, "")],
)
def test_wrong_arguments_of_group_of_one(arguments):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        kernels.group_of_one(*arguments)
