"""Opens a store with its guard, and refuses writers that have none."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING

from statelog.errors import GuardError, UsageError
from statelog.format.guard_key import GUARD_KEY, SIZE_BYTES, encode_guard_key, read_guard_key, unguarded_error
from statelog.guard.policy import Guard

if TYPE_CHECKING:
    from statelog.log.engine import Engine
    from statelog.storage.write_transaction import WriteTransaction


def check_guard(guard: object, *, read_only: bool) -> None:
    """Refuse a guard that is none, or that has nothing to do.

    In a store that is opened for reading only, a guard has only its checks of reads to do.
    """
    if not isinstance(guard, Guard):
        message = f"guard is a statelog.Guard, not {type(guard).__name__}"
        raise UsageError(message, argument="guard")
    if read_only and not guard.on_read:
        message = "this store is opened for reading only, and the guard has no checks of reads (on_read=)"
        raise GuardError(message)


def attach(engine: Engine, guard: Guard | None) -> None:
    """Put the guard between the engine and its file, and mark the file. Without a guard, the file is marked already.

    Raises:
        GuardError: there is no guard. Facts: path.
    """
    if guard is None:
        raise unguarded_error(engine.store_file.path)
    if engine.store_file.read_only:
        engine.guard = guard.redactor()  # Nothing is written, so the fingerprints do not matter.
        return
    with engine.store_file.read() as transaction:
        key = read_guard_key(transaction)
    engine.guard = guard.redactor(key or engine.committer.submit(_mark))


def _mark(transaction: WriteTransaction) -> bytes:
    """Mark the file, and return the key of its fingerprints. Another process may have marked it already."""
    key = read_guard_key(transaction)
    if key is None:
        key = token_bytes(SIZE_BYTES)
        transaction.put_meta(GUARD_KEY, encode_guard_key(key))
    return key
