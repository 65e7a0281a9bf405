from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import outcome
from strategies import damaged, items, keys, map_items

from statelog import kernels
from statelog.errors import CorruptionError

relaxed = settings(deadline=None)

CANONICAL = {
    "zero": "00",
    "int 23": "17",
    "int 24": "1818",
    "int 255": "18ff",
    "int 256": "190100",
    "int 65536": "1a00010000",
    "int 2**32": "1b0000000100000000",
    "int 2**64 - 1": "1bffffffffffffffff",
    "int 2**64": "c249010000000000000000",
    "int -1": "20",
    "int -2**64": "3bffffffffffffffff",
    "int -2**64 - 1": "c349010000000000000000",
    "half 1.0": "f93c00",
    "half -0.0": "f98000",
    "half smallest": "f90001",
    "half inf": "f97c00",
    "the one NaN": "f97e00",
    "single 100000.0": "fa47c35000",
    "single smallest half / 2": "fa33000000",
    "double 1.1": "fb3ff199999999999a",
    "double largest": "fb7fefffffffffffff",
    "empty text": "60",
    "text of 4 bytes UTF-8": "64f0908080",
    "bytes": "43000102",
    "list": "820102",
    "dict": "a26161016162f6",
    "tuple": "d9c8648101",
    "set": "d90102820102",
    "frozenset": "d9c86580",
    "datetime": "d9c86660",
    "UUID": "d82550" + "00" * 16,
    "Decimal": "d9c86763312e30",
    "codec": "d81b82616100",
}

REFUSED = {
    "nothing": "",
    "trailing byte": "0000",
    "int not shortest, 1 byte": "1817",
    "int not shortest, 2 bytes": "1900ff",
    "int not shortest, 4 bytes": "1a0000ffff",
    "int not shortest, 8 bytes": "1b00000000ffffffff",
    "int cut off": "19ff",
    "reserved head 28": "1c",
    "indefinite list": "9fff",
    "indefinite text": "7f60ff",
    "break": "ff",
    "single that is a half": "fa3f800000",
    "double that is a single": "fb3ff0000000000000",
    "NaN of another half": "f97e01",
    "NaN as single": "fa7fc00000",
    "NaN as double": "fb7ff8000000000000",
    "undefined": "f7",
    "simple 0": "e0",
    "simple in 2 bytes": "f820",
    "text of bad UTF-8": "61ff",
    "text of overlong UTF-8": "62c080",
    "text with a surrogate": "63eda080",
    "text above U+10FFFF": "64f4908080",
    "text cut off in a character": "62c3",
    "text longer than the data": "7bffffffffffffffff",
    "list longer than the data": "9bffffffffffffffff",
    "dict longer than the data": "bb8000000000000000",
    "dict key no text": "a10101",
    "dict keys out of order": "a2616201616101",
    "dict key twice": "a2616101616101",
    "dict without its last value": "a16161",
    "set out of order": "d90102820201",
    "set element twice": "d90102820101",
    "big int that fits 64 bits": "c248ffffffffffffffff",
    "big int with leading zero": "c24a00010000000000000000",
    "big int of text": "c269616161616161616161",
    "tag nobody knows": "d82360",
    "tag of nothing": "c2",
    "tuple of a dict": "d9c864a0",
    "UUID of 15 bytes": "d8254f" + "00" * 15,
    "datetime of an int": "d9c86600",
    "codec with one item": "d81b816161",
    "codec whose name is no text": "d81b820000",
}


@pytest.mark.parametrize("hexed", CANONICAL.values(), ids=CANONICAL.keys())
def test_check_accepts_canonical(hexed):
    kernels.cbor_check(bytes.fromhex(hexed))
    oracles.cbor_check(bytes.fromhex(hexed))


@pytest.mark.parametrize("hexed", REFUSED.values(), ids=REFUSED.keys())
def test_check_refuses_values_that_the_profile_forbids(hexed):
    with pytest.raises(CorruptionError):
        kernels.cbor_check(bytes.fromhex(hexed))
    with pytest.raises(oracles.Damaged):
        oracles.cbor_check(bytes.fromhex(hexed))


@relaxed
@given(items)
def test_check_accepts_every_encoded_value(item):
    kernels.cbor_check(item)


@relaxed
@given(items.flatmap(damaged))
def test_check_agrees_with_oracle_on_damage(data):
    assert outcome(kernels.cbor_check, data) == outcome(oracles.cbor_check, data)


@relaxed
@given(items.flatmap(damaged))
def test_split_agrees_with_oracle(data):
    assert outcome(kernels.cbor_split, data) == outcome(oracles.cbor_split, data)


def test_split_finds_children_beyond_the_scratch():
    data = oracles.encode(("list", [("int", n) for n in range(5000)]))
    kind, first, ends = kernels.cbor_split(data)
    assert (kind, first, len(ends), ends[-1]) == (kernels.KIND_LIST, 3, 5000, len(data))


@relaxed
@given(map_items | items, st.data())
def test_map_get_agrees_with_oracle(data, draw):
    pairs = oracles.decode(data)[0][1] if data[0] >> 5 == 5 else []
    known = [oracles.encode(key) for key, _ in pairs]
    key = draw.draw(st.sampled_from(known) if known else keys)
    assert kernels.cbor_map_get(data, key) == oracles.cbor_map_get(data, key)


@pytest.mark.slow
@relaxed
@given(map_items.flatmap(damaged), keys)
def test_map_get_in_damage_answers_or_refuses(data, key):
    name, span = outcome(kernels.cbor_map_get, data, key)
    assert name in ("ok", "CorruptionError")
    assert span is None or 0 < span[0] < span[1] <= len(data)


@pytest.mark.parametrize(("depth", "name"), [(128, "ok"), (129, "CorruptionError"), (100_000, "CorruptionError")])
@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x60", b"\xd9\xc8\x64\x81"], ids=["list", "dict", "tuple"])
def test_depth_is_bounded_at_128(opening, depth, name):
    data = opening * depth + b"\0"
    assert outcome(kernels.cbor_check, data)[0] == name
    assert outcome(kernels.cbor_split, data)[0] == name


def test_empty_container_counts_as_a_level():
    assert outcome(kernels.cbor_check, b"\x81" * 127 + b"\x80")[0] == "ok"
    assert outcome(kernels.cbor_check, b"\x81" * 128 + b"\x80")[0] == "CorruptionError"


def test_error_tells_where_the_wrong_item_begins():
    with pytest.raises(CorruptionError) as caught:
        kernels.cbor_check(bytes.fromhex("83010261ff"))
    assert caught.value.offset == 3
