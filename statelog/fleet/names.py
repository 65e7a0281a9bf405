"""Names of a store's objects. FLEET.md lists them."""

from __future__ import annotations

from urllib.parse import quote, unquote

from statelog.errors import UsageError

HEAD = "head"
COPY = ".state"
"""What the name of a store's file on a machine ends in."""

_DIGITS = 12
"""Of a number, so that names sort as numbers do."""

_NAME_BYTES_MAX = 200
"""With what stands behind it in the names of files here, it stays below the 255 bytes that file systems take."""

_SHOWN_MAX = 60


def folder(store: str) -> str:
    """Return the prefix of a store's objects, with `/` at its end.

    Raises:
        UsageError: the name is empty, too long, or no text. Facts: argument, value.

    """
    if not isinstance(store, str) or not store or store in {".", ".."}:
        message = f"a store of a fleet has a name, not {store!r}"
        raise UsageError(message, argument="name", value=store)
    try:
        quoted = quote(store, safe="-_.~")
    except UnicodeEncodeError as error:
        message = f"a store's name is text that can be encoded, not {store!r}"
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
    """Return the name of a store by the first part of its objects' names: inverse of `folder`."""
    return unquote(quoted)


def segments(epoch: int) -> str:
    """Return the prefix of an epoch's segments, within a store's folder."""
    return f"log/{epoch:0{_DIGITS}}/"


def segment(epoch: int, number: int) -> str:
    """Return the name of a segment, within a store's folder."""
    return f"{segments(epoch)}{number:0{_DIGITS}}"


def base(lsn: int, epoch: int) -> str:
    """Return the prefix of a base's objects, within a store's folder."""
    return f"base/{lsn:0{_DIGITS}}-{epoch:0{_DIGITS}}/"


def number_of(name: str) -> int:
    """Return the number of a segment by its name."""
    return int(name.rpartition("/")[2])
