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


def test_plain_writes_are_prepared_by_the_kernel():
    """Else the test above would compare Python with itself."""
    update = {"put": {"a": 1}, "sum": 2, "one": "x", "many": [1, 2], "most": 1.5}
    writes.prepare_writes(SCHEMA, [update])
    made = kernels.prepare_plain(update, SCHEMA.plans, channel_keys, SCHEMA.plan_of_others, Prepared)
    assert [type(write) for write in made] == [Prepared] * 5
    for refused in ({"put": object()}, {"keyed": []}, {"notes": {}}, {Text("put"): 1}, {"unseen": 1}, [], None):
        assert kernels.prepare_plain(refused, SCHEMA.plans, channel_keys, SCHEMA.plan_of_others, Prepared) is None


def test_names_are_remembered_however_many_there_were_before():
    for number in range(3_000):
        name = f"name {number}"
        assert writes.encode_names((name,)) == cbor.encode([name])
        assert (name,) in writes._names
    assert len(writes._names) <= 1_024


def test_channels_are_remembered_however_many_there_were_before():
    for number in range(10_000):
        channel_key(f"channel {number}")
        assert f"channel {number}" in channel_keys
    assert len(channel_keys) < 5_000


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
def test_a_group_is_as_format_md_draws_it(session, epoch, lsn, flushed, record):
    rest = struct.pack(">IIQQQI", len(record) + 4, 1, epoch, lsn, flushed, len(record)) + record
    made = encode_group(session, epoch, lsn, [record], flushed=flushed)
    assert made == xxh3_64_digest(session + rest) + rest
