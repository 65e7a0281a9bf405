from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import damaged

from statelog.errors import LimitError
from statelog.kernels.msgpack import join_array, split_array

relaxed = settings(deadline=None)

SCALARS = {
    "positive fixint": "7f",
    "negative fixint": "e0",
    "nil": "c0",
    "false": "c2",
    "true": "c3",
    "uint 8": "ccff",
    "uint 16": "cdffff",
    "uint 32": "ceffffffff",
    "uint 64": "cfffffffffffffffff",
    "int 8": "d080",
    "int 16": "d18000",
    "int 32": "d280000000",
    "int 64": "d38000000000000000",
    "float 32": "ca3f800000",
    "float 64": "cb3ff199999999999a",
    "fixstr": "a3616263",
    "str of no UTF-8": "a2ff00",
    "str 8": "d90161",
    "str 16": "da000161",
    "str 32": "db0000000161",
    "bin 8": "c401ff",
    "bin 16": "c50001ff",
    "bin 32": "c600000001ff",
    "fixext 1": "d405aa",
    "fixext 2": "d505aaaa",
    "fixext 4": "d605aaaaaaaa",
    "fixext 8": "d705" + "aa" * 8,
    "fixext 16": "d805" + "aa" * 16,
    "ext 8": "c70305aabbcc",
    "ext 8 of nothing": "c70005",
    "ext 16": "c8000105aa",
    "ext 32": "c90000000105aa",
}
CONTAINERS = {
    "fixarray": "9301c0a161",
    "array 16": "dc0001c0",
    "array 32": "dd00000001c0",
    "fixmap": "82a16101a1629102",
    "map 16": "de0001a161c0",
    "map 32": "df00000001a161c0",
    "key that is an array": "8191c0c0",
    "empty": "9080",
}
ITEMS = SCALARS | CONTAINERS | {"empty": "90"}

REFUSED = {
    "nothing": "",
    "an int": "01",
    "a map": "81a16101",
    "the byte that is never used": "91c1",
    "cut off in a head": "dc00",
    "cut off in an item": "91a36162",
    "cut off before an item": "9201",
    "cut off in a nested array": "91920101"[:-2],
    "cut off in a nested map": "9181a161",
    "trailing byte": "910101",
    "array 16 of 15": "dc000f" + "01" * 15,
    "array 32 of 65,535": "dd0000ffff" + "01" * 0xFFFF,
    "array 16 of none": "dc0000",
    "array 32 of more than there is": "ddffffffff01",
    "nested array of more than there is": "91ddffffffff01",
    "nested map of more than there is": "91dfffffffff01",
    "str of more than there is": "91dbffffffff61",
    "bin of more than there is": "91c6ffffffff61",
    "ext of more than there is": "91c9ffffffff0561",
    "ext without its type": "91c700",
}

ANY_ITEM = st.recursive(
    st.sampled_from([bytes.fromhex(each) for each in SCALARS.values()])
    | st.binary(max_size=40).map(lambda data: b"\xc4" + bytes([len(data)]) + data),
    lambda items: (
        st.lists(items, max_size=20).map(join_array)
        | st.lists(st.tuples(items, items), max_size=5).map(
            lambda pairs: bytes([0x80 + len(pairs)]) + b"".join(part for pair in pairs for part in pair)
        )
    ),
    max_leaves=30,
)


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_found_between_its_neighbours(name):
    items = [b"\x01", bytes.fromhex(ITEMS[name]), b"\xa2zz"]
    assert split_array(b"\x93" + b"".join(items)) == items


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_is_not_one_whole_array_is_refused(name):
    data = bytes.fromhex(REFUSED[name])
    assert split_array(data) is None
    assert oracles.msgpack_split(data) is None


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 768, 769, 65_535, 65_536, 100_000])
def test_arrays_of_every_size_have_the_shortest_head(count):
    items = [b"\xc0", b"\xa1x"] * (count // 2) + [b"\x07"] * (count % 2)
    joined = join_array(items)
    assert joined == oracles.msgpack.array_head(count) + b"".join(items)
    assert split_array(joined) == items


@pytest.mark.parametrize("nested", [b"\x91", b"\x81\xc0", b"\x92\xc0", b"\xdc\x00\x01"])
def test_nesting_of_any_depth_is_followed(nested):
    item = nested * 1_000_000 + b"\xc0"
    assert split_array(b"\x91" + item) == [item]
    assert split_array(b"\x91" + item[:-1]) is None


def test_more_items_than_an_array_can_have_are_refused():
    class Endless(list):
        def __len__(self):
            return 2**32

    with pytest.raises(LimitError):
        join_array(Endless())


@pytest.mark.slow
@relaxed
@given(st.lists(ANY_ITEM, max_size=40))
def test_joined_arrays_are_split_again(items):
    assert split_array(join_array(items)) == items


@pytest.mark.slow
@relaxed
@given(st.data())
def test_split_agrees_with_the_oracle_on_damaged_arrays(data):
    whole = join_array(data.draw(st.lists(ANY_ITEM, max_size=20)))
    broken = data.draw(damaged(whole))
    found = split_array(broken)
    assert found == oracles.msgpack_split(broken)
    assert found is None or join_array(found) == broken


@relaxed
@given(st.binary(max_size=60))
def test_split_agrees_with_the_oracle_on_any_bytes(data):
    assert split_array(b"\x92" + data) == oracles.msgpack_split(b"\x92" + data)


def test_a_list_that_ormsgpack_packed_is_its_items_packed():
    ormsgpack = pytest.importorskip("ormsgpack", reason="comes with langgraph")
    values = [{"id": i, "text": "é" * i, "nested": [i, None, 1.5, b"x" * i]} for i in range(300)]
    packed = ormsgpack.packb(values)
    assert split_array(packed) == [ormsgpack.packb(value) for value in values]
    assert join_array(split_array(packed)) == packed
