"""Frames are read as written, and any change, truncation, move or false size is detected."""

import io
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.errors import CorruptionError, FormatError, UsageError
from statelog.portable.frames import (
    EVENT,
    HEADER,
    LOG,
    MAGIC,
    NODE,
    RECORD,
    TRAILER,
    FrameReader,
    FrameWriter,
    Header,
)

HEAD = Header(LOG, bytes(16), 0, bytes(20), 9)


def write(payloads, header=HEAD):
    stream = io.BytesIO()
    writer = FrameWriter(stream, header)
    for payload in payloads:
        writer.put(RECORD, payload)
    writer.finish(last=9, chain=bytes(20))
    assert writer.size_bytes == len(stream.getvalue())
    return stream.getvalue()


def read(data):
    reader = FrameReader(io.BytesIO(data))
    frames = []
    while (frame := reader.read()) is not None:
        frames.append(frame)
    return reader, frames


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_written_objects_are_read(payloads):
    reader, frames = read(write(payloads))
    assert [frame.payload for frame in frames] == payloads
    assert reader.header == HEAD
    assert reader.trailer["last"] == 9


def test_a_large_frame_is_written_and_read():
    payload = bytes(3_000_000)
    assert read(write([payload]))[1][0].payload == payload


def test_a_frame_has_its_offset():
    data = write([b"one", b"two"])
    _reader, frames = read(data)
    assert [data[frame.offset + 5 :][:3] for frame in frames] == [b"one", b"two"]


def test_a_target_with_partial_writes_gets_everything():
    class Narrow(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def write(self, data):
            self.data += bytes(data[:7])
            return min(len(data), 7)

    narrow = Narrow()
    FrameWriter(narrow, HEAD).finish(last=9, chain=bytes(20))
    assert narrow.data == write([])


def test_a_source_with_partial_reads_is_read_completely():
    class Narrow(io.BytesIO):
        def read(self, size):
            return super().read(min(size, 3))

    reader = FrameReader(Narrow(write([b"payload"])))
    assert reader.read().payload == b"payload"
    assert reader.read() is None


@given(st.data())
def test_every_changed_byte_is_detected(data):
    whole = write([b"some payload", b"and more"])
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = whole[:at] + bytes((whole[at] ^ bit,)) + whole[at + 1 :]
    with pytest.raises((CorruptionError, FormatError)) as caught:
        read(changed)
    assert caught.value.offset <= len(whole)


def test_every_truncation_is_detected():
    whole = write([b"some payload", b"and more"])
    for length in range(len(whole)):
        with pytest.raises((CorruptionError, FormatError)) as caught:
            read(whole[:length])
        assert caught.value.offset <= length


def test_moved_repeated_and_missing_frames_are_detected(split):
    """Each frame has a correct checksum for its former position."""
    whole = write([b"one", b"two"])
    starts = [len(MAGIC)]
    for piece in split(whole):
        starts.append(starts[-1] + 5 + len(piece.payload) + 8)
    parts = [whole[start:stop] for start, stop in pairwise(starts)]
    header, one, two, trailer = parts
    for order in ((header, two, one, trailer), (header, one, one, two, trailer), (header, two, trailer)):
        with pytest.raises(CorruptionError):
            read(MAGIC + b"".join(order))


def test_bytes_after_the_end_are_detected():
    reader, _frames = read(write([]) + b"x")
    with pytest.raises(CorruptionError, match="is followed by further data"):
        reader.following()
    reader, _frames = read(write([]) + b"x")
    with pytest.raises(CorruptionError, match="is followed by further data"):
        reader.check_end()


def test_an_export_after_another_is_read_with_its_offset():
    first = write([b"one"])
    reader, _frames = read(first + write([b"two"]))
    following = reader.following()
    assert following.read().payload == b"two"
    assert following.read() is None
    assert following.following() is None
    assert following.offset == len(first) + len(write([b"two"]))


def test_a_trailer_of_another_export_is_detected():
    one, other = write([b"one"]), write([b"two"])
    start = one.rindex(b"frames") - 20
    with pytest.raises(CorruptionError):
        read(one[:start] + other[start:])


def test_a_second_header_is_detected(split, join):
    header, *rest = split(write([b"one"]))
    with pytest.raises(CorruptionError, match="a second header"):
        read(join([header, header, *rest]))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"hello, this is no export at all", MAGIC[:5], MAGIC.replace(b"\r\n", b"\n") + bytes(50)]
)
def test_invalid_exports_are_refused_at_once(data):
    with pytest.raises(FormatError, match="not an export") as caught:
        read(data)
    assert caught.value.offset == 0


def test_a_newer_export_is_refused_with_the_format_it_needs(with_header):
    with pytest.raises(FormatError, match="has format 5") as caught:
        read(with_header(write([]), format=5, more="fields"))
    assert (caught.value.needed, caught.value.supported) == (5, 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "other"},
        {"store_id": b"short"},
        {"since": -1},
        {"since": 10},
        {"chain": b"short"},
        {"last": 1 << 63},
        {"last": "9"},
        {"more": 1},
    ],
    ids=str,
)
def test_an_impossible_header_is_refused(fields, with_header):
    with pytest.raises(CorruptionError):
        read(with_header(write([]), **fields))


@pytest.mark.parametrize("kind", [0, 1, 255])
def test_an_unknown_kind_of_frame_is_refused(kind, split, join, piece):
    header, trailer = split(write([]))
    with pytest.raises(CorruptionError, match="unknown kind"):
        read(join([header, piece(kind, b""), trailer]))


@pytest.mark.parametrize("kind", [RECORD, NODE, EVENT, HEADER, TRAILER])
def test_a_claimed_size_allocates_no_memory(kind, split):
    """The claimed size is large, and almost no data follows."""
    whole = write([])
    header_size_bytes = 5 + len(split(whole)[0].payload) + 8
    data = whole[: len(MAGIC) + header_size_bytes] + bytes((kind,)) + (1 << 26).to_bytes(4) + b"little"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_text_instead_of_bytes_is_a_usage_error():
    with pytest.raises(UsageError, match="binary"):
        FrameReader(io.StringIO("text"))
