"""Attaches a guard to a store, and refuses writers without the guard."""

from __future__ import annotations

from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, cast

from statelog.errors import GuardError, UsageError
from statelog.format.guard_key import GUARD_KEY, SIZE_BYTES, encode_guard_key, read_guard_key, unguarded_error
from statelog.guard.policy import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.guard.detector import Detector
    from statelog.guard.hook import Redactor
    from statelog.guard.search import SecretFound
    from statelog.log.care.purge import PurgeReport
    from statelog.log.engine import Engine
    from statelog.storage.write_transaction import WriteTransaction


def check_guard(guard: object, *, read_only: bool) -> None:
    """Raise an error if a value is not a Guard, or if the guard would do nothing.

    In a store that is opened for reading only, a guard only applies its read checks.
    """
    if not isinstance(guard, Guard):
        message = f"guard must be a statelog.Guard, not {type(guard).__name__}"
        raise UsageError(message, argument="guard")
    if read_only and not guard.on_read:
        message = "this store is open read-only, and the guard has no read checks (on_read=)"
        raise GuardError(message)


def check_store_name(guard: object, name: str) -> None:
    """Raise SecretError if a store's name in a fleet has a secret, because names of objects are not encrypted."""
    if guard is not None:
        check_guard(guard, read_only=False)
        cast("Guard", guard).redactor().check_name(name)


def redactor_for(engine: Engine, guard: Guard | None) -> Redactor:
    """Return the redactor of the given guard, or else of the store's guard, or else of a guard with only the rules.

    A store that was never opened with a guard has no fingerprint key. A digest of the store's id then serves as the
    key.
    """
    if guard is None and engine.guard is not None:
        return engine.guard
    if guard is not None:
        check_guard(guard, read_only=False)
    with engine.store_file.read() as transaction:
        key = read_guard_key(transaction)
    return (guard or Guard()).redactor(_key_without_mark(engine) if key is None else key)


def _key_without_mark(engine: Engine) -> bytes:
    return blake2b(engine.store_file.lmdb_file.store_id, digest_size=SIZE_BYTES).digest()


def find_secrets(engine: Engine, guard: Guard | None, threads: Iterable[str] | None) -> list[SecretFound]:
    """Return the secrets in a store. See `Store.find_secrets`."""
    from statelog.log.care import secret_search

    return secret_search.find_secrets(engine, _searching(engine, guard), threads)


def purge(
    engine: Engine, found: Iterable[SecretFound], guard: Guard | None, progress: Callable[[int, int], None] | None
) -> PurgeReport:
    """Remove secrets from a store. See `Store.purge`."""
    from statelog.log.care import purge as care

    engine.store_file.lmdb_file.check_writable()
    if guard is None and engine.guard is None:
        with engine.store_file.read() as transaction:
            if read_guard_key(transaction) is not None:
                raise unguarded_error(engine.store_file.path)
    return care.purge(engine, found, _searching(engine, guard), progress=progress)


def _searching(engine: Engine, guard: Guard | None) -> Detector:
    """Return the detector for a search, after fetching the value of each handle. Raises GuardError."""
    detector = redactor_for(engine, guard).detector
    if detector.handles is not None:
        detector.handles.learn_all()
    return detector


def attach(engine: Engine, guard: Guard | None) -> None:
    """Attach the guard to the engine, and mark the file as guarded.

    The caller passes None only if the file is already marked.

    Raises:
        GuardError: there is no guard. Facts: path.
    """
    if guard is None:
        raise unguarded_error(engine.store_file.path)
    with engine.store_file.read() as transaction:
        key = read_guard_key(transaction)
    if key is None:
        key = _key_without_mark(engine) if engine.store_file.read_only else engine.committer.submit(_mark)
    engine.guard = guard.redactor(key)


def _mark(transaction: WriteTransaction) -> bytes:
    """Mark the file as guarded, unless another process has done so, and return the key of its fingerprints."""
    key = read_guard_key(transaction)
    if key is None:
        key = token_bytes(SIZE_BYTES)
        transaction.put_meta(GUARD_KEY, encode_guard_key(key))
    return key
