"""Decides who may own a store: only one process of a machine, and only the machine that the storage's head names."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from statelog.errors import ConflictError, StoreLockedError, UsageError
from statelog.fleet import protocol, segments
from statelog.fleet.head import SHARED
from statelog.fleet.protocol import Held, Owned
from statelog.fleet.restores import store_id
from statelog.storage.file.failures import translate_os
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.fleet.head import Cut
    from statelog.fleet.requests import Performer
    from statelog.format.mac import StoreKey

Takeover = Literal["wait", "now"]
POLL_S = 0.2
NONCE_SIZE_BYTES = 16


def lock_file(path: Path, deadline: float | None, takeover: Takeover) -> int:
    """Lock a store's file for this process alone. Raises StoreLockedError if another process of this machine has it."""
    return _held(path, 0.0 if takeover == "now" else deadline, (fcntl.LOCK_EX,))[0]


def share_file(path: Path, deadline: float | None) -> tuple[int, bool]:
    """Lock a store's file together with other sharing processes. Raises StoreLockedError.

    Returns:
        The descriptor, and True if no other process shares the file yet.
    """
    descriptor, kind = _held(path, deadline, (fcntl.LOCK_EX, fcntl.LOCK_SH))
    return descriptor, kind == fcntl.LOCK_EX


def _held(path: Path, deadline: float | None, kinds: tuple[int, ...]) -> tuple[int, int]:
    """Lock a file with the first of `kinds` that is available. Return the descriptor of the lock file and that kind."""
    # The lock file contains the nonces of the last two openings. The older nonce is needed if the later opening never
    # became the owner of the store.
    try:
        descriptor = os.open(f"{path}-owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise translate_os(error, path=path) from error
    try:
        return descriptor, _wait(path, descriptor, deadline, kinds)
    except BaseException:
        os.close(descriptor)
        raise


def _wait(path: Path, descriptor: int, deadline: float | None, kinds: tuple[int, ...]) -> int:
    while True:
        for kind in kinds:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return kind
        if deadline is not None and time.monotonic() >= deadline:
            message = f"the store at {path} is already open on this machine: close it first"
            raise StoreLockedError(message, path=str(path))
        time.sleep(POLL_S)


def unlock(descriptor: int) -> None:
    """Release a store's file, even if a forked child has the descriptor open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def note_opening(lock: int, nonce: bytes) -> bytes:
    """Record an opening in the lock file of a store. Return the nonces of earlier openings, which have ended."""
    former = os.pread(lock, 2 * NONCE_SIZE_BYTES, 0)
    os.pwrite(lock, (nonce + former)[: 2 * NONCE_SIZE_BYTES], 0)
    return former


def take(performer: Performer, owner: tuple[str, bytes], path: Path, watched: Watched, deadline: float | None) -> Owned:
    """Become the owner of a store as soon as this is allowed. A sharing host joins the hosts that already share it."""

    def cut_of(data: bytes) -> Cut:
        return segments.cut_of(segments.open_segment("a segment", data, performer.key))

    while True:
        taken = performer.perform(protocol.take(owner, cut_of, may_take=watched.may_take))
        if isinstance(taken, Owned):
            return taken
        if taken is None:
            watched.check_adoptable(path)
            begun = performer.perform(protocol.begin(owner, id_of(path, performer.key)))
            if begun is not None:
                return begun
            continue
        if taken.head.is_shared and owner[0] == SHARED:
            return Owned(*taken)
        if deadline is not None and time.monotonic() >= deadline:
            owner_name = taken.head.owner[0]
            message = f"{owner_name} owns the store {performer.folder.rstrip('/')!r}: use takeover='now' if it is dead"
            raise StoreLockedError(message, owner=taken.head.owner[0], epoch=taken.head.epoch)
        time.sleep(min(POLL_S, watched.ttl_s / 10))


def id_of(path: Path, key: StoreKey | None) -> bytes:
    """Return the id of the local store, or a new id."""
    if not path.exists():
        return secrets.token_bytes(16)
    with open_for_records(path, key=key) as store:
        return store_id(store)


class Watched:
    """Detects an owner that has shown no sign of life for `ttl_s`, measured by this machine's clock.

    Args:
        former: the nonces of previous openings of the local file. These openings have ended.
        takeover: see `Fleet.open`; None to share the store with other hosts.
        ttl_s: the time after which an owner counts as dead.
    """

    def __init__(self, former: bytes, takeover: Takeover | None, ttl_s: float) -> None:
        self._former = former
        self._takeover = takeover
        self.ttl_s = ttl_s
        self._seen: tuple[str, float] = ("", 0.0)

    def check_adoptable(self, path: Path) -> None:
        """Raise ConflictError if the file of a new store is a copy of another fleet's store."""
        if self._former and path.exists():
            message = (
                f"{path} is a copy of a store of this name in another fleet, but this fleet has no such store:"
                " each fleet needs"
                " its own cache"
            )
            raise ConflictError(message, path=str(path))

    def may_take(self, held: Held) -> bool:
        """Return True if the store may be taken. An owner that opened this local file earlier has ended.

        Raises:
            UsageError: many hosts share the store, and they show no sign of life.
        """
        now_s = time.monotonic()
        if held.head.is_shared and self._takeover != "now":
            if self._takeover is None:
                return False
            message = (
                "many hosts share this store: open it with `share`, or use takeover='now' to take it from all of them"
            )
            raise UsageError(message, argument="takeover", value=self._takeover)
        if self._seen[0] != held.token:
            self._seen = held.token, now_s
        is_former = held.head.owner[1] in self._former
        return self._takeover == "now" or is_former or now_s - self._seen[1] >= self.ttl_s
