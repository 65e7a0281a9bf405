from __future__ import annotations

import random

import oracles
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import BYTES, DICT, KEYED, LIST, MASK, SET, SORTED, STR, TUPLE, outcome, varint
from strategies import chunks, damaged, kinds, roots, runs, sequence_kinds

from statelog import kernels
from statelog.errors import CorruptionError, UsageError
from statelog.format import cbor

relaxed = settings(deadline=None)
EMPTY_LIST = (b"\x00\x00\x00\x00", 4)


def ref(number: int) -> bytes:
    """A ref whose hash is `number`."""
    return b"\xfc" + number.to_bytes(8, "big") + bytes(12)


# --- hashes and boundaries ----------------------------------------------------------------------------


def test_mix_is_splitmix64():
    assert oracles.mix(0) == 0xE220A8397B1DCDAF  # the first output of the published generator for seed 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xC3817C016BA4FF30), (b"a", 0x5F29C2AADD9B8527), (b"\x63abc", 0x4E68A69E54108F28)],
)
def test_content_hash_vectors(data, expected):
    assert oracles.content_hash(data) == expected
    assert kernels.content_hash(data) == expected


@relaxed
@given(st.binary(max_size=300))
def test_content_hash_agrees_with_oracle(data):
    assert kernels.content_hash(data) == oracles.content_hash(data)


@pytest.mark.slow
@relaxed
@given(kinds, st.integers(0, 7), st.data())
def test_boundaries_agree_with_oracle(kind, level, draw):
    entries, locators, count = draw.draw(runs(kind, level, max_size=60))
    args = (kind, level, entries, locators, count)
    assert kernels.boundaries(*args) == oracles.boundaries(*args)


@pytest.mark.slow
@relaxed
@given(kinds, st.integers(0, 2), st.data())
def test_boundaries_agree_with_oracle_on_damage(kind, level, draw):
    entries, locators, count = draw.draw(runs(kind, level))
    entries, locators = draw.draw(damaged(entries)), draw.draw(damaged(locators))
    args = (kind, level, entries, locators, count)
    assert outcome(kernels.boundaries, *args) == outcome(oracles.boundaries, *args)


@pytest.mark.parametrize("kind", [LIST, DICT, KEYED])
@pytest.mark.parametrize("level", [0, 1, 2, 6, 7])
def test_boundaries_agree_with_oracle_on_long_runs(kind, level):
    rng = random.Random(level)
    count = 1500
    keys = [oracles.encode(("text", f"key {i:08}")) if kind == DICT else b"" for i in range(count)]
    prints = [rng.randbytes(2) if kind == KEYED and level < 2 else b"" for _ in range(count)]
    body = [b"\x01" + rng.randbytes(20) + p if level else p + b"\xfd" + rng.randbytes(20) for p in prints]
    entries = b"".join(key + rest for key, rest in zip(keys, body, strict=True))
    args = (kind, level, entries, b"\x05\x06" * count, count)
    found = kernels.boundaries(*args)
    assert found == oracles.boundaries(*args)
    assert len(found) > 3 * 10


def test_a_chunk_closes_at_the_eighth_entry_with_such_a_hash():
    entries = b"".join(ref(0) for _ in range(8))
    assert kernels.boundaries(LIST, 0, entries, b"\1\1" * 8, 8) == [8, 168, 16]
    assert kernels.boundaries(LIST, 0, entries[:-21], b"\1\1" * 7, 7) == []


def test_chunk_closes_at_128_entries():
    entries = ref(1) * 130
    assert kernels.boundaries(LIST, 0, entries, b"\1\1" * 130, 130) == [128, 128 * 21, 256]


@pytest.mark.parametrize(("size", "expected"), [(4092, []), (4093, [2, 8192, 0])])
def test_chunk_closes_at_8192_bytes(size, expected):
    entries = b"".join(oracles.encode(("bytes", bytes([n]) * size)) for n in range(2))
    assert kernels.boundaries(SET, 0, entries, b"", 2) == expected


@pytest.mark.parametrize(("level", "shift"), [(1, 8), (2, 16), (6, 48), (7, 48)])
def test_upper_levels_look_at_other_bits(level, shift):
    closing = b"\x01" + (MASK & ~(15 << shift)).to_bytes(8, "big") + bytes(12)
    staying = b"\x01" + (1 << shift).to_bytes(8, "big") + bytes(12)
    assert kernels.boundaries(LIST, level, staying * 8, b"\1\1" * 8, 8) == []
    assert kernels.boundaries(LIST, level, staying * 7 + closing, b"\1\1" * 8, 8) == [8, 8 * 21, 16]


def test_strings_have_no_entries_at_level_0():
    with pytest.raises(UsageError):
        kernels.boundaries(STR, 0, b"", b"", 0)


# --- strings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_blob_cuts_agree_with_oracle_on_noise(seed):
    data = random.Random(seed).randbytes(120_000)
    assert kernels.blob_cuts(data) == oracles.blob_cuts(data)


@relaxed
@given(st.binary(max_size=64), st.integers(0, 3000), st.binary(max_size=200))
def test_blob_cuts_agree_with_oracle_on_patterns(pattern, times, rest):
    data = pattern * times + rest
    assert kernels.blob_cuts(data[:60_000]) == oracles.blob_cuts(data[:60_000])


def test_a_piece_without_a_cut_closes_at_16384_bytes():
    assert kernels.blob_cuts(bytes(40_000)) == oracles.blob_cuts(bytes(40_000)) == [16384, 32768]


@pytest.mark.slow
def test_a_cut_at_the_least_size_depends_on_exactly_64_bytes():
    pieces = (random.Random(seed).randbytes(2047) + bytes([last]) for seed in range(40) for last in range(256))
    piece = next(piece for piece in pieces if kernels.blob_cuts(piece) == [2048])
    for at, changes in ((2048 - 65, False), (2048 - 64, True)):
        variants = [piece[:at] + bytes([byte]) + piece[at + 1 :] for byte in range(256)]
        cuts = [kernels.blob_cuts(variant) for variant in variants]
        assert cuts == [oracles.blob_cuts(variant) for variant in variants]
        assert ([] in cuts) is changes


def test_cuts_follow_content_not_position():
    data = random.Random(7).randbytes(200_000)
    shifted = kernels.blob_cuts(b"x" * 1000 + data)
    assert len(set(kernels.blob_cuts(data)) & {end - 1000 for end in shifted}) > 10


# --- positions ----------------------------------------------------------------------------------------


@st.composite
def nodes(draw, kind, levels):
    is_root = draw(st.booleans())
    data, content_size = draw(roots(kind) if is_root else chunks(kind, draw(levels)))
    if draw(st.booleans()):
        data = draw(damaged(data))
    return data, content_size, is_root


@relaxed
@given(kinds, st.data(), st.integers(0, 40) | st.integers(0, 2**44))
def test_find_position_agrees_with_oracle(kind, draw, position):
    data, content_size, is_root = draw.draw(nodes(kind, st.integers(0, 3)))
    options = {"is_root": is_root, "kind": kind, "position": position}
    args = (data, content_size, 9)
    assert outcome(kernels.find_position, *args, **options) == outcome(oracles.find_position, *args, **options)


def test_position_in_the_tail_of_a_string_is_an_offset():
    content = bytes([STR]) + varint(5) + b"\0" + varint(5) + b"hello"
    found = kernels.find_position(content, len(content), 1, is_root=True, kind=STR, position=3)
    assert found == (0, 3, 4, 9, 0, 0, 5)


def test_position_behind_the_end_is_refused():
    with pytest.raises(CorruptionError):
        kernels.find_position(*EMPTY_LIST, 1, is_root=True, kind=LIST, position=0)


@pytest.mark.slow
@relaxed
@given(st.data(), st.sampled_from([0, 1, 0xFFFF, 2]), st.integers(0, 20))
def test_fingerprint_find_agrees_with_oracle(draw, fingerprint, start):
    data, content_size, is_root = draw.draw(nodes(KEYED, st.integers(0, 1)))
    if not is_root and data[:1] > b"\x01":
        data = b"\x01" + data[1:]
    options = {"is_root": is_root, "fingerprint": fingerprint, "start": start}
    args = (data, content_size)
    assert outcome(kernels.fingerprint_find, *args, **options) == outcome(oracles.fingerprint_find, *args, **options)


def test_fingerprints_stand_in_no_level_above_1():
    data = b"\x07\x02\x01\x05" + bytes(20) + b"\1\1"
    with pytest.raises(UsageError):
        kernels.fingerprint_find(data, len(data) - 2, is_root=False, fingerprint=0, start=0)


# --- append -------------------------------------------------------------------------------------------


@pytest.mark.slow
@relaxed
@given(sequence_kinds, st.sampled_from([0, 1, 2**40]), st.data())
def test_tail_append_agrees_with_oracle(kind, home_lsn, draw):
    data, content_size = draw.draw(roots(kind))
    args = (data, content_size, home_lsn, *draw.draw(runs(kind, max_size=6)))
    assert outcome(kernels.tail_append, *args) == outcome(oracles.tail_append, *args)


@pytest.mark.slow
@relaxed
@given(sequence_kinds, st.data())
def test_tail_append_agrees_with_oracle_on_damage(kind, draw):
    data, content_size = draw.draw(roots(kind))
    entries, locators, count = draw.draw(runs(kind, max_size=6))
    data = draw.draw(damaged(data))
    assume(data and data[0] not in (*SORTED, STR, BYTES))
    args = (data, content_size, 3, draw.draw(damaged(entries)), draw.draw(damaged(locators)), count)
    assert outcome(kernels.tail_append, *args) == outcome(oracles.tail_append, *args)


@relaxed
@given(st.sampled_from([LIST, TUPLE]), st.data())
def test_appending_one_by_one_equals_appending_at_once(kind, draw):
    entries, locators, count = draw.draw(runs(kind, max_size=7))
    empty = (bytes([kind, 0, 0, 0]), 4)
    node = empty
    table = list(oracles.loose(kind, 0, entries, locators, count))
    for entry in table:
        node = kernels.tail_append(*node, 0, *oracles.pack([entry]), 1)
    assert node == kernels.tail_append(*empty, 0, entries, locators, count)


def test_append_that_closes_a_chunk_falls_back():
    node = (b"\x00\x07\x00\x07" + ref(1) * 7 + b"\1\1" * 7, 4 + 7 * 21)
    assert kernels.tail_append(*node, 5, ref(0), b"\0\1", 1) is None
    assert kernels.tail_append(*node, 5, ref(1), b"\0\1", 1) is not None


def test_append_that_reaches_8192_bytes_falls_back():
    slots = [oracles.encode(("bytes", n.to_bytes(62, "big"))) for n in range(300)]
    entries = [b"\0\0" + slot for slot in slots if oracles.content_hash(slot) & 7]
    content = b"\x07\x02id" + varint(123) + b"\x00" + varint(123) + b"".join(entries[:123])
    grown, content_size = kernels.tail_append(content, len(content), 1, entries[123], b"", 1)
    assert kernels.tail_append(grown, content_size, 1, entries[124], b"", 1) is None


def test_append_relocates_old_entries_but_not_new_ones():
    node = (b"\x00\x01\x00\x01" + ref(1) + b"\x00\x02", 25)
    grown, content_size = kernels.tail_append(*node, 300, ref(2), b"\x00\x03", 1)
    assert grown[:content_size] == b"\x00\x02\x00\x02" + ref(1) + ref(2)
    assert grown[content_size:] == varint(300) + b"\x02" + b"\x00\x03"


def test_append_to_a_root_beyond_the_scratch():
    content = b"\x00\x01\x00\x01" + b"\x05"
    entries = b"\x58\x3e" + bytes(62)
    node = kernels.tail_append(content, len(content), 1, entries * 6, b"", 6)
    assert node is not None
    with pytest.raises(CorruptionError):
        kernels.tail_append(content, len(content), 1, bytes(200_000), b"", 1)


def test_append_to_a_dict_is_a_usage_error():
    with pytest.raises(UsageError):
        kernels.tail_append(b"\x02\x00\x00\x00", 4, 1, b"\x05", b"", 1)


def test_append_beyond_64_bits_of_count_is_refused():
    covered = varint(2**64 - 1)
    content = b"\x00" + covered + b"\x01" + covered + bytes(20) + b"\x00"
    with pytest.raises(CorruptionError):
        kernels.tail_append(content + b"\1\1", len(content), 1, b"\x05", b"", 1)


@relaxed
@given(st.lists(st.integers(0, 300), max_size=700), st.integers(0, 300), st.integers(0, 710))
def test_fingerprints_in_a_row_are_found_where_they_first_are(prints, wanted, start):
    data = b"".join(number.to_bytes(2, "big") for number in prints)
    expected = next((i for i in range(start, len(prints)) if prints[i] == wanted), -1)
    assert kernels.prints_find(data, wanted, start) == expected


@relaxed
@given(st.lists(st.integers(0, 60), max_size=5), st.lists(st.integers(0, 60), max_size=30))
def test_fingerprints_of_new_items_are_those_of_their_identities(new, held):
    def fingerprint(identity):
        return (oracles.content_hash(cbor.encode(identity)) & 0xFFFF).to_bytes(2, "big")

    items = b"".join(cbor.encode({"a": number, "id": number, "z": [number]}) for number in new)
    prints = bytearray(b"".join(map(fingerprint, held)))
    is_new = len(set(new)) == len(new) and not set(new) & set(held)
    expected = b"".join(map(fingerprint, new)) if is_new else None
    assert kernels.step_prints(items, cbor.encode("id"), prints) == expected
    for strange in ({"a": 1}, [1], 1):
        assert kernels.step_prints(items + cbor.encode(strange), cbor.encode("id"), prints) is None
