"""Keys of the index: their bytes, and their sort order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.format import keys

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
THREAD = "0000000000000007"


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (keys.encode_thread_id_key("é1"), "74" + "c3a931"),
        (keys.encode_thread_key(7), "54" + THREAD),
        (keys.encode_branch_name_key(7, "main"), "62" + THREAD + "6d61696e"),
        (keys.encode_branch_key(7, 2), "42" + THREAD + "00000002"),
        (keys.encode_branch_prefix(7), "42" + THREAD),
        (keys.encode_page_key(7, 2, 31), "76" + THREAD + "00000002" + "00000000"),
        (keys.encode_page_key(7, 2, 32), "76" + THREAD + "00000002" + "00000001"),
        (keys.encode_page_prefix(7, 2), "76" + THREAD + "00000002"),
        (keys.encode_checkpoint_id_key(7, "id"), "69" + THREAD + "6964"),
        (keys.encode_tag_key(7, "t"), "67" + THREAD + "74"),
        (keys.encode_tag_prefix(7), "67" + THREAD),
        (keys.encode_digest_key(bytes(range(20))), "64" + bytes(range(20)).hex()),
        (keys.encode_tombstone_key(bytes(20)), "78" + "00" * 20),
        (keys.encode_thread_event_key(7, 9), "65" + THREAD + "0000000000000009"),
        (keys.encode_redacted_key(7, 255), "72" + THREAD + "0000000000000000"),
        (keys.encode_redacted_key(7, 256), "72" + THREAD + "0000000000000001"),
        (keys.encode_lsn(258), "0000000000000102"),
        (keys.encode_u32(258), "00000102"),
    ],
)
def test_keys_are_pinned(key, data):
    assert key.hex() == data


@given(U64, U64)
def test_lsns_sort_by_number(first, second):
    assert (keys.encode_lsn(first) < keys.encode_lsn(second)) == (first < second)
    assert keys.decode_lsn(keys.encode_lsn(first)) == first


@given(U32)
def test_numbers_are_decoded_unchanged(number):
    assert keys.decode_u32(keys.encode_u32(number)) == number


@given(st.tuples(U64, U32, U32), st.tuples(U64, U32, U32))
def test_version_pages_sort_by_thread_branch_and_page(first, second):
    one, other = keys.encode_page_key(*first), keys.encode_page_key(*second)
    parted = [(thread, branch, version // keys.VERSIONS_PER_PAGE) for thread, branch, version in (first, second)]
    assert (one < other) == (parted[0] < parted[1])
    assert keys.page_number(one) == parted[0][2]
    assert one.startswith(keys.encode_page_prefix(*first[:2]))


@given(U64, U32, U64, st.booleans())
def test_places_are_decoded_unchanged(lsn, node, thread, borrowed):
    place = keys.SharedNodePlace(lsn, node, thread, borrowed)
    assert keys.decode_place(keys.encode_place(place)) == place


@given(U64, U64)
def test_event_keys_have_their_lsn(thread, lsn):
    assert keys.decode_event_lsn(keys.encode_thread_event_key(thread, lsn)) == lsn


@given(U64, st.integers(0, 2**56 - 1), st.dictionaries(st.integers(0, 255), st.integers(0, 255)))
def test_pages_of_redacted_records_are_decoded_unchanged(thread, page, states):
    states = {256 * page + offset: state for offset, state in states.items()}
    key = keys.encode_redacted_key(thread, 256 * page)
    found = keys.decode_redacted_page(key, keys.encode_redacted_page(states))
    assert found == states
    assert list(found) == sorted(states)


@given(st.lists(st.tuples(U64, st.text(min_size=1, max_size=10)), min_size=2, max_size=2, unique=True))
def test_different_names_have_different_keys(names):
    for encode in (keys.encode_branch_name_key, keys.encode_checkpoint_id_key, keys.encode_tag_key):
        assert encode(*names[0]) != encode(*names[1])
