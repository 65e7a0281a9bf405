"""Checks and encodings of the names of threads, branches, tags and channels."""

from __future__ import annotations

from statelog.errors import LimitError, UsageError
from statelog.format import cbor
from statelog.limits import NAME_SIZE_BYTES_MAX

OWN_CHANNELS = "statelog:"
"""The prefix of channels that belong to the library. Every thread may have them, and no schema declares them."""

_CHANNELS_MAX = 4096
"""The maximum number of cached channel keys. The cache is cleared when it is full."""


def check_name(what: str, name: str, *, size_bytes_max: int = NAME_SIZE_BYTES_MAX) -> None:
    """Raise an error if a name cannot be part of a key."""
    if not isinstance(name, str) or not name:
        message = f"a {what} must be a non-empty str, not {name!r}"
        raise UsageError(message, argument=what, value=name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        message = f"the {what} {name!r} contains a lone surrogate"
        raise UsageError(message, argument=what, value=name) from None
    if size > size_bytes_max:
        article = "an" if what[0] in "aeiou" else "a"
        message = f"{article} {what} has {size} bytes; at most {size_bytes_max} are allowed"
        raise LimitError(message, argument=what, value=name, actual=size, limit=size_bytes_max)


channel_keys: dict[str, bytes] = {}
"""The encoded keys of channels with valid names, keyed by name. `channel_key` fills this cache."""


def channel_key(channel: str) -> bytes:
    """Return the encoded key of a channel. Raises the errors of `check_name`."""
    key = channel_keys.get(channel)
    if key is None:
        check_name("channel", channel)
        key = cbor.encode(channel)
        if len(channel_keys) >= _CHANNELS_MAX:
            channel_keys.clear()
        channel_keys[channel] = key
    return key
