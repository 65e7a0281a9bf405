"""Who may own a store: one process of a machine, and of machines the one that the storage lets."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import statelog
from statelog.errors import StoreLockedError, UsageError
from statelog.fleet import protocol, segments
from statelog.fleet.head import SHARED
from statelog.fleet.protocol import Held, Owned
from statelog.fleet.restoring import store_id

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.fleet.performing import Performer

Takeover = Literal["wait", "now"]
POLL_S = 0.2


def lock_file(path: Path, deadline: float | None, takeover: Takeover) -> int:
    """Hold a store's file for this process. Raises StoreLockedError: another process of this machine has it."""
    return _held(path, 0.0 if takeover == "now" else deadline, (fcntl.LOCK_EX,))[0]


def share_file(path: Path, deadline: float | None) -> tuple[int, bool]:
    """Hold a store's file beside other processes that share it; tell whether there is none as yet. Raises as above."""
    descriptor, kind = _held(path, deadline, (fcntl.LOCK_EX, fcntl.LOCK_SH))
    return descriptor, kind == fcntl.LOCK_EX


def _held(path: Path, deadline: float | None, kinds: tuple[int, ...]) -> tuple[int, int]:
    """Return a descriptor of a file's lock, held in the first of these ways that can be had."""
    descriptor = os.open(f"{path}-owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            message = f"another process of this machine owns the store at {path}: end it first"
            raise StoreLockedError(message, path=str(path))
        time.sleep(POLL_S)


def take(
    performer: Performer, owner: tuple[str, bytes], path: Path, takeover: Takeover, deadline: float | None, ttl_s: float
) -> Owned:
    """Own a store, once that is allowed; who is to own it with others joins those that share it already."""
    watched = Watched(owner[0], takeover, ttl_s)
    while True:
        taken = performer.perform(protocol.take(owner, segments.cut_of, may_take=watched.may_take))
        if isinstance(taken, Owned):
            return taken
        if taken is None:
            begun = performer.perform(protocol.begin(owner, id_of(path)))
            if begun is not None:
                return begun
            continue
        if taken.head.is_shared and owner[0] == SHARED:
            return Owned(*taken)
        if deadline is not None and time.monotonic() >= deadline:
            message = f"{taken.head.owner[0]} owns the store {performer.folder.rstrip('/')!r}"
            raise StoreLockedError(message, owner=taken.head.owner[0], epoch=taken.head.epoch)
        time.sleep(min(POLL_S, ttl_s / 10))


def id_of(path: Path) -> bytes:
    """Return the id of the store that is here, or else a new one."""
    if not path.exists():
        return secrets.token_bytes(16)
    with statelog.open(path) as store:
        return store_id(store)


class Watched:
    """Tells when an owner has given no sign for a time, by this machine's clock."""

    def __init__(self, here: str, takeover: Takeover, ttl_s: float) -> None:
        self._here = here
        self._takeover = takeover
        self._ttl_s = ttl_s
        self._seen: tuple[str, float] = ("", 0.0)

    def may_take(self, held: Held) -> bool:
        """Whether the store may be taken. One who owned it on this file has let go of the file: it has ended.

        Raises:
            UsageError: many hosts share it, which give no sign.

        """
        if held.head.is_shared and self._takeover == "wait":
            if self._here == SHARED:
                return False
            message = "many hosts share this store: open it by `share`; takeover='now' takes it from all of them"
            raise UsageError(message, argument="takeover", value=self._takeover)
        now_s = time.monotonic()
        if self._seen[0] != held.token:
            self._seen = held.token, now_s
        is_former = held.head.owner[0] == self._here
        return self._takeover == "now" or is_former or now_s - self._seen[1] >= self._ttl_s
