"""The cache of names from one commit to the next."""

from statelog.format import cbor
from statelog.log.names import channel_key, channel_keys
from statelog.store import writes


def test_names_are_cached_however_many_came_before():
    for number in range(3_000):
        name = f"name {number}"
        assert writes.encode_names((name,)) == cbor.encode([name])
        assert (name,) in writes._names
    assert len(writes._names) <= 1_024


def test_channels_are_cached_however_many_came_before():
    for number in range(10_000):
        channel_key(f"channel {number}")
        assert f"channel {number}" in channel_keys
    assert len(channel_keys) < 5_000
