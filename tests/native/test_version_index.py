from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import outcome
from strategies import damaged

from statelog import kernels
from statelog.errors import CorruptionError, UsageError
from statelog.kernels import VersionEntry

relaxed = settings(deadline=None)
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
entries = st.tuples(u64, u64)


@st.composite
def pages(draw):
    """First version and entries, times ascending."""
    first = draw(st.integers(0, 2**27 - 1)) * 32 + draw(st.integers(0, 31))
    made = draw(st.lists(entries, min_size=1, max_size=32 - first % 32))
    times = sorted(entry[1] for entry in made)
    return first, [(entry[0], time, *entry[2:]) for entry, time in zip(made, times, strict=True)]


@relaxed
@given(pages())
def test_appending_builds_the_page_of_the_oracle(page):
    first, made = page
    payload = b""
    for version, entry in enumerate(made, first):
        payload = kernels.page_append(payload, version, *entry)
    assert payload == oracles.page_build(first, made)
    assert kernels.page_range(payload) == (first, first + len(made) - 1)
    assert [kernels.page_read(payload, version) for version in range(first, first + len(made))] == made


@relaxed
@given(pages(), u64)
def test_find_time_agrees_with_oracle(page, time_us):
    payload = oracles.page_build(*page)
    assert kernels.page_find_time(payload, time_us) == oracles.page_find_time(payload, time_us)
    for _, entry_time_us, *_ in page[1]:
        assert kernels.page_find_time(payload, entry_time_us) == oracles.page_find_time(payload, entry_time_us)


@relaxed
@given(pages().map(lambda page: oracles.page_build(*page)).flatmap(damaged), u32)
def test_read_agrees_with_oracle_on_damage(payload, version):
    first = int.from_bytes(payload[:4], "big")
    for wanted in (version, first, min(first + 3, 2**32 - 1)):
        assert outcome(kernels.page_read, payload, wanted) == outcome(oracles.page_read, payload, wanted)


def test_page_vector():
    entry = VersionEntry(1, 2)
    page = kernels.page_append(b"", 0, *entry)
    assert page.hex() == "000000000000000100000000000000010000000000000002"
    assert kernels.page_read(page, 0) == entry


@relaxed
@given(pages(), st.data())
def test_versions_left_out_are_entries_of_zeros(page, draw):
    """As after retention: the first and the last are there, some between are not."""
    first, made = page
    kept = {0, len(made) - 1} | draw.draw(st.sets(st.integers(0, len(made) - 1)))
    payload = b""
    for index in sorted(kept):
        payload = kernels.page_append(payload, first + index, *made[index])
    assert payload == oracles.page_build(first, [e if i in kept else (0, 0) for i, e in enumerate(made)])


@pytest.mark.parametrize("version", [0, 5])
def test_append_of_a_version_that_is_not_later_is_a_usage_error(version):
    entry = VersionEntry(1, 1)
    page = kernels.page_append(b"", 5, *entry)
    with pytest.raises(UsageError):
        kernels.page_append(page, version, *entry)


def test_a_page_ends_at_a_multiple_of_32():
    entry = VersionEntry(1, 1)
    page = kernels.page_append(b"", 31, *entry)
    with pytest.raises(UsageError):
        kernels.page_append(page, 32, *entry)


@pytest.mark.parametrize("version", [4, 6])
def test_read_of_a_version_outside_is_refused(version):
    page = kernels.page_append(b"", 5, 1, 1)
    with pytest.raises(CorruptionError):
        kernels.page_read(page, version)


def test_jumps_are_those_of_a_skew_binary_list():
    """Myers' rule: if the last two jumps are equally long, jump to their end, and otherwise to the parent."""
    jumps = [0, 0]
    for depth in range(2, 5000):
        parent, far = depth - 1, jumps[depth - 1]
        both_equal = far and parent - far == far - jumps[far]
        jumps.append(jumps[far] if both_equal else parent)
    assert [kernels.jump_depth(depth) for depth in range(5000)] == jumps
    assert kernels.jump_depth(2**64 - 1) == 0
    assert kernels.jump_depth(2**64 - 2) == 2**63 - 1
