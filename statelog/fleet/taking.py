"""Taking a store over, once that is allowed: by the lock of its file here, and by the head there."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from typing import TYPE_CHECKING, Literal

import statelog
from statelog.errors import StoreLockedError
from statelog.fleet import protocol, segments
from statelog.fleet.protocol import Held, Owned
from statelog.fleet.restoring import store_id
from statelog.storage.file.failures import translate_os

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.fleet.performing import Performer

Takeover = Literal["wait", "now"]
NONCE_SIZE_BYTES = 16
"""Of what tells an opening from all others."""

_POLL_S = 0.2


def lock(path: Path, deadline: float | None, takeover: Takeover) -> int:
    """Hold a store's file for this process. Raises StoreLockedError: another process of this machine has it."""
    try:
        descriptor = os.open(f"{path}-owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise translate_os(error, path=path) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if takeover == "now" or (deadline is not None and time.monotonic() >= deadline):
                    message = f"another process of this machine owns the store at {path}: end it first"
                    raise StoreLockedError(message, path=str(path)) from None
                time.sleep(_POLL_S)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def take(performer: Performer, owner: tuple[str, bytes], path: Path, watched: Watched, deadline: float | None) -> Owned:
    """Own a store, once that is allowed."""
    while True:
        taken = performer.perform(protocol.take(owner, segments.cut_of, may_take=watched.may_take))
        if isinstance(taken, Owned):
            return taken
        if taken is None:
            begun = performer.perform(protocol.begin(owner, _store_id(path)))
            if begun is not None:
                return begun
            continue
        if deadline is not None and time.monotonic() >= deadline:
            owner_name = taken.head.owner[0]
            message = f"{owner_name} owns the store {performer.folder.rstrip('/')!r}: takeover='now' if it is dead"
            raise StoreLockedError(message, owner=taken.head.owner[0], epoch=taken.head.epoch)
        time.sleep(min(_POLL_S, watched.ttl_s / 10))


def _store_id(path: Path) -> bytes:
    """Return the id of the store that is here, or else a new one."""
    if not path.exists():
        return secrets.token_bytes(16)
    with statelog.open(path) as store:
        return store_id(store)


class Watched:
    """Tells when an owner has given no sign for a time, by this machine's clock.

    Args:
        former: the 16 bytes of who owned the store last that has held the lock of its file here.
        takeover: see `Fleet.open`.
        ttl_s: see `Fleet.open`.

    """

    def __init__(self, former: bytes, takeover: Takeover, ttl_s: float) -> None:
        self._former = former
        self._takeover = takeover
        self.ttl_s = ttl_s
        self._seen: tuple[str, float] = ("", 0.0)

    def may_take(self, held: Held) -> bool:
        """Whether the store may be taken. An owner who held the lock of the file here has let go of it: it has ended.

        Its name would not tell that: many machines have one name, and one path.
        """
        now_s = time.monotonic()
        if self._seen[0] != held.token:
            self._seen = held.token, now_s
        is_former = held.head.owner[1] == self._former
        return self._takeover == "now" or is_former or now_s - self._seen[1] >= self.ttl_s
