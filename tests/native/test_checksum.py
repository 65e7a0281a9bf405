"""XXH3-64 of the kernels, beside that of the library which writes what they check."""

from __future__ import annotations

import random

import pytest
import xxhash

from statelog._kernels import lib


@pytest.mark.parametrize("sizes", [range(1300), (2048, 4096, 16383, 16384, 100_000)], ids=["short", "long"])
def test_it_is_what_the_library_says_of_any_size(sizes):
    data = random.Random(7).randbytes(max(sizes))
    for size in sizes:
        part = data[len(data) - size :]
        assert lib.sl_checksum(part, size) == xxhash.xxh3_64_intdigest(part), size
