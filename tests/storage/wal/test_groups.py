"""Groups of records in the journal, as FORMAT.md draws them."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from statelog.storage.wal.wal_format import encode_group


@given(st.binary(min_size=16, max_size=16), *[st.integers(0, 2**64 - 1)] * 3, st.binary(max_size=3000))
def test_a_group_is_as_format_md_draws_it(session, epoch, lsn, flushed, record):
    rest = struct.pack(">IIQQQI", len(record) + 4, 1, epoch, lsn, flushed, len(record)) + record
    made = encode_group(session, epoch, lsn, [record], flushed=flushed)
    assert made == xxh3_64_digest(session + rest) + rest
