import pytest

from statelog.errors import CorruptionError, FormatError
from statelog.format import cbor, header
from statelog.format.header import HEADER_KEY, check_key, decode_header, encode_header
from statelog.format.mac import StoreKey
from statelog.format.seal import seal, unseal

STORE_ID = bytes(range(16))

FIELDS = {
    "magic": "statelog",
    "format": 7,
    "store_id": STORE_ID,
    "created_us": 1_700_000_000_000_000,
    "digest": "blake2b-160",
    "checksum": "xxh3-64",
}


def forge(**changes):
    return seal(HEADER_KEY, cbor.encode({**FIELDS, **changes}))


def test_header_has_exactly_the_fields_of_the_format():
    header = decode_header(encode_header(store_id=STORE_ID, created_us=1_700_000_000_000_000))
    assert header == FIELDS


def test_header_bytes_are_pinned():
    value = encode_header(store_id=STORE_ID, created_us=1_700_000_000_000_000)
    items = """
        a6
        65 6d61676963           68 73746174656c6f67
        66 646967657374         6b 626c616b6532622d313630
        66 666f726d6174         07
        68 636865636b73756d     67 787868332d3634
        68 73746f72655f6964     50 000102030405060708090a0b0c0d0e0f
        6a 637265617465645f7573 1b 00060a24181e4000
    """
    assert unseal(HEADER_KEY, value) == bytes.fromhex(items)


def test_a_newer_format_is_refused_by_its_number():
    with pytest.raises(FormatError, match="format 8") as caught:
        decode_header(forge(format=8))
    assert (caught.value.needed, caught.value.supported) == (8, 7)


def test_the_format_of_a_store_with_a_key_is_refused_in_one_without():
    with pytest.raises(CorruptionError):
        decode_header(forge(format=6))


@pytest.mark.parametrize("key", [None, StoreKey("the key of the header")], ids=["unkeyed", "keyed"])
def test_a_later_format_reads_headers_of_format_7_with_and_without_a_key(monkeypatch, key):
    value = encode_header(store_id=STORE_ID, created_us=1_700_000_000_000_000, key=key)
    monkeypatch.setattr(header, "FORMAT_VERSION", 8)
    fields = decode_header(value)
    assert fields["format"] == 7
    assert (check_key(fields, key) is None) == (key is None)


@pytest.mark.parametrize("format_version", range(1, 6))
def test_a_format_before_keys_is_damage_in_a_header_with_a_key(format_version):
    keyed = {"checksum": "blake2b-mac", "key_check": bytes(16), "mac": bytes(16)}
    assert decode_header(forge(**keyed, format=6))["format"] == 6
    with pytest.raises(CorruptionError):
        decode_header(forge(**keyed, format=format_version))


def test_the_first_format_is_read_as_it_is():
    assert decode_header(forge(format=1)) == {**FIELDS, "format": 1}


def test_a_newer_format_can_have_additional_fields():
    with pytest.raises(FormatError) as caught:
        decode_header(forge(format=8, journal=True))
    assert caught.value.needed == 8


@pytest.mark.parametrize("payload", [{**FIELDS, "magic": "sqlite"}, {"format": 1}, [1, 2], "statelog"])
def test_another_files_header_is_foreign(payload):
    with pytest.raises(FormatError):
        decode_header(seal(HEADER_KEY, cbor.encode(payload)))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 0},
        {"format": True},
        {"format": 1.0},
        {"store_id": b"short"},
        {"store_id": "x" * 16},
        {"created_us": -1},
        {"created_us": 1.5},
        {"digest": "sha-1"},
        {"checksum": "crc32"},
        {"extra": None},
    ],
    ids=str,
)
def test_a_field_the_format_does_not_allow_is_damage(changes):
    with pytest.raises(CorruptionError):
        decode_header(forge(**changes))


def test_a_missing_field_is_damage():
    fields = {name: value for name, value in FIELDS.items() if name != "digest"}
    with pytest.raises(CorruptionError):
        decode_header(seal(HEADER_KEY, cbor.encode(fields)))


def test_a_broken_seal_is_damage():
    value = bytearray(encode_header(store_id=STORE_ID, created_us=1))
    value[3] ^= 1
    with pytest.raises(CorruptionError):
        decode_header(bytes(value))


def test_a_store_id_of_another_size_is_our_own_bug():
    with pytest.raises(ValueError, match="16 bytes"):
        encode_header(store_id=b"short", created_us=1)
