"""Thread ids of a framework's names, which may be of any length and script."""

from __future__ import annotations

from hashlib import blake2b

from statelog.errors import UsageError
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX

__all__ = ["join_names", "map_key", "thread_id"]

_KEPT_BYTES = 256
_ESCAPED = str.maketrans({"/": "%2F", "%": "%25", "~": "%7E"})


def thread_id(prefix: str, *names: str) -> str:
    """Return the id of the thread that a framework's names stand for: `prefix:name/name`.

    Different names have different ids. A name's `/`, `%` and `~` are escaped. An id that would be too long is cut, and
    ends with `~` and a digest of all of it.

    Args:
        prefix: of the adapter, as "openai".
        names: as "ticket-42", or an app, a user and a session.

    Raises:
        UsageError: a name is no text, or holds a lone surrogate. An empty one is a name where there are several.

    """
    for name in names:
        if not isinstance(name, str) or not (name or len(names) > 1):
            message = f"a name is a text of at least one character, not {name!r}"
            raise UsageError(message, argument="name", value=name)
    whole = f"{prefix}:{join_names(*names)}"
    encoded = _encode(whole)
    return whole if len(encoded) <= THREAD_ID_SIZE_BYTES_MAX else _cut(encoded)


def join_names(*names: str) -> str:
    """Return names as one text, `name/name`. Different names make different texts."""
    return "/".join(name.translate(_ESCAPED) for name in names)


def map_key(name: str) -> str:
    """Return the key of a stored dict for a name: the name, or the beginning of a long one, `~` and a digest.

    A name with a `~` is treated as a long one, so that no two names have one key. Whoever lists names keeps those whose
    key is another beside it.

    Raises:
        UsageError: the name is no text, or holds a lone surrogate.

    """
    if not isinstance(name, str):
        message = f"a name is a text, not {name!r}"
        raise UsageError(message, argument="name", value=name)
    encoded = _encode(name)
    return name if len(encoded) <= THREAD_ID_SIZE_BYTES_MAX and "~" not in name else _cut(encoded)


def _encode(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        message = f"the name {name!r} holds a lone surrogate"
        raise UsageError(message, argument="name", value=name) from None


def _cut(encoded: bytes) -> str:
    return f"{encoded[:_KEPT_BYTES].decode(errors='ignore')}~{blake2b(encoded, digest_size=20).hexdigest()}"
