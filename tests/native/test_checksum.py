"""Compares XXH3-64 of the kernels with the library `xxhash`, which writes the checksums."""

from __future__ import annotations

import random

import pytest
import xxhash

from statelog._kernels import lib

SEED = 7


@pytest.mark.parametrize("sizes", [range(2049), (4096, 16383, 16384, 100_000)], ids=["short", "long"])
def test_the_checksum_of_any_size_is_that_of_the_library(sizes):
    data = random.Random(SEED).randbytes(max(sizes))
    for size in sizes:
        part = data[len(data) - size :]
        assert lib.sl_checksum(part, size) == xxhash.xxh3_64_intdigest(part), size


def test_the_checksum_of_random_sizes_is_that_of_the_library():
    rng = random.Random(SEED)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(20_000))
        assert lib.sl_checksum(data, len(data)) == xxhash.xxh3_64_intdigest(data), len(data)
