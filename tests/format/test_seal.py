import pytest

from statelog.errors import CorruptionError
from statelog.format.seal import SEAL_SIZE_BYTES, seal, unseal


def test_sealed_payload_is_payload_then_checksum_of_key_and_payload():
    assert seal(b"k", b"payload") == b"payload" + bytes.fromhex("1d679ef2431c13c2")


def test_unseal_returns_the_sealed_payload():
    assert unseal(b"key", seal(b"key", b"payload")) == b"payload"


def test_an_empty_payload_can_be_sealed():
    assert unseal(b"key", seal(b"key", b"")) == b""


def test_unseal_copies_out_of_a_buffer():
    buffer = bytearray(seal(b"key", b"payload"))
    payload = unseal(b"key", memoryview(buffer))
    buffer[0] ^= 1
    assert payload == b"payload"


@pytest.mark.parametrize("bit", range(8 * (len(b"payload") + SEAL_SIZE_BYTES)))
def test_any_flipped_bit_is_detected(bit):
    damaged = bytearray(seal(b"key", b"payload"))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptionError) as caught:
        unseal(b"key", bytes(damaged))
    assert caught.value.key == b"key"


def test_a_value_found_under_another_key_is_damage():
    with pytest.raises(CorruptionError):
        unseal(b"other", seal(b"key", b"payload"))


@pytest.mark.parametrize("size", range(SEAL_SIZE_BYTES))
def test_a_value_shorter_than_its_checksum_is_damage(size):
    with pytest.raises(CorruptionError):
        unseal(b"key", seal(b"key", b"")[:size])
