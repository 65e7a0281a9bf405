"""Stores that outlive their machine: what users hold."""

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
from statelog.fleet import collecting, names, protocol, segments
from statelog.fleet.following import Follower
from statelog.fleet.head import Cut, Head, decode
from statelog.fleet.owning import Options, Owner
from statelog.fleet.performing import Performer
from statelog.fleet.remote import check_number, check_period
from statelog.fleet.restoring import bring_here, head_to_read, remove_leftovers, restore
from statelog.fleet.scratch import scratch
from statelog.fleet.stranding import export_lost
from statelog.fleet.taking import NONCE_SIZE_BYTES, Takeover, Watched, lock_file, note_opening, take, unlock
from statelog.format.record import NO_DIGEST
from statelog.storage.options import check_path
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from types import TracebackType

    from statelog import Store
    from statelog.fleet.archive import Archive
    from statelog.fleet.protocol import Owned
    from statelog.format.mac import StoreKey
    from statelog.portable.frames import Target

_OPEN: WeakValueDictionary[tuple[int, Path], Store] = WeakValueDictionary()
"""The stores of this process's fleets, by process and path: a lock is no help against oneself."""

_BESIDE = r"(-stranded-\d+(-\d+)?)?(-[a-z]+)?"
"""What follows the name of a store's file in the names of those beside it: never a `.`, as in another store's."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store of a fleet, as its head tells.

    Attributes:
        name: by which it is opened.
        state: "open", "opening", "free", or "unreadable": damaged, or of a newer format.
        owner: who owns it, or did last.
        epoch: how many owners there were.
        lsn: up to where its log is written down; None as long as the owner goes on.

    """

    name: str
    state: str
    owner: str
    epoch: int
    lsn: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a store of a fleet."""

    name: str
    error: StatelogError


@dataclass(frozen=True, slots=True)
class Stranded:
    """What an owner had not shipped when another took its store over: a local file, which opens as a store.

    Attributes:
        name: of the store.
        path: of the file.

    """

    name: str
    path: Path


class Fleet:
    """Stores in a storage, and copies of those that this machine has used. Use `statelog.fleet.connect`."""

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
        """Close the stores that it has open, which ships the rest of them, and let go of the storage.

        Raises:
            As `Store.close`; all of them are closed then.

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
        keep_s: float = collecting.KEEP_S,
        grace_s: float = collecting.GRACE_S,
        **options: Any,
    ) -> Store:
        """Own a store, and open it here: restored if it is not here, caught up if it is. It is made if need be.

        It is an ordinary `Store`. What it commits is outside within `ship_ms`; with `durable="remote"` when `commit`
        returns. `close` ships the rest and gives the store up.

        Args:
            name: any text of up to 200 bytes, of which all but `A-Z a-z 0-9 - _ . ~` count as three each.
            takeover: "wait": until its owner gives it up, or has given no sign for `ttl_s`. "now": at once. Who is
                wrong about the owner's death stops that owner; what was acknowledged is not lost.
            timeout_s: how long to wait for the owner; for ever if left out.
            ship_ms: so long after a commit at most it begins to be shipped.
            acknowledge: "remote": every commit returns when it is outside.
            ttl_s: see `takeover`. The owner gives a sign each third of it.
            park_after_s: after so long without a commit the store is given up until the next one, and costs no request.
            lag_max_s: commits wait, and then raise RemoteLagError, while what is older than this is not outside...
            lag_max_bytes: ...or more than this.
            keep_s: `restore(at=)` goes back so far: what led there is removed after it, with a later base.
            grace_s: nothing is removed that was put later than this ago.
            options: of `statelog.open`. With `expect`, a store that is neither here nor outside is not made.

        Raises:
            StoreNotFoundError: there is no such store, and `expect` is given.
            StoreLockedError: it has an owner all the time allowed, or another process of this machine.
            ConflictError: the file here is another store. NewerFormatError: a newer release has written it.
            CorruptionError: what is outside is damaged or not whole. Facts: object.
            RemoteError: the storage is away. UsageError: bad arguments, or it is open in this process already.

        """
        if takeover not in ("wait", "now"):
            message = f"takeover is 'wait' or 'now', not {takeover!r}"
            raise UsageError(message, argument="takeover", value=takeover)
        if acknowledge not in ("local", "remote"):
            message = f"acknowledge is 'local' or 'remote', not {acknowledge!r}"
            raise UsageError(message, argument="acknowledge", value=acknowledge)
        how = Options(ship_ms, acknowledge, ttl_s, park_after_s, lag_max_s, lag_max_bytes, keep_s, grace_s)
        for option in ("read_only", "create"):
            if option in options:
                message = f"who opens a store of a fleet writes it: {option} is no option (`follow` reads one)"
                raise UsageError(message, argument=option, value=options[option])
        if "key" in options:
            message = "the key of a fleet's stores is an argument of statelog.fleet.connect(key=), not of this call"
            raise UsageError(message, argument="key")
        if timeout_s is not None:
            check_number("timeout_s", timeout_s)
        performer = self._performer(name)
        path = self.path(name)
        if options.get("expect") is not None and not path.exists():
            _head_of(performer, name)
        known = _OPEN.get((os.getpid(), path.resolve()))
        if known is not None and not known.closed:
            message = f"store {name!r} is open in this process already: use that one, or close it first"
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
        how: Options,
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
        """Return where a store lies on this machine, once it was opened here: other processes may open it there."""
        return self._cache / names.copy(name)

    def restore(self, name: str, path: str | os.PathLike[str], *, at: int | datetime | None = None) -> None:
        """Make a file of what is outside of a store, as an ordinary store that nothing ships.

        Args:
            name: of the store.
            path: where there is no file.
            at: an LSN, or a time with its zone, of the last days (`keep_s`): whole transactions up to there. A time to
                come is now.

        Raises:
            UsageError: `at` is none, or an LSN that is not outside yet. Facts: argument, value.
            StoreNotFoundError: no such store. AlreadyExistsError: there is a file.
            ExpiredError: `at` is before what is kept. Facts: oldest. CorruptionError: see `open`.

        """
        check_path(path)
        performer = self._performer(name)
        _head_of(performer, name)
        _restore(performer, name, Path(path), at)

    @contextmanager
    def follow(self, name: str, *, poll_s: float = 1) -> Iterator[Store]:
        """Yield a copy for reading, which takes in what the owner ships, `poll_s` after it at most. Any number may.

        Its commits raise ReadOnlyError. `store.remote.wait(lsn)` waits until it has an LSN, and raises what has ended
        the following: StoreNotFoundError, if the store was deleted; ExpiredError, if the copy fell too far behind.

        Raises:
            StoreNotFoundError: no such store. CorruptionError, RemoteError: see `open`.

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
        """Return the stores of the fleet, by name. One whose head cannot be read is "unreadable"."""
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
        """Return what a store's head tells. Raises StoreNotFoundError."""
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

        This asks three requests of the storage, and brings nothing here.

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
        """Restore every store, or one, into a temporary file, verify it, and return what is wrong."""
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
                except StoreNotFoundError:  # it was deleted
                    if name is not None:
                        raise
                except (UsageError, RemoteError, AccessError):
                    raise
                except StatelogError as error:
                    problems.append(Problem(each, error))
        return problems

    def stranded(self) -> list[Stranded]:
        """Return the files here that have what was never shipped. They open as stores; fenced, for reading."""
        marked = f"{names.COPY}-stranded-"
        found = [path for path in sorted(self._cache.glob(f"*{marked}*")) if path.name.rpartition("-")[2].isdigit()]
        return [Stranded(names.store_of(path.name.partition(marked)[0]), path) for path in found]

    def export_stranded(self, stranded: Stranded, target: Target) -> dict[str, str]:
        """Write the threads that have gone on in a stranded file behind where the store was taken over.

        `store.import_` of the store takes them in. With what the store has gone on with, too, a copy goes out, by the
        id `ID-stranded-EPOCH`. Entries of the board do not go out: look at them in the file.

        Args:
            stranded: of `stranded()`.
            target: what is written to: a binary file. Nothing is, if no thread has gone on.

        Returns:
            By the id of each thread: the one by which it went out.

        """
        if not isinstance(stranded, Stranded):
            message = f"stranded is one of what Fleet.stranded() returns, not {stranded!r}"
            raise UsageError(message, argument="stranded", value=stranded)
        suffix = stranded.path.name.partition(names.COPY)[2]
        with scratch(self._cache) as folder:
            live: Path | None = folder / "live.state"
            try:
                self.restore(stranded.name, folder / "live.state")
            except StoreNotFoundError:  # it was deleted
                live = None
            return export_lost(stranded.path, live, target, suffix=suffix, key=self._key)

    def gc(self, name: str, *, keep_s: float = collecting.KEEP_S, grace_s: float = collecting.GRACE_S) -> int:
        """Remove what nothing leads to any more; return how many objects. Anybody may, also beside the owner."""
        check_number("keep_s", keep_s)
        check_number("grace_s", grace_s)
        performer = self._performer(name)
        head = _head_of(performer, name, may_be_deleted=True)
        return len(collecting.collect(performer, head, keep_s=keep_s, grace_s=grace_s))

    def purge(self, name: str, **how: Any) -> None:
        """Have what was deleted from a store gone from the storage, too: its history is what it is now.

        The store is compacted, a base made that shares no piece, and all before it removed.

        Args:
            name: of the store.
            how: of `open`.

        """
        _head_of(self._performer(name), name)
        with self.open(name, **how) as store:
            store.compact()
            store.remote.base(is_fresh=True)
        self.gc(name, keep_s=0, grace_s=0)

    def delete(self, name: str, **how: Any) -> None:
        """Delete a store, here and in the storage. Its name may be used again.

        What stays is the head, which says that it is empty: so no name of an object is used twice.

        Args:
            name: of the store.
            how: of `open`.

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
            raise ClosedError("this fleet was closed: connect anew", cache=str(self._cache))


class _Locked(Owner):
    """An owner that lets go of the file's lock at its end."""

    def __init__(self, store: Store, performer: Performer, owned: Owned, how: Options, shipped: Cut, lock: int) -> None:
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


def _head_of(performer: Performer, name: str, *, may_be_deleted: bool = False) -> Head:
    found = performer.archive.read(performer.folder + names.HEAD)
    if found is None:
        raise _no_store(name)
    head = decode(performer.folder + names.HEAD, found.data)
    is_deleted = head.state == "free" and not head.tail and head.base is None
    if is_deleted and not may_be_deleted:
        raise _no_store(name)
    return head


def _readable(performer: Performer, name: str, *, is_earlier: bool = False) -> Head:
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
        restore(performer, now, path, at=at)  # what was missing was collected meanwhile


def _no_store(name: str) -> StoreNotFoundError:
    return StoreNotFoundError(f"there is no store {name!r} in this fleet", name=name)
