"""Names of a store's objects. FLEET.md lists them."""

from __future__ import annotations

from urllib.parse import quote, unquote

from statelog.errors import UsageError

HEAD = "head"
COPY = ".state"
"""The suffix of a store's file on a machine."""

_DIGITS = 12
"""The number of digits of a number in a name, so that names sort like numbers."""

_NAME_BYTES_MAX = 200
"""The maximum size of a quoted name. With the suffixes of local files it stays below the file systems' 255 bytes."""

_SHOWN_MAX = 60


def folder(store: str) -> str:
    """Return the prefix of the names of a store's objects, with a `/` at its end.

    Raises:
        UsageError: the name is empty, too long, or not a str. Facts: argument, value.
    """
    if not isinstance(store, str) or not store or store in {".", ".."}:
        message = f"the name of a store must be a non-empty str, not {store!r}"
        raise UsageError(message, argument="name", value=store)
    try:
        quoted = quote(store, safe="-_.~")
    except UnicodeEncodeError as error:
        message = f"the name of a store must be text that UTF-8 can encode, not {store!r}"
        raise UsageError(message, argument="name", value=store) from error
    if ".." in store.split("/") or len(quoted) > _NAME_BYTES_MAX:
        what = (
            "has '..' in it" if len(quoted) <= _NAME_BYTES_MAX else f"takes more than {_NAME_BYTES_MAX} bytes, encoded"
        )
        message = f"the name {_shown(store)} of a store {what}"
        raise UsageError(message, argument="name", value=store)
    return f"{quoted}/"


def _shown(store: str) -> str:
    return repr(store if len(store) <= _SHOWN_MAX else f"{store[:_SHOWN_MAX]}...")


def copy(store: str) -> str:
    """Return the name of a store's file on a machine. Raises as `folder`."""
    return f"{folder(store).rstrip('/')}{COPY}"


def store_of(quoted: str) -> str:
    """Return the name of the store whose objects' names begin with `quoted`. The inverse of `folder`."""
    return unquote(quoted)


def segments(epoch: int) -> str:
    """Return the prefix of an epoch's segments in the store's folder."""
    return f"log/{epoch:0{_DIGITS}}/"


def segment(epoch: int, number: int) -> str:
    """Return the name of a segment in the store's folder."""
    return f"{segments(epoch)}{number:0{_DIGITS}}"


def base(lsn: int, epoch: int) -> str:
    """Return the prefix of a base's objects in the store's folder."""
    return f"base/{lsn:0{_DIGITS}}-{epoch:0{_DIGITS}}/"


def number_of(name: str) -> int:
    """Return the number in the name of a segment."""
    return int(name.rpartition("/")[2])
