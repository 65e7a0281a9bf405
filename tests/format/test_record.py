"""Records: their bytes equal those of FORMAT.md section 3, and other bytes are refused."""

from __future__ import annotations

import struct
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from statelog import kernels
from statelog.errors import CorruptionError, FormatError, LimitError
from statelog.format import cbor, record
from statelog.format.record import (
    CHAINED_EVERY,
    FLAG_CHAINED,
    FLAG_CONTINUES,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    NodeRow,
    checkpoint_digest,
    contents_digest,
    decode_record,
    encode_record,
    pack_nodes,
    part_digest,
    record_chain_digest,
    record_lsn,
    redact_record,
    varint,
    with_previous_chain,
)
from statelog.tree.node import LEAF, PIECE, node_digest

BODY = cbor.encode([1, 2, "three"])
PREVIOUS = bytes(range(20))
ROWS = [
    NodeRow(LEAF, node_digest(LEAF, b"\x63abc"), b"\x63abc", 4),
    NodeRow(PIECE, bytes(20), b"x" * 200 + b"\x01\x02", 200),
]


def sealed(rest):
    return struct.pack(">Q", xxh3_64_intdigest(rest)) + rest


def envelope(*, version=1, type_=2, flags=0, body=BODY, lsn=7, time_us=99, previous=PREVIOUS, nodes=0):
    return struct.pack(">BBHIQQ20sI", version, type_, flags, len(body), lsn, time_us, previous, nodes) + body


def encoded(rows=(), flags=0):
    return encode_record(2, lsn=7, time_us=99, previous_chain=PREVIOUS, body=BODY, nodes=pack_nodes(rows), flags=flags)


def digest(person, data):
    return blake2b(data, digest_size=20, person=person).digest()


def test_a_record_without_nodes_is_its_envelope_and_body():
    assert encoded()[0] == sealed(envelope())


def test_a_record_with_nodes_has_their_table_then_the_nodes():
    first, second = (bytes([row.type]) + row.digest for row in ROWS)
    table = first + struct.pack(">II", 4, 4) + second + struct.pack(">II", 204, 206)
    nodes = b"".join(row.data for row in ROWS)
    assert encoded(ROWS)[0] == sealed(envelope(nodes=2) + table + nodes)


def test_the_chain_covers_envelope_body_and_node_identities():
    identities = b"".join(bytes([row.type]) + row.digest for row in ROWS)
    contents = digest(b"stlg-part-1", digest(b"stlg-part-1", BODY) + identities)
    chained = struct.pack(">BBHQQ20s", 1, 2, FLAG_CONTINUES, 7, 99, PREVIOUS) + contents
    data, chain = encoded(ROWS, FLAG_CONTINUES)
    assert chain == digest(b"stlg-chain-1", chained)
    assert record_chain_digest(data, decode_record(data, 7)) == chain
    assert part_digest(BODY) == digest(b"stlg-part-1", BODY)


def test_a_checkpoints_digest_is_pinned():
    root, parent = bytes(range(20)), bytes(range(20, 40))
    for before, caller_id in ((None, None), (parent, "id"), (parent, None)):
        body = cbor.encode([before, root, 5_000_000, caller_id, {"k": 1}])
        found = checkpoint_digest(before, root, 5_000_000, caller_id, cbor.encode({"k": 1}))
        assert found == digest(b"stlg-checkpt-1", body)


@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.integers(1, 2**63), st.integers(0, 2**63), st.binary()
)
def test_encoded_values_are_decoded(nodes, lsn, time_us, body):
    item = cbor.encode([body])
    rows = [NodeRow(PIECE, node_digest(PIECE, data), data, len(data)) for data in nodes]
    data, chain = encode_record(3, lsn=lsn, time_us=time_us, previous_chain=PREVIOUS, body=item, nodes=pack_nodes(rows))
    decoded = decode_record(memoryview(data), lsn)
    assert (decoded.type, decoded.flags, decoded.lsn, decoded.time_us) == (3, 0, lsn, time_us)
    assert (decoded.previous_chain, decoded.body, decoded.fields()) == (PREVIOUS, item, [body])
    assert (decoded.node_count, decoded.size_bytes) == (len(nodes), len(data))
    assert record_chain_digest(data, decoded) == chain
    found = kernels.record_nodes(data)
    assert [(kind, node) for kind, node, *_rest in found] == [(row.type, row.digest) for row in rows]
    assert [data[at : at + size] for _kind, _digest, at, size, _total in found] == nodes


@given(st.data())
def test_any_changed_byte_is_noticed(data):
    whole = bytearray(encoded(ROWS)[0])
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptionError) as caught:
        decode_record(bytes(whole), 7)
    assert caught.value.lsn == 7


@given(st.integers(0, 500))
def test_any_lost_end_is_noticed(size):
    whole = encoded(ROWS)[0]
    with pytest.raises(CorruptionError):
        decode_record(whole[: min(size, len(whole) - 1)], 7)


def test_a_record_under_another_lsn_is_damage():
    with pytest.raises(CorruptionError, match="LSN 7"):
        decode_record(encoded()[0], 8)


def test_a_newer_record_format_is_refused_with_the_needed_format():
    with pytest.raises(FormatError, match="format 2") as caught:
        decode_record(sealed(envelope(version=2)), 7)
    assert (caught.value.needed, caught.value.supported) == (2, 1)


@pytest.mark.parametrize("forged", [envelope(version=0), envelope()[:-1], envelope(body=b"")[:40]])
def test_an_envelope_that_cannot_be_is_damage(forged):
    with pytest.raises(CorruptionError):
        decode_record(sealed(forged), 7)


def test_a_body_that_is_not_an_array_is_damage():
    with pytest.raises(CorruptionError, match="array"):
        decode_record(sealed(envelope(body=b"\x01")), 7).fields()


def test_a_record_is_bounded(monkeypatch):
    monkeypatch.setattr(record, "RECORD_SIZE_BYTES_MAX", 100)
    with pytest.raises(LimitError) as caught:
        encoded(ROWS)
    assert caught.value.limit == 100


@pytest.mark.parametrize(
    ("number", "data"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")]
)
def test_varints_are_pinned(number, data):
    assert varint(number).hex() == data


# --- redaction --------------------------------------------------------------------

CHECKPOINT = cbor.encode([1, *[None] * 15, [bytes(20)]])


def checkpoint():
    return encode_record(
        2, lsn=7, time_us=99, previous_chain=PREVIOUS, body=CHECKPOINT, nodes=pack_nodes(ROWS), flags=FLAG_CONTINUES
    )


@pytest.mark.parametrize("alive", [None, [0, 1], [0], [1], []])
def test_redacting_keeps_the_chain(alive):
    data, chain = checkpoint()
    redacted = redact_record(data, 7, 1, alive=alive)
    decoded = decode_record(redacted, 7)
    assert record_chain_digest(redacted, decoded, PREVIOUS) == chain
    assert decoded.flags & FLAG_REDACTED
    assert decoded.flags & FLAG_CONTINUES
    assert bool(decoded.flags & FLAG_VACUUMED) == (alive in ([0], [1], []))
    assert decoded.redacted().thread == 1
    assert decoded.redacted().borrowed == [bytes(20)]


def test_a_redacted_record_is_the_bytes_that_are_drawn():
    data, _chain = checkpoint()
    identities = b"".join(bytes([row.type]) + row.digest for row in ROWS)
    body = cbor.encode([1, contents_digest(part_digest(CHECKPOINT), identities), [bytes(20)]])
    flags = FLAG_CONTINUES | FLAG_REDACTED | FLAG_VACUUMED
    short = struct.pack(">BBHQ", 1, 2, flags, 99) + body
    table = bytes([1 << 2, 1, PIECE, 200, 202])
    assert redact_record(data, 7, 1, alive=[1]) == short_sealed(short + table + ROWS[1].data, 7)
    assert redact_record(data, 7, 1, alive=[]) == short_sealed(short + bytes([0]), 7)


def short_sealed(rest, lsn):
    return struct.pack(">Q", (xxh3_64_intdigest(rest) + lsn * 0x9E3779B97F4A7C15) % 2**64) + rest


def test_every_64th_short_record_has_the_previous_chain_digest():
    for lsn in (64, 128):
        data, chain = encode_record(2, lsn=lsn, time_us=99, previous_chain=PREVIOUS, body=CHECKPOINT)
        short = vacuumed(data, lsn)
        body = cbor.encode([1, contents_digest(part_digest(CHECKPOINT), b""), [bytes(20)]])
        flags = FLAG_REDACTED | FLAG_VACUUMED | FLAG_CHAINED
        rest = struct.pack(">BBHQ", 1, 2, flags, 99) + PREVIOUS + body + b"\0"
        assert short == short_sealed(rest, lsn)
        decoded = decode_record(short, lsn)
        assert decoded.previous_chain == PREVIOUS
        assert record_chain_digest(short, decoded) == chain
        unsaid = short_sealed(struct.pack(">BBHQ", 1, 2, flags & ~FLAG_CHAINED, 99) + body + b"\0", lsn)
        with pytest.raises(CorruptionError, match="flags"):
            decode_record(unsaid, lsn)
        with pytest.raises(CorruptionError, match="flags"):
            decode_record(short_sealed(rest, lsn + 1), lsn + 1)


def vacuumed(data, lsn):
    """Return a record without nodes as one that nodes have left."""
    node = NodeRow(LEAF, node_digest(LEAF, b"\x00"), b"\x00", 1)
    old = decode_record(data, lsn)
    full, _chain = encode_record(
        old.type, lsn=lsn, time_us=old.time_us, previous_chain=old.previous_chain, body=old.body,
        nodes=pack_nodes([node]), flags=old.flags,
    )  # fmt: skip
    short = bytearray(redact_record(full, lsn, 1, alive=[]))
    with_node = contents_digest(part_digest(old.body), bytes([LEAF]) + node.digest)
    at = short.index(with_node)
    short[at : at + 20] = contents_digest(part_digest(old.body), b"")
    return short_sealed(bytes(short[8:]), lsn)


node_lists = st.lists(st.tuples(st.binary(min_size=1, max_size=400), st.binary(max_size=9)), min_size=1, max_size=6)


@given(st.data(), node_lists, st.integers(1, 2**63), st.sampled_from([0, FLAG_CONTINUES]))
def test_redaction_keeps_nodes_and_chain(data, contents, lsn, flags):
    rows = [
        NodeRow(PIECE, node_digest(PIECE, content), content + locators, len(content)) for content, locators in contents
    ]
    full, chain = encode_record(
        2, lsn=lsn, time_us=99, previous_chain=PREVIOUS, body=CHECKPOINT, nodes=pack_nodes(rows), flags=flags
    )
    alive = set(range(len(rows)))
    redacted = full
    for _ in range(3):  # once more, and more
        alive &= data.draw(st.sets(st.integers(0, len(rows) - 1)) | st.just(alive))
        redacted = redact_record(redacted, lsn, 5, alive=alive)
        decoded = decode_record(redacted, lsn)
        assert record_chain_digest(redacted, decoded, PREVIOUS) == chain
        assert decoded.flags & FLAG_CONTINUES == flags
        assert (decoded.lsn, decoded.time_us, decoded.type, decoded.redacted().thread) == (lsn, 99, 2, 5)
        assert bool(decoded.flags & FLAG_VACUUMED) == (len(alive) < len(rows))
        is_told = len(alive) == len(rows) or lsn % CHAINED_EVERY == 0
        assert decoded.previous_chain == (PREVIOUS if is_told else b"")
        found = {number: row for number, row in enumerate(kernels.record_nodes(redacted)) if row[0]}
        assert found.keys() == alive
        assert decoded.node_count == (max(alive, default=-1) + 1)
        for number, (kind, digest_, at, size, total) in found.items():
            row = rows[number]
            assert (kind, digest_, redacted[at : at + total], size) == (
                row.type,
                row.digest,
                row.data,
                row.content_size,
            )


@pytest.mark.parametrize("lsn", [7, 64])
def test_any_changed_byte_or_bit_of_a_short_record_is_noticed(lsn):
    full, _chain = encode_record(
        2, lsn=lsn, time_us=99, previous_chain=PREVIOUS, body=CHECKPOINT, nodes=pack_nodes(ROWS)
    )
    short = redact_record(full, lsn, 1, alive=[1])
    for at in range(len(short)):
        for flipped in (*(1 << bit for bit in range(8)), 0xFF):
            damaged = bytearray(short)
            damaged[at] ^= flipped
            with pytest.raises(CorruptionError):
                decode_record(bytes(damaged), lsn)
    for size in range(len(short)):
        with pytest.raises(CorruptionError):
            decode_record(short[:size], lsn)
    decode_record(short, lsn)  # negative control: it is the damage that is refused


@given(st.integers(1, 2**63), st.integers(1, 2**63))
def test_a_short_record_is_valid_under_only_one_lsn(lsn, other):
    short = redact_record(encode_at(lsn), lsn, 1, alive=[])
    assert record_lsn(short) == lsn
    if other != lsn:
        with pytest.raises(CorruptionError):
            decode_record(short, other)


def encode_at(lsn):
    return encode_record(2, lsn=lsn, time_us=99, previous_chain=PREVIOUS, body=CHECKPOINT, nodes=pack_nodes(ROWS[:1]))[
        0
    ]


def test_a_flipped_bit_does_not_make_a_short_record_that_of_a_neighbour():
    """Where nothing but the record tells its LSN, damage must lead to none that there may be."""
    short = redact_record(encode_at(1000), 1000, 1, alive=[])
    for at in range(len(short)):
        for bit in range(8):
            damaged = bytearray(short)
            damaged[at] ^= 1 << bit
            if (at, bit) != (11, 1):  # then it is no short one
                assert record_lsn(damaged) > 1 << 20


@pytest.mark.parametrize(("lsn", "alive"), [(7, None), (7, []), (64, None), (64, [])])
def test_the_previous_chain_of_a_redacted_record_can_be_replaced(lsn, alive):
    redacted = redact_record(encode_at(lsn), lsn, 1, alive=alive)
    moved = with_previous_chain(redacted, bytes(20))
    decoded = decode_record(moved, lsn)
    says = alive is None or lsn == 64
    assert decoded == decode_record(redacted, lsn)._replace(previous_chain=bytes(20) if says else b"")
    assert (moved == redacted) == (not says)
    assert with_previous_chain(moved, PREVIOUS) == redacted


def test_a_newer_short_record_is_refused_with_the_needed_format():
    short = redact_record(encode_at(7), 7, 1, alive=[])
    with pytest.raises(FormatError, match="format 2"):
        decode_record(short_sealed(b"\x02" + short[9:], 7), 7)
    with pytest.raises(CorruptionError):
        decode_record(short_sealed(b"\x00" + short[9:], 7), 7)


@pytest.mark.parametrize(
    "flags", [FLAG_VACUUMED, FLAG_VACUUMED | FLAG_REDACTED | 16, 256 | FLAG_VACUUMED | FLAG_REDACTED]
)
def test_flags_that_no_short_record_has_are_damage(flags):
    short = redact_record(encode_at(7), 7, 1, alive=[])
    rest = short[8:10] + flags.to_bytes(2) + short[12:]
    with pytest.raises(CorruptionError, match="flags"):
        decode_record(short_sealed(rest, 7), 7)


def test_a_full_record_with_the_flag_of_a_chain_is_refused():
    with pytest.raises(CorruptionError, match="flags"):
        decode_record(sealed(envelope(flags=FLAG_CHAINED)), 7)


def test_a_short_record_with_bytes_left_over_is_damage():
    short = redact_record(encode_at(7), 7, 1, alive=[])
    with pytest.raises(CorruptionError, match="node table"):
        decode_record(short_sealed(short[8:] + b"x", 7), 7)


def test_redacting_twice_comes_to_redacting_once():
    data, _chain = checkpoint()
    once = redact_record(data, 7, 1, alive=[1])
    assert redact_record(redact_record(data, 7, 1, alive=None), 7, 1, alive=[1]) == once
    assert redact_record(once, 7, 1, alive=[1]) == once


def test_vacuumed_nodes_are_removed_and_the_others_keep_their_numbers():
    data, _chain = checkpoint()
    redacted = redact_record(data, 7, 1, alive=[1])
    assert b"abc" not in redacted
    kind, node, at, content_size, total_size = kernels.record_node(redacted, 1)
    assert (kind, node) == (ROWS[1].type, node_digest(PIECE, b"x" * 200))
    assert redacted[at : at + total_size] == ROWS[1].data
    assert content_size == ROWS[1].content_size
    assert len(redact_record(data, 7, 1, alive=[])) < len(redacted)


def test_a_record_that_was_not_redacted_does_not_pass_for_one():
    data, _chain = checkpoint()
    with pytest.raises(CorruptionError):
        decode_record(data, 7).redacted()
