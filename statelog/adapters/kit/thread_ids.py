"""Makes thread ids from a framework's names, which may have any length and script."""

from __future__ import annotations

from hashlib import blake2b

from statelog.errors import UsageError
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX

__all__ = ["join_names", "map_key", "thread_id"]

_KEPT_BYTES = 256
_ESCAPED = str.maketrans({"/": "%2F", "%": "%25", "~": "%7E"})


def thread_id(prefix: str, *names: str) -> str:
    """Return the thread id of a framework's names: `prefix:name/name`.

    Different names have different ids. `/`, `%` and `~` in names are escaped. An id that is too long is cut, and ends
    with `~` and a digest of the whole id.

    Args:
        prefix: the prefix of the adapter, such as "openai".
        names: for example "ticket-42", or an app, a user and a session.

    Raises:
        UsageError: a name is not a str, contains a lone surrogate, or is the only name and empty.
    """
    for name in names:
        if not isinstance(name, str) or not (name or len(names) > 1):
            message = f"a name must be a non-empty str, not {name!r}"
            raise UsageError(message, argument="name", value=name)
    whole = f"{prefix}:{join_names(*names)}"
    encoded = _encode(whole)
    return whole if len(encoded) <= THREAD_ID_SIZE_BYTES_MAX else _cut(encoded)


def join_names(*names: str) -> str:
    """Join names as `name/name`. Different names give different results."""
    return "/".join(name.translate(_ESCAPED) for name in names)


def map_key(name: str) -> str:
    """Return the key of `name` in a stored dict. The key of a long name is its beginning, `~` and a digest.

    A name with a `~` is treated as long, so that two names never have the same key. An adapter that lists names stores
    those that differ from their key separately.

    Raises:
        UsageError: the name is not a str, or contains a lone surrogate.
    """
    if not isinstance(name, str):
        message = f"a name must be a str, not {name!r}"
        raise UsageError(message, argument="name", value=name)
    encoded = _encode(name)
    return name if len(encoded) <= THREAD_ID_SIZE_BYTES_MAX and "~" not in name else _cut(encoded)


def _encode(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        message = f"the name {name!r} contains a lone surrogate"
        raise UsageError(message, argument="name", value=name) from None


def _cut(encoded: bytes) -> str:
    return f"{encoded[:_KEPT_BYTES].decode(errors='ignore')}~{blake2b(encoded, digest_size=20).hexdigest()}"
