"""Stores that outlive their machine: the public classes."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakSet, WeakValueDictionary

import statelog
from statelog.errors import (
    AccessError,
    ClosedError,
    CorruptionError,
    ForkedError,
    NewerFormatError,
    NotFoundError,
    RemoteError,
    StatelogError,
    StoreNotFoundError,
    UsageError,
    not_hiding,
)
from statelog.fleet import garbage, names, protocol, segments
from statelog.fleet.follower import Follower
from statelog.fleet.head import Cut, HeadContents, decode
from statelog.fleet.owner import Owner, ShippingOptions
from statelog.fleet.ownership import NONCE_SIZE_BYTES, Takeover, Watched, lock_file, note_opening, take, unlock
from statelog.fleet.remote import check_number, check_period
from statelog.fleet.requests import Performer
from statelog.fleet.restores import bring_here, head_to_read, remove_leftovers, restore
from statelog.fleet.scratch import scratch
from statelog.fleet.stranded_commits import export_lost
from statelog.format.record import NO_DIGEST
from statelog.storage.options import check_path
from statelog.store.guarded import check_store_name
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from types import TracebackType

    from statelog import Store
    from statelog.fleet.archive import Archive
    from statelog.fleet.protocol import Owned
    from statelog.format.mac import StoreKey
    from statelog.portable.frames import ExportTarget

_OPEN: WeakValueDictionary[tuple[int, Path], Store] = WeakValueDictionary()
"""The open stores of this process's fleets, keyed by process and path. A file lock does not exclude its own process."""

_BESIDE = r"(-stranded-\d+(-\d+)?)?(-[a-z]+)?"
"""A pattern of the suffixes of a store's sidecar files. It matches no `.`, so it never matches another store's file."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The state of a store of a fleet, according to its head.

    Attributes:
        name: the name that opens it.
        state: "open", "opening", "free", or "unreadable": damaged, or of a newer format.
        owner: the current or last owner.
        epoch: number of owners so far.
        lsn: the last LSN recorded in the head; None while an owner continues the log.
    """

    name: str
    state: str
    owner: str
    epoch: int
    lsn: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that `check` has found in a store."""

    name: str
    error: StatelogError


@dataclass(frozen=True, slots=True)
class Stranded:
    """A local file with the commits that an owner had not shipped when another owner took over the store.

    The file opens as a store.

    Attributes:
        name: name of the store.
        path: path of the file.
    """

    name: str
    path: Path


class Fleet:
    """The stores in one remote storage, with local copies of those used on this machine.

    `statelog.fleet.connect` returns a fleet.
    """

    def __init__(self, archive: Archive, cache: Path, key: StoreKey | None = None) -> None:
        self._archive = archive
        self._key = key
        self._cache = cache
        self._process_id = os.getpid()
        self._opened: WeakSet[Store] = WeakSet()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            self.close()

    def close(self) -> None:
        """Close the open stores, which ships their remaining records, and close the storage.

        Raises:
            As `Store.close`, but only after all stores are closed.
        """
        self._is_closed = True
        with ExitStack() as closing:
            closing.callback(self._archive.close)
            if os.getpid() == self._process_id:
                for store in self._opened:
                    closing.callback(store.close)

    # --- one store -------------------------------------------------------------------------

    def open(
        self,
        name: str,
        *,
        takeover: Takeover = "wait",
        timeout_s: float | None = None,
        ship_ms: float = 100,
        acknowledge: Literal["local", "remote"] = "local",
        ttl_s: float = 10,
        park_after_s: float | None = 300,
        lag_max_s: float = 60,
        lag_max_bytes: int = 64 * 1024 * 1024,
        keep_s: float = garbage.KEEP_S,
        grace_s: float = garbage.GRACE_S,
        **options: Any,
    ) -> Store:
        """Become the owner of a store, and open it here. A missing store is created.

        The local copy is restored or brought up to date first. The result is an ordinary `Store`.
        Commits reach the storage within `ship_ms`, and with `durable="remote"` before `commit`
        returns. `close` ships the remaining records and releases the store.

        Args:
            name: any string of up to 200 bytes, where each byte except `A-Z a-z 0-9 - _ . ~` counts
                as three.
            takeover: "wait" waits until the owner releases the store, or has shown no sign of life
                for `ttl_s`. "now" takes the store at once. If the owner is alive after all, it is
                stopped; acknowledged commits are not lost.
            timeout_s: how long to wait for the owner; without a limit if left out.
            ship_ms: the longest time between a commit and the start of its shipping.
            acknowledge: "remote" makes every commit return only when it is in the storage.
            ttl_s: see `takeover`. The owner renews its sign of life three times in this period.
            park_after_s: after this time without a commit, the store is released until the next
                commit. While it is released, it makes no requests.
            lag_max_s: if unshipped commits are older than this, further commits wait, and then
                raise RemoteLagError.
            lag_max_bytes: the same limit for the size of unshipped commits.
            keep_s: how far back `restore(at=)` can go. Older states are removed when a later base is
                made.
            grace_s: objects younger than this are never removed.
            options: options of `statelog.open`. With `expect`, a missing store is not created.

        Raises:
            StoreNotFoundError: the store does not exist, and `expect` is given.
            SecretError: there is a guard, and the name has a secret.
            StoreLockedError: another owner, or another process of this machine, held the store
                until the timeout.
            ConflictError: the local file belongs to a different store.
            NewerFormatError: a newer release has written the store.
            CorruptionError: the storage's copy is damaged or incomplete. Facts: object.
            RemoteError: the storage is unavailable.
            UsageError: an argument is invalid, or the store is open in this process already.
        """
        if takeover not in ("wait", "now"):
            message = f"takeover must be 'wait' or 'now', not {takeover!r}"
            raise UsageError(message, argument="takeover", value=takeover)
        if acknowledge not in ("local", "remote"):
            message = f"acknowledge must be 'local' or 'remote', not {acknowledge!r}"
            raise UsageError(message, argument="acknowledge", value=acknowledge)
        how = ShippingOptions(ship_ms, acknowledge, ttl_s, park_after_s, lag_max_s, lag_max_bytes, keep_s, grace_s)
        for option in ("read_only", "create"):
            if option in options:
                message = (
                    f"`Fleet.open` opens a store for writing and does not accept {option}: use `follow` to read a store"
                )
                raise UsageError(message, argument=option, value=options[option])
        if "key" in options:
            message = "pass the key of a fleet's stores to statelog.fleet.connect(key=), not to this call"
            raise UsageError(message, argument="key")
        if timeout_s is not None:
            check_number("timeout_s", timeout_s)
        performer = self._performer(name)
        path = self.path(name)
        check_store_name(options.get("guard"), name)
        if options.get("expect") is not None and not path.exists():
            _head_of(performer, name)
        known = _OPEN.get((os.getpid(), path.resolve()))
        if known is not None and not known.closed:
            message = f"store {name!r} is already open in this process: use the open store, or close it first"
            raise UsageError(message, argument="name", value=name)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        lock = lock_file(path, deadline, takeover)
        try:
            remove_leftovers(path)
            store = self._own(performer, path, takeover, deadline, how, options, lock)
        except BaseException:
            unlock(lock)
            raise
        _OPEN[os.getpid(), path.resolve()] = store
        self._opened.add(store)
        return store

    def _own(
        self,
        performer: Performer,
        path: Path,
        takeover: Takeover,
        deadline: float | None,
        how: ShippingOptions,
        options: dict[str, Any],
        lock: int,
    ) -> Store:
        owner = (f"{socket.gethostname()}:{path}", secrets.token_bytes(NONCE_SIZE_BYTES))
        watched = Watched(note_opening(lock, owner[1]), takeover, how.ttl_s)
        owned = take(performer, owner, path, watched, deadline)
        try:
            before = replace(owned.head, epoch=owned.head.epoch - 1, state="free", tail=owned.head.tail[:-1])
            bring_here(performer, before, path)
            store = statelog.open(path, key=self._key, **options)
        except BaseException:
            with suppress(StatelogError):
                performer.perform(protocol.free(owned, 0, None))
            raise
        shipped = before.cut or Cut(0, NO_DIGEST)
        store._engine.remote = _Locked(store, performer, owned, how, shipped, lock)  # noqa: SLF001 - the fleet's door
        return store

    def path(self, name: str) -> Path:
        """Return the path of a store on this machine.

        After the store was opened here, other processes may open this path.
        """
        return self._cache / names.copy(name)

    def restore(self, name: str, path: str | os.PathLike[str], *, at: int | datetime | None = None) -> None:
        """Write the storage's copy of a store to a file, as an ordinary store that is not shipped.

        Args:
            name: name of the store.
            path: a path without a file.
            at: an LSN, or a timezone-aware datetime, within the last `keep_s`. Whole transactions
                up to this point are restored. A time in the future means now.

        Raises:
            UsageError: `at` is invalid, or is an LSN that is not shipped yet. Facts: argument,
                value.
            StoreNotFoundError: the store does not exist.
            AlreadyExistsError: a file exists at `path`.
            ExpiredError: `at` is earlier than the oldest state that is kept. Facts: at, oldest.
            CorruptionError: see `open`.
        """
        check_path(path)
        performer = self._performer(name)
        _head_of(performer, name)
        _restore(performer, name, Path(path), at)

    @contextmanager
    def follow(self, name: str, *, poll_s: float = 1) -> Iterator[Store]:
        """Yield a read-only copy that follows the owner: shipped records arrive within `poll_s`.

        A store may have any number of followers. Commits to the copy raise ReadOnlyError.
        `store.remote.wait(lsn)` waits until the copy has an LSN, and raises the error that ended
        the following: StoreNotFoundError if the store was deleted, ExpiredError if the copy fell
        too far behind.

        Raises:
            StoreNotFoundError: the store does not exist.
            CorruptionError, RemoteError: see `open`.
        """
        check_period("poll_s", poll_s)
        performer = self._performer(name)
        _head_of(performer, name)
        with scratch(self._cache) as folder:
            path = folder / "copy.state"
            _restore(performer, name, path)
            with open_for_records(path, durability="interval", key=self._key) as store:
                store._engine.remote = follower = Follower(store, performer, poll_s)  # noqa: SLF001 - the fleet's door
                follower.start()
                yield store

    # --- all of them -----------------------------------------------------------------------

    def stores(self) -> list[StoreStatus]:
        """Return the stores of the fleet, by name. A store whose head cannot be read is "unreadable"."""
        listed = []
        for name in self._names():
            try:
                listed.append(self._status(name))
            except (CorruptionError, NewerFormatError):
                listed.append(StoreStatus(name, "unreadable", "", 0, None))
        return [each for each in listed if each is not None]

    def _names(self) -> list[str]:
        self._check_process()
        ending = f"/{names.HEAD}"
        found = self._archive.names("")
        return sorted(names.store_of(name.removesuffix(ending)) for name in found if name.endswith(ending))

    def status(self, name: str) -> StoreStatus:
        """Return the state of a store. Raises StoreNotFoundError."""
        found = self._status(name)
        if found is None:
            raise _no_store(name)
        return found

    def _status(self, name: str) -> StoreStatus | None:
        try:
            head = _head_of(self._performer(name), name)
        except NotFoundError:
            return None
        cut = head.cut
        return StoreStatus(name, head.state, head.owner[0], head.epoch, None if cut is None else cut.lsn)

    def shipped_lsn(self, name: str) -> int:
        """Return the LSN up to which the storage has the log of a store; 0 if it has nothing.

        This makes three requests to the storage, and downloads no records.

        Raises:
            StoreNotFoundError: no such store. CorruptionError, RemoteError: see `open`.
        """
        performer = self._performer(name)
        head = _head_of(performer, name)
        for stretch in reversed(head.tail):
            if stretch.cut is not None:
                return stretch.cut.lsn
            listed = performer.names(names.segments(stretch.epoch), names.segment(stretch.epoch, stretch.first - 1))
            for each in reversed(listed):
                found = performer.archive.read(performer.folder + each)
                if found is not None and found.data != protocol.END:
                    return segments.about(each, segments.open_segment(each, found.data, self._key)).last
        return 0 if head.base is None else head.base.lsn

    def check(self, name: str | None = None) -> list[Problem]:
        """Restore every store, or only `name`, into a temporary file, verify that file, and return the problems."""
        problems = []
        for each in [name] if name is not None else self._names():
            with scratch(self._cache) as folder:
                path = folder / "copy.state"
                try:
                    self.restore(each, path)
                    with open_for_records(path, read_only=True, key=self._key) as store:
                        found = store.verify().problems
                    if found:
                        problems.append(Problem(each, CorruptionError(found[0].message)))
                except StoreNotFoundError:  # The store was just deleted.
                    if name is not None:
                        raise
                except (UsageError, RemoteError, AccessError):
                    raise
                except StatelogError as error:
                    problems.append(Problem(each, error))
        return problems

    def stranded(self) -> list[Stranded]:
        """Return the local files with commits that were never shipped.

        Each file opens as a store. A fenced file is read-only.
        """
        marked = f"{names.COPY}-stranded-"
        found = [path for path in sorted(self._cache.glob(f"*{marked}*")) if path.name.rpartition("-")[2].isdigit()]
        return [Stranded(names.store_of(path.name.partition(marked)[0]), path) for path in found]

    def export_stranded(self, stranded: Stranded, target: ExportTarget) -> dict[str, str]:
        """Export the threads that a stranded file has continued after the store was taken over.

        Import the result into the store with `store.import_`. If the store has also continued a
        thread, the export has a copy of the thread with the id `ID-stranded-EPOCH`. Entries of the board are not
        exported; read them in the file.

        Args:
            stranded: an element of `stranded()`.
            target: a binary file. Nothing is written if no thread has continued.

        Returns:
            A dict from each thread's id to its id in the export.
        """
        if not isinstance(stranded, Stranded):
            message = f"stranded must be an element of Fleet.stranded(), not {stranded!r}"
            raise UsageError(message, argument="stranded", value=stranded)
        suffix = stranded.path.name.partition(names.COPY)[2]
        with scratch(self._cache) as folder:
            live: Path | None = folder / "live.state"
            try:
                self.restore(stranded.name, folder / "live.state")
            except StoreNotFoundError:  # The store was just deleted.
                live = None
            return export_lost(stranded.path, live, target, suffix=suffix, key=self._key)

    def gc(self, name: str, *, keep_s: float = garbage.KEEP_S, grace_s: float = garbage.GRACE_S) -> int:
        """Remove objects that no kept state needs, and return their number.

        Any host may call this, even while the store has an owner.
        """
        check_number("keep_s", keep_s)
        check_number("grace_s", grace_s)
        performer = self._performer(name)
        head = _head_of(performer, name, may_be_deleted=True)
        return len(garbage.collect(performer, head, keep_s=keep_s, grace_s=grace_s))

    def purge(self, name: str, **how: Any) -> None:
        """Also remove a store's deleted contents from the storage. The store's earlier states are lost.

        This compacts the store, makes a base that shares no piece with earlier ones, and removes
        all older objects.

        Args:
            name: name of the store.
            how: options of `open`.
        """
        _head_of(self._performer(name), name)
        with self.open(name, **how) as store:
            store.compact()
            store.remote.base(is_fresh=True)
        self.gc(name, keep_s=0, grace_s=0)

    def delete(self, name: str, **how: Any) -> None:
        """Delete a store, here and in the storage. Its name may be used again.

        The head remains and marks the store as deleted, so that no object name is used twice.

        Args:
            name: name of the store.
            how: options of `open`.
        """
        performer = self._performer(name)
        _head_of(performer, name)
        with self.open(name, **how) as store:
            store.remote.forget()
        self.gc(name, keep_s=0, grace_s=0)
        own = re.compile(re.escape(self.path(name).name) + _BESIDE)
        for path in list(self._cache.iterdir()):
            if own.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _performer(self, name: str) -> Performer:
        self._check_process()
        folder = names.folder(name)
        self._archive.keep_as(folder, self.path(name))
        return Performer(self._archive, folder, self._key)

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            message = "this fleet was connected before this process was forked: connect again in the child"
            raise ForkedError(message, cache=str(self._cache))
        if self._is_closed:
            raise ClosedError("this fleet was closed: connect again", cache=str(self._cache))


class _Locked(Owner):
    """An owner that releases the file's lock when it is closed."""

    def __init__(
        self, store: Store, performer: Performer, owned: Owned, how: ShippingOptions, shipped: Cut, lock: int
    ) -> None:
        self._lock = lock
        super().__init__(store, performer, owned, how, shipped)

    def close(self) -> None:
        """See `Owner.close`."""
        try:
            super().close()
        finally:
            if self._lock >= 0 and not self.is_forked:
                unlock(self._lock)
                self._lock = -1


def _head_of(performer: Performer, name: str, *, may_be_deleted: bool = False) -> HeadContents:
    found = performer.archive.read(performer.folder + names.HEAD)
    if found is None:
        raise _no_store(name)
    head = decode(performer.folder + names.HEAD, found.data)
    is_deleted = head.state == "free" and not head.tail and head.base is None
    if is_deleted and not may_be_deleted:
        raise _no_store(name)
    return head


def _readable(performer: Performer, name: str, *, is_earlier: bool = False) -> HeadContents:
    head = head_to_read(performer, is_earlier=is_earlier)
    if head is None:
        raise _no_store(name)
    return head


def _restore(performer: Performer, name: str, path: Path, at: int | datetime | None = None) -> None:
    is_earlier = at is not None
    head = _readable(performer, name, is_earlier=is_earlier)
    try:
        restore(performer, head, path, at=at)
    except CorruptionError:
        now = _readable(performer, name, is_earlier=is_earlier)
        if now.base == head.base:
            raise
        # A collection has just removed an object: start again with the current head.
        restore(performer, now, path, at=at)


def _no_store(name: str) -> StoreNotFoundError:
    return StoreNotFoundError(f"this fleet has no store {name!r}", name=name)
