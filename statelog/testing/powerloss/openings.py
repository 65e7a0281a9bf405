"""Special ways to open a store: salvage, the upgrade of a format, small limits, a process that dies.

The recorded processes call these functions by name.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.format import cbor, upgrades
from statelog.format.header import HEADER_KEY
from statelog.format.seal import seal, unseal
from statelog.limits import INTERVAL_MAX_MS
from statelog.log.care.replay import open_engine
from statelog.portable.salvage import salvage
from statelog.storage.wal import background_flusher, checkpointer
from statelog.testing.crash import Child
from statelog.testing.history import Commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from statelog.format.upgrades import Tables
    from statelog.store.store import Store

DAMAGED_NAME = "damaged.state"
_OLDER = 0
_PREFIX = b"older "
_META_PAGES_SIZE_BYTES = 8192


def made_by(fill: Callable[[Path], None]) -> bytes:
    """Call `fill` with a path at which it creates a store. Return the bytes of the store's file."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "made.state"
        fill(path)
        return path.read_bytes()


# --- salvage ----------------------------------------------------------------------


def damaged(store: bytes) -> bytes:
    """Return a store's file with its meta pages overwritten by zeros. Only salvage can read the result."""
    return bytes(_META_PAGES_SIZE_BYTES) + store[_META_PAGES_SIZE_BYTES:]


def open_salvaged(path: Path, **options: Any) -> Store:
    """Open a store. If it does not exist, salvage it from the damaged store beside it."""
    if not path.exists():
        salvage(path.with_name(DAMAGED_NAME), path)
    return statelog.open(path, **options)


# --- the journal ------------------------------------------------------------------


KILLED = "killed"
"""The id of the thread to which a killed process commits. Its last commit may or may not exist."""

_REST_S = 0.02
_NEVER_S = 3600.0


def open_unhurried(path: Path, **options: Any) -> Store:
    """Open a store that leaves commits unflushed for as long as possible."""
    return statelog.open(path, **options, interval_ms=INTERVAL_MAX_MS)


def be_small() -> None:
    """Make this worker process checkpoint the WAL every few commits, and soon after the last commit."""
    _set(
        (checkpointer, "JOURNAL_SIZE_BYTES_MAX", 12 * 1024),
        (checkpointer, "HELD_PAGES_MAX", 24),
        (checkpointer, "INTERVAL_HELD_PAGES_MAX", 24),
    )
    rest_soon()


def rest_soon() -> None:
    """Make the store in this worker process idle between two steps, so that it has no snapshot pin."""
    _set((background_flusher, "IDLE_S", _REST_S))


def be_slow() -> None:
    """Make this worker process finish a checkpoint only when the number of pinned pages reaches its bound."""
    be_small()
    leave_checkpoints()
    _set((checkpointer, "HELD_PAGES_BOUND", 100))


def leave_checkpoints() -> None:
    """Make this worker process leave checkpoints to the process that began them, which dies at its fault point."""
    _set((background_flusher, "IDLE_S", _NEVER_S), (checkpointer.Checkpointer, "finish_if_begun", lambda _self: None))


def _set(*values: tuple[ModuleType | type, str, object]) -> None:
    for module, name, value in values:
        assert hasattr(module, name)
        setattr(module, name, value)


def rest() -> None:
    """Wait until an idle store has checkpointed its WAL."""
    time.sleep(10 * _REST_S)


def run_killed(path: Path, fault: str, durability: str) -> None:
    """Run a process that commits to a store until it is killed at a fault point. Its death ends its snapshot pin."""
    commits = tuple(Commit(KILLED, ({"findings": ["x" * 300], "total": number},)) for number in range(5))
    with Child(path, commits, durability=durability, fault=fault) as child:
        assert child.wait(), fault


# --- upgrades ---------------------------------------------------------------------


def make_older(path: Path) -> None:
    """Convert a store to an imaginary format before the first, whose index has different keys."""
    store_file = open_engine(path).store_file
    handles = store_file.lmdb_file.handles
    with handles.begin(write=True) as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
        assert value is not None
        fields = cbor.decode(unseal(HEADER_KEY, value))
        header = seal(HEADER_KEY, cbor.encode({**fields, "format": _OLDER}))
        transaction.put(HEADER_KEY, header, db=handles.meta)
        for key, value in list(transaction.cursor(db=handles.index)):
            transaction.delete(key, db=handles.index)
            transaction.put(_PREFIX + key, value, db=handles.index)
    store_file.close()


def know_older() -> None:
    """Make this worker process able to upgrade from the format of `make_older`."""
    upgrades.UPGRADES[_OLDER] = _upgrade


def _upgrade(tables: Tables) -> None:
    for key, value in tables.scan(upgrades.INDEX):
        tables.delete(upgrades.INDEX, key)
        tables.put(upgrades.INDEX, key.removeprefix(_PREFIX), value)
