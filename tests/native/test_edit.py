from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import outcome
from strategies import chunks, damaged, runs

from statelog import kernels
from statelog.errors import CorruptionError

relaxed = settings(deadline=None)
KINDS = [kernels.KIND_LIST, kernels.KIND_DICT, kernels.KIND_SET, kernels.KIND_KEYED]


@pytest.mark.slow
@relaxed
@given(st.sampled_from(KINDS), st.integers(0, 2), st.booleans(), st.data())
def test_chunk_replace_agrees_with_oracle(kind, level, is_closed, draw):
    data, content_size = draw.draw(chunks(kind, level))
    entries, locators, added = draw.draw(runs(kind, level, max_size=4))
    count = oracles.Reader(data, 2, len(data)).varint()
    start = draw.draw(st.integers(0, count))
    stop = draw.draw(st.integers(start, count))
    options = {
        "kind": kind, "start": start, "stop": stop, "entries": entries, "locators": locators, "added": added,
        "is_closed": is_closed,
    }  # fmt: skip
    args = (data, content_size, 7)
    assert outcome(kernels.chunk_replace, *args, **options) == outcome(oracles.chunk_replace, *args, **options)
    hurt = draw.draw(damaged(data))
    args = (hurt, min(content_size, len(hurt)), 7)
    assert outcome(kernels.chunk_replace, *args, **options) == outcome(oracles.chunk_replace, *args, **options)


def items(count):
    return b"".join(bytes([n % 20]) for n in range(count))


def test_chunk_that_would_close_too_early_is_left_to_the_caller():
    slots = next(bytes([n]) for n in range(24) if kernels.content_hash(bytes([n])) & 7 == 0)
    open_level = (
        bytes([kernels.KIND_LIST, 0, 8])
        + next(bytes([n]) for n in range(24) if kernels.content_hash(bytes([n])) & 7) * 8
    )
    options = {"kind": 0, "start": 7, "stop": 8, "entries": slots, "locators": b"", "added": 1}
    assert kernels.chunk_replace(open_level, len(open_level), 0, **options, is_closed=False) is None
    closed = kernels.chunk_replace(open_level, len(open_level), 0, **options, is_closed=True)
    assert closed == (open_level[:-1] + slots, len(open_level))


def test_replacing_beyond_the_end_is_refused():
    chunk = bytes([kernels.KIND_LIST, 0, 2]) + items(2)
    options = {"kind": 0, "entries": b"", "locators": b"", "added": 0, "is_closed": False}
    with pytest.raises(CorruptionError):
        kernels.chunk_replace(chunk, len(chunk), 0, start=1, stop=3, **options)
    assert kernels.chunk_replace(chunk, len(chunk), 0, start=0, stop=2, **options) is None
