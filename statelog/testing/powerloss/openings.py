"""Other ways to open a store than `statelog.open`, that write a file of their own: salvage, and upgrade of a format.

They are called by name in the processes that are recorded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.format import cbor, upgrades
from statelog.format.header import FORMAT_VERSION, HEADER_KEY
from statelog.format.seal import seal, unseal
from statelog.portable.salvage import salvage
from statelog.storage.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.upgrades import Tables
    from statelog.store import Store

DAMAGED_NAME = "damaged.state"
_OLDER = FORMAT_VERSION - 1
_PREFIX = b"older "
_META_PAGES_SIZE_BYTES = 8192


def made_by(fill: Callable[[Path], None]) -> bytes:
    """Return the file of a store that `fill` makes at a path."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "made.state"
        fill(path)
        return path.read_bytes()


# --- salvage ----------------------------------------------------------------------


def damaged(store: bytes) -> bytes:
    """Return the file of a store without its meta pages: nothing opens it but salvage."""
    return bytes(_META_PAGES_SIZE_BYTES) + store[_META_PAGES_SIZE_BYTES:]


def open_salvaged(path: Path, **options: Any) -> Store:
    """Open a store; one that is not there yet is salvaged from the damaged one beside it."""
    if not path.exists():
        salvage(path.with_name(DAMAGED_NAME), path)
    return statelog.open(path, **options)


# --- upgrades ---------------------------------------------------------------------


def make_older(path: Path) -> None:
    """Make a store one of a format that never was: the one before the present, with other keys in the index."""
    environment = Environment.open(path)
    handles = environment.handles
    with handles.begin(write=True) as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
        assert value is not None
        fields = cbor.decode(unseal(HEADER_KEY, value))
        header = seal(HEADER_KEY, cbor.encode({**fields, "format": _OLDER}))
        transaction.put(HEADER_KEY, header, db=handles.meta)
        for key, value in list(transaction.cursor(db=handles.index)):
            transaction.delete(key, db=handles.index)
            transaction.put(_PREFIX + key, value, db=handles.index)
    environment.close()


def know_older() -> None:
    """Let this process, a worker, know the way from there."""
    upgrades.UPGRADES[_OLDER] = _upgrade


def _upgrade(tables: Tables) -> None:
    for key, value in tables.scan(upgrades.INDEX):
        tables.delete(upgrades.INDEX, key)
        tables.put(upgrades.INDEX, key.removeprefix(_PREFIX), value)
