"""A store that many hosts write: each host has a copy, and Postgres has the log. DESIGN.md 3."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import secrets
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import statelog
from statelog.errors import ConflictError, CorruptionError, ExpiredError, FencedError, StatelogError, UsageError
from statelog.fleet import bases, names, protocol, segments
from statelog.fleet.connection import prepare
from statelog.fleet.follower import Follower
from statelog.fleet.garbage import collect
from statelog.fleet.head import SHARED, Cut, HeadContents, decode, taker
from statelog.fleet.ownership import NONCE_SIZE_BYTES, Watched, note_opening, share_file, take, unlock
from statelog.fleet.remote import RemoteStatus, check_number, check_period
from statelog.fleet.requests import Performer
from statelog.fleet.restores import (
    catch_up_over_bases,
    chain_at,
    head_to_read,
    listed_of,
    now_us,
    restore,
    segments_of,
    start_over,
    store_id,
)
from statelog.format.mac import as_store_key
from statelog.format.record import NO_DIGEST
from statelog.limits import LOCK_TIMEOUT_DEFAULT_S
from statelog.redaction import redacted_url
from statelog.store.guarded import check_store_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog import Store
    from statelog.fleet.bases import Listed
    from statelog.fleet.turns import HostTurns, Locked, SegmentRow
    from statelog.storage.write_transaction import WriteTransaction

_SEGMENTS_MAX = 4096
_TAIL_BYTES_MIN = 8 * 1024 * 1024
"""The tail size up to which no base is made, because a joining host can import such a tail at once."""

_TTL_S = 10.0


class _KnownPosition(NamedTuple):
    """The last position in the log that a host knows."""

    name: str
    """Name of the last segment. If there is none yet, its number is one less than the number of the first segment."""
    version: str | None
    """Version of the row of the segment `name`, or None if there is no segment."""
    cut: Cut


class Sharer(Follower):
    """The `store.remote` of a store that many hosts write: a commit goes to the log first, and then into the file."""

    def __init__(
        self, store: Store, performer: Performer, turns: HostTurns, head: HeadContents, poll_s: float, lock: int
    ) -> None:
        super().__init__(store, performer, poll_s)
        self._turns = turns
        self._lock = lock
        self._process_id = os.getpid()
        self._owner = head.owner
        self._head, self._version = head, ""
        self._known = _KnownPosition(names.segment(head.epoch, head.tail[-1].first - 1), None, Cut(0, NO_DIGEST))
        self._appended: tuple[_KnownPosition, int] | None = None
        """The last append of this host and its size, until it is known whether the file has it."""
        self._tail_bytes = 0
        self._base_bytes = 0
        self._looked_s = 0.0
        self._base_due = 0
        """The epoch that must be replaced by a new epoch with a base, or 0 if no base is due."""

    def join(self) -> None:
        """Import the records of the log that the copy does not have.

        Raises ConflictError if the copy is not an earlier state of the log, ExpiredError if the
        copy is too old.
        """
        head = head_to_read(self._performer)
        if head is None or head.owner != self._owner:
            raise self._fenced(f"another owner has taken this store over{'' if head is None else f': {taker(head)}'}")
        with self._store._engine.taking_in():  # noqa: SLF001 - the fleet's door
            catch_up_over_bases(self._performer, head, self._store)
        cut = head.cut
        segment = (segments_of(head) or [""])[-1]
        version = None
        if segment.startswith(names.segments(head.epoch)):
            found = self._performer.read(segment)
            if found is None:
                raise ConflictError(f"{segment} is missing from the storage", object=segment)
            version, cut = found.token, segments.cut_of(self._open_segment(segment, found.data))
            self._known = _KnownPosition(segment, version, cut)
        elif cut is not None:
            self._known = self._known._replace(cut=cut)
        if self._known.cut.lsn and chain_at(self._store, self._known.cut.lsn) != self._known.cut.chain:
            raise ConflictError("this copy differs from the log", path=str(self._store.path))
        with self._store._engine.taking_in(), self.turn():  # noqa: SLF001 - the fleet's door
            pass

    # --- the public methods --------------------------------------------------------------------

    def status(self) -> RemoteStatus:
        """Return the state of the log as this host knows it. Every commit is in the log."""
        lsn = self._store.last_lsn
        requests = self._performer.requests + self._turns.requests
        return RemoteStatus(lsn, lsn, 0.0, 0, self._head.epoch, parked=False, requests=requests)

    def admit(self) -> None:
        """See `log.engine.Shipper`."""
        self._check()

    def close(self) -> None:
        """Stop using the log. Other hosts continue."""
        if self._lock < 0 or os.getpid() != self._process_id:
            return
        self._end.set()
        self._turns.wake()
        super().close()
        with self._store._engine.taking_in():  # noqa: SLF001 - the fleet's door: no commit is on its way
            self._turns.close()
        self._performer.archive.close()
        unlock(self._lock)
        self._lock = -1

    # --- a turn --------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See `log.shared_commit.SharedLog`."""
        self._settle()
        locked = self._turns.lock(self._known.name)
        try:
            self._accept(locked)
            yield
        finally:
            self._turns.release()

    def append(self, transaction: WriteTransaction) -> BaseException | None:
        """See `log.shared_commit.SharedLog`."""
        cut = self._known.cut
        if transaction.first_lsn != cut.lsn + 1:
            raise self._fenced("this copy does not end where the log ends")
        about, segment = segments.made_of(transaction.appended, self._head.store_id, cut)
        data = segments.seal_segment(segment, self._performer.key)
        name = self._next_name()
        version = str(uuid.uuid4())
        appended = _KnownPosition(name, version, Cut(about.last, about.chain)), len(data)
        interrupt = self._turns.append(name, data, version)
        # Make no call between the append and this assignment. An interrupt in such a call could hide that the append
        # succeeded.
        self._appended = appended
        return interrupt

    def _settle(self) -> None:
        """Record this host's last append as known if the file has it.

        Otherwise the append is imported later, like the appends of other hosts.
        """
        if self._appended is not None and self._store.last_lsn >= self._appended[0].cut.lsn:
            self._note(*self._appended)
            if self._is_tail_long():
                self._base_due = self._head.epoch
                self._turns.wake()
        self._appended = None

    def _is_tail_long(self) -> bool:
        is_large = self._tail_bytes > max(_TAIL_BYTES_MIN, self._base_bytes // 2)
        return is_large or names.number_of(self._known.name) >= _SEGMENTS_MAX

    def _next_name(self) -> str:
        going_on = self._head.tail[-1]
        last = self._known.name
        if last.startswith(names.segments(going_on.epoch)):
            return names.segment(going_on.epoch, names.number_of(last) + 1)
        return names.segment(going_on.epoch, going_on.first)

    def _note(self, known: _KnownPosition, size_bytes: int) -> None:
        if known.name.rpartition("/")[0] != self._known.name.rpartition("/")[0]:
            self._tail_bytes = 0  # A new epoch has begun for a base, so the tail starts anew.
        self._known = known
        self._tail_bytes += size_bytes

    def _accept(self, locked: Locked) -> None:
        """Import what other hosts appended.

        Raises FencedError if the store is no longer shared, or the copy differs.
        """
        if locked.version != self._version:
            head = decode(names.HEAD, locked.head)
            if head.owner != self._owner or not head.is_shared:
                why = f"another owner has taken over this store, which many hosts shared: {taker(head)}"
                raise self._fenced(why, owner=head.owner[0], epoch=head.epoch)
            self._head, self._version = head, locked.version
        self._take_rows(locked.rows)
        if self._store.last_lsn != self._known.cut.lsn:
            raise self._fenced("this copy has records that the log does not have")

    def _take_rows(self, rows: list[SegmentRow]) -> None:
        known = self._known
        if known.version is not None:
            if rows and rows[0][::2] == (known.name, known.version):
                rows = rows[1:]
            elif self._head.base is None or Cut(self._head.base.lsn, self._head.base.chain) != known.cut:
                raise self._fenced("the log lost records that this copy has, or that it still needs")
        # A host that has opened the store for itself alone puts END when it releases the store.
        # The next turn of this host finds the other owner in the head, and raises an error.
        rows = [row for row in rows if row.data != protocol.END]
        if not rows:
            return
        found = [(row, self._open_segment(row.name, row.data or b"")) for row in rows]
        export = b"".join(segments.expand(row.name, data) for row, data in found)
        self._import(export)
        for row, data in found:
            about = segments.about(row.name, data)
            self._note(_KnownPosition(row.name, row.version, Cut(about.last, about.chain)), len(data))

    def _open_segment(self, name: str, data: bytes) -> bytes:
        return segments.open_segment(name, data, self._performer.key)

    def _import(self, export: bytes) -> None:
        while True:
            end = self._store.last_lsn
            try:
                with self._store._engine.taking_in():  # noqa: SLF001 - the fleet's door
                    self._store.import_(io.BytesIO(export))
            except ConflictError as error:
                if self._store.last_lsn == end:
                    raise self._fenced("this copy differs from the log") from error
                # Another process of this machine has just imported some of the records: try again.
            else:
                return

    def _fenced(self, why: str, **facts: Any) -> FencedError:
        self._error = FencedError(f"{why}: open it again", path=str(self._store.path), **facts)
        return self._error

    # --- turns of other hosts --------------------------------------------------------------------

    def _pause(self) -> bool:
        if self._base_due:
            due, self._base_due = self._base_due, 0
            with suppress(StatelogError):  # The next base replaces a failed one, and `_error` keeps a FencedError.
                self._make_base(due)
        now_s = time.monotonic()
        told = self._turns.hear(max(0.0, self._looked_s + self._poll_s - now_s))
        if told:
            with self._store._engine.taking_in():  # noqa: SLF001 - the fleet's door
                self._settle()
                if told <= self._known.name:  # This host appended the segment itself, or imported it during a turn.
                    return False
        elif told is None and now_s - self._looked_s < self._poll_s:
            return False
        return not self._end.is_set()

    def _take_in(self) -> None:
        if os.getpid() != self._process_id:
            raise self._store._engine.store_file.lmdb_file.forked_error()  # noqa: SLF001 - the fleet's door
        self._looked_s = time.monotonic()
        is_done = False
        while not is_done:
            known = self._known
            rows = self._turns.look(known.name)
            with self._store._engine.taking_in():  # noqa: SLF001 - the fleet's door
                self._settle()
                is_done = known is self._known
                if is_done and len(rows) > (known.version is not None):
                    self._take_rows(rows)

    # --- bases -----------------------------------------------------------------------------------

    def _make_base(self, due: int) -> None:
        """Make a base in a new epoch, so that concurrent makers never use the same name (F4).

        Args:
            due: the epoch that must end. If another host has ended it, that host makes the base.
        """
        held = self._listed()
        self._base_bytes = held.size_bytes  # Another host may have made this base.
        if not self._is_tail_long():
            return
        with self._store._engine.taking_in(), self.turn():  # noqa: SLF001 - the fleet's door
            if self._head.epoch != due:
                return
            cut = self._known.cut
            is_mine = self._known.name.startswith(names.segments(self._head.epoch))
            last = names.number_of(self._known.name) if is_mine else self._head.tail[-1].first - 1
            before = self._head.cut_at(last, cut)
            begun = replace(before, epoch=before.epoch + 1).begun()
            self._turns.change(begun.encode())
        path = self._store.path.with_name(f".{self._store.path.name}.{secrets.token_hex(4)}.base")
        try:
            base = bases.image(self._store, path, begun.epoch)
            made = bases.put_image(path, base, held.pieces, self._performer.put)
            self._base_bytes = made.size_bytes
        finally:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}-lock").unlink(missing_ok=True)
        rows = self._turns.look(names.segment(begun.epoch, 0))
        found = [(row.name, segments.about(row.name, self._open_segment(row.name, row.data or b""))) for row in rows]
        if any(each.since < base.lsn and not name.startswith(names.segments(begun.epoch)) for name, each in found):
            return  # Another host has begun a base before this image was taken.
        met = [each for _name, each in found if each.since < base.lsn]
        end = Cut(met[-1].last, met[-1].chain) if met else None
        ended = begun.cut_at(len(met), end)  # Include the records that were appended up to the image.
        listed = bases.encode(made._replace(before=ended.encode(), time_us=now_us()))
        self._performer.put(bases.list_name(base), listed)
        with self._store._engine.taking_in(), self.turn():  # noqa: SLF001 - the fleet's door
            if self._head.base != begun.base:  # Another host was faster, and has replaced the base.
                return
            based = self._head.based(base, 1 + sum(each.last <= base.lsn for each in met))
            self._turns.change(based.encode())
        collect(self._performer, based)

    def _listed(self) -> Listed:
        base = self._head.base
        return bases.NOTHING if base is None else listed_of(self._performer, base)


def share(
    url: str,
    name: str,
    cache: str | os.PathLike[str] | None = None,
    *,
    timeout_s: float | None = None,
    poll_s: float = 1,
    **options: Any,
) -> Store:
    """Open a store that many hosts write, each with its own copy. A missing store is created.

    The result is an ordinary `Store`. When a commit returns, it is in Postgres, and it was applied
    after all earlier commits of every host. So reducers, claims, leases and `expected_version` work
    as on one host. Reads use this machine's copy, which imports the commits of other hosts as soon
    as Postgres announces them. `store.remote.wait()` returns when the copy has all commits made so
    far.

    Args:
        url: `postgresql://user@host/database`, prepared with `statelog fleet setup`.
        name: see `Fleet.open`.
        cache: a folder of this machine for the copy; by default one of this user. Processes of one
            machine share it.
        timeout_s: how long to wait until a sole owner releases the store; without a limit if left out.
        poll_s: interval at which this host looks for commits that Postgres did not announce.
        options: options of `statelog.open`. `lock_timeout_s` is also how long a commit waits for
            its turn.

    Raises:
        UsageError: the URL is not of Postgres, an argument is invalid, or the store is open in this
            process already.
        StoreLockedError: the store has a sole owner.
        NotFoundError, AccessError, RemoteError: as `connect`.
        ConflictError: this machine has a different store at that path.
    """
    if not isinstance(url, str) or url.partition("://")[0] not in {"postgresql", "postgres"}:
        shown = redacted_url(url)
        message = f"a store that many hosts share needs Postgres (postgresql://host/database), not {shown!r}"
        raise UsageError(message, argument="url", value=shown)
    for option in ("read_only", "create"):
        if option in options:
            message = f"`share` opens a store for writing and does not accept {option}: use `follow` to read a store"
            raise UsageError(message, argument=option, value=options[option])
    check_period("poll_s", poll_s)
    if timeout_s is not None:
        check_number("timeout_s", timeout_s)
    folder = names.folder(name)
    check_store_name(options.get("guard"), name)
    archive, copies = prepare(url, _default_cache(url) if cache is None else cache)
    from statelog.fleet.turns import HostTurns  # This import needs psycopg, which is installed at this point.

    turns, lock = HostTurns(url, folder, options.get("lock_timeout_s") or LOCK_TIMEOUT_DEFAULT_S), -1
    try:
        path = copies / names.copy(name)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        lock, is_alone = share_file(path, deadline)
        key = options.get("key")
        performer = Performer(archive, folder, None if key is None else as_store_key(key))
        options["key"] = performer.key
        nonce = secrets.token_bytes(NONCE_SIZE_BYTES)
        watched = Watched(note_opening(lock, nonce), None, _TTL_S)
        owned = take(performer, (SHARED, nonce), path, watched, deadline)
        make = partial(Sharer, performer=performer, turns=turns, head=owned.head, poll_s=poll_s, lock=lock)
        try:
            store = _joined(make, performer, owned.head, path, options)
        except (ConflictError, CorruptionError, ExpiredError, FencedError) as error:
            if not is_alone or "object" in error.facts:  # The error is about the storage, not about the local file.
                raise
            start_over(performer, _readable(performer), path)
            store = _joined(make, performer, owned.head, path, options)
    except BaseException:
        turns.close()
        archive.close()
        if lock >= 0:
            unlock(lock)
        raise
    fcntl.flock(lock, fcntl.LOCK_SH)
    return store


def _joined(
    make: Callable[[Store], Sharer], performer: Performer, head: HeadContents, path: Path, options: dict[str, Any]
) -> Store:
    if not path.exists():
        restore(performer, _readable(performer), path)
    store = statelog.open(path, **{"durability": "interval", **options})
    try:
        _check_joinable(store, head)
        sharer = make(store)
        store._engine.share(sharer)  # noqa: SLF001 - the fleet's door
        sharer.join()
        if not store.fenced:
            store.shut_off(
                FencedError("many hosts share this store: open it with statelog.fleet.share", path=str(path))
            )
    except BaseException:
        store.close()
        raise
    store._engine.remote = sharer  # noqa: SLF001 - the fleet's door
    sharer.start()
    return store


def _check_joinable(store: Store, head: HeadContents) -> None:
    if store._engine.is_shared:  # noqa: SLF001 - the fleet's door
        message = f"the store at {store.path} is already open in this process"
        raise UsageError(message, argument="name", value=str(store.path))
    found = store_id(store)
    if found in head.gone:
        raise ConflictError("another machine has deleted the store", path=str(store.path))
    if found != head.store_id:
        message = f"{store.path} is not the store of this fleet: move it away"
        raise ConflictError(message, path=str(store.path), object=names.HEAD)


def _readable(performer: Performer) -> HeadContents:
    head = head_to_read(performer)
    assert head is not None  # The store was taken, so it has a head.
    return head


def _default_cache(url: str) -> Path:
    """Return the folder of this user's copies of one database."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = None
    with suppress(ValueError):  # The error's message may quote a part of the password.
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port}{parts.path}"
    if place is None:
        shown = redacted_url(url)
        message = f"{shown} is not an address of a Postgres database"
        raise UsageError(message, argument="url", value=shown)
    return cache / "statelog" / hashlib.blake2b(place.encode(), digest_size=8).hexdigest()
