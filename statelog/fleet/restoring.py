"""A local file made of a base and a tail; or one that is there, caught up."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import statelog
from statelog.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptionError,
    ExpiredError,
    ForgeryError,
    RemoteError,
    UsageError,
)
from statelog.fleet import bases, names, protocol, segments
from statelog.fleet.head import Cut, Head, decode
from statelog.log.care.naming import name_again
from statelog.portable.frames import FrameReader
from statelog.storage.file.creation import create_store, new_file
from statelog.storage.file.descriptors import SHARED_MODE, follow_owner, open_file
from statelog.store.session import session_of
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog import Store
    from statelog.fleet.bases import Listed
    from statelog.fleet.head import Base
    from statelog.fleet.performing import Performer

P = ParamSpec("P")
T = TypeVar("T")

_LOOKS_MAX = 50
_PAUSE_S = 0.1


def _naming(
    work: Callable[Concatenate[Performer, P], T],
) -> Callable[Concatenate[Performer, P], T]:
    """Have errors name a damaged object as the storage does: with the folder of its store."""

    @wraps(work)
    def named(performer: Performer, /, *args: P.args, **options: P.kwargs) -> T:
        try:
            return work(performer, *args, **options)
        except CorruptionError as error:
            name = error.facts.get("object")
            if not isinstance(name, str) or name.startswith(performer.folder):
                raise
            whole = performer.folder + name
            raise CorruptionError(error.message.replace(name, whole), **{**error.facts, "object": whole}) from error

    return named


def head_to_read(performer: Performer, *, is_earlier: bool = False) -> Head | None:
    """Return a head whose tail is closed where its segments end now; None if there is none.

    Nothing is read while the store is being taken over (F3). What was listed counts if the head has stayed (F2).

    Args:
        performer: of the store.
        is_earlier: what is read may end before the tail does: then it is read also if nobody can take the store over.

    Raises:
        RemoteError: it is being taken over all the time. CorruptionError: it is damaged. Facts: object.

    """
    head = None
    for _again in range(_LOOKS_MAX):
        head = _read_head(performer)
        if head is None:
            return None
        if head.state == "opening":
            time.sleep(_PAUSE_S)
            continue
        if not head.tail or head.tail[-1].last is not None:
            return head
        closed = _closed(performer, head)
        now = _read_head(performer)
        if now is not None and replace(now, beat=head.beat) == head:
            return closed
    if is_earlier and head is not None and head.state == "opening":
        return _closed(performer, head, is_last_late=True)
    message = f"the store {performer.folder.rstrip('/')!r} is being taken over"
    raise RemoteError(message, folder=performer.folder)


def _read_head(performer: Performer) -> Head | None:
    found = performer.read(names.HEAD)
    return None if found is None else decode(performer.folder + names.HEAD, found.data)


def _closed(performer: Performer, head: Head, *, is_last_late: bool = False) -> Head:
    """Return a head with its tail closed where its segments end now: before the last one, if that may be a late one.

    One that is missing is missed by who reads it.
    """
    going_on = head.tail[-1]
    before = names.segment(going_on.epoch, going_on.first - 1)
    there = [names.number_of(name) for name in performer.names(names.segments(going_on.epoch), before)]
    last = max([going_on.first - 1, *there]) - is_last_late
    while going_on.first <= last in there:
        if performer.read_all([names.segment(going_on.epoch, last)]) != [protocol.END]:
            break
        last -= 1
    return head.cut_at(last, None)


def segments_of(head: Head) -> list[str]:
    """Return the names of the segments of a tail, but of a stretch that goes on."""
    return [
        names.segment(stretch.epoch, number)
        for stretch in head.tail
        if stretch.last is not None
        for number in range(stretch.first, stretch.last + 1)
    ]


def cut_here(store: Store) -> Cut:
    """Return where a store's log ends."""
    lsn = store.last_lsn
    return Cut(lsn, chain_at(store, lsn) or b"")


def chain_at(store: Store, lsn: int) -> bytes | None:
    """Return the chain digest at an LSN, None if the log does not reach to it."""
    target = io.BytesIO()
    try:
        store.export(target, since=lsn)
    except UsageError:
        return None
    return FrameReader(io.BytesIO(target.getvalue())).header.chain


@_naming
def catch_up(performer: Performer, head: Head, store: Store, *, upto: int | None = None) -> None:
    """Take into a store what the tail of a head has behind its end.

    Raises:
        ConflictError: the store is no earlier state of the one that was shipped.
        CorruptionError: a segment is missing or damaged. Facts: object.

    """
    if head.cut is not None and head.cut == cut_here(store) and upto is None:
        return
    tail = _Known(performer, segments_of(head))
    wanted = tail.behind(store.last_lsn)
    if wanted:
        store.import_(segments.Tail(wanted, performer.read_segments), upto=upto)


class _Known:
    """The names of a tail's segments, of which the last ones are asked first: a copy most often lacks only these."""

    def __init__(self, performer: Performer, all_names: list[str]) -> None:
        self._performer = performer
        self._names = all_names

    def behind(self, lsn: int) -> list[str]:
        """Return the names of the segments that hold what is behind an LSN, and of the one that joins it."""
        first = len(self._names)
        while first > 0:
            name = self._names[first - 1]
            [data] = self._performer.read_segments([name])
            first -= 1
            if segments.about(name, data).since <= lsn:
                break
        return self._names[first:]


@_naming
def catch_up_over_bases(performer: Performer, head: Head, store: Store) -> None:
    """Take into a store what it lacks, also if its end is before the base of a head.

    Raises:
        ExpiredError: what lies between is not kept any more. Facts: oldest. As `catch_up`.

    """
    heads = [head]
    while (base := heads[-1].base) is not None and base.lsn > store.last_lsn:
        before = _kept(performer, listed_of(performer, base))
        if before is None:
            message = f"what came behind LSN {store.last_lsn} is not kept any more: follow the store anew"
            raise ExpiredError(message, oldest=base.lsn)
        heads.append(before)
    for each in reversed(heads):
        catch_up(performer, each, store)


@_naming
def restore(performer: Performer, head: Head, path: Path, *, at: int | datetime | None = None) -> None:
    """Make a new file of what a head leads to.

    Args:
        performer: of the store.
        head: read just now.
        path: where there is no file.
        at: an LSN, or a time, at which it is to end; the end of the tail if left out.

    Raises:
        UsageError: `at` is none, or an LSN behind the end. Facts: argument, value.
        ExpiredError: `at` is before what is kept. Facts: oldest.
        CorruptionError: a piece or a segment is missing or damaged. Facts: object.
        ForgeryError: the pieces and segments have another history than the head names. Facts: object.
        AlreadyExistsError: there is a file at that path.

    """
    if os.path.lexists(path):
        raise AlreadyExistsError(f"there is something at {path} already", path=str(path))
    if at is not None:
        _check_at(at)
        head = _head_at(performer, head, at)
    logs = _make(performer, head, path)
    try:
        with open_for_records(path, durability="interval", key=performer.key) as store:
            upto = None if at is None else _lsn_at(performer, head, at)
            all_names = logs + (segments_of(head) if upto is None else _segments_upto(performer, head, upto))
            if all_names and (upto is None or upto > store.last_lsn):
                store.import_(segments.Tail(all_names, performer.read_segments), upto=upto)
            if upto is not None and upto > store.last_lsn:
                _check_reached(performer, all_names, store.last_lsn, upto)
            if upto is not None and all_names:
                _name_removed(performer, all_names[-1], store)
            if at is None:
                _check_shipped(performer, head, store)
            store.flush()
    except BaseException:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}-lock").unlink(missing_ok=True)
        raise


def _name_removed(performer: Performer, name: str, store: Store) -> None:
    """List redacted records in a log that ends within a segment, if the segment lists them behind the end."""
    [data] = performer.read_segments([name])
    removed = segments.removed_behind(name, data, store.last_lsn)
    if removed:
        name_again(session_of(store).owner, removed)


def _check_shipped(performer: Performer, head: Head, store: Store) -> None:
    """Compare a restored log with the chain digest that the head has of its end. A tail that goes on has none."""
    cut = head.cut
    found = None if cut is None else chain_at(store, cut.lsn)
    if cut is None or found == cut.chain:
        return
    name = performer.folder + names.HEAD
    message = f"what was restored has another history than {name} names: at LSN {cut.lsn}, or it ends before that"
    facts = {"lsn": cut.lsn, "expected": cut.chain.hex(), "found": found and found.hex()}
    raise ForgeryError(message, path=str(store.path), object=name, **facts)


def _check_at(at: object) -> None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            message = f"a time to go back to has a zone, as datetime.now(UTC) has, not {at.isoformat()!r}"
            raise UsageError(message, argument="at", value=at)
    elif type(at) is not int or at < 0:
        message = f"at is an LSN from 0 on, or a datetime with its zone, not {at!r}"
        raise UsageError(message, argument="at", value=at)


def _check_reached(performer: Performer, all_names: list[str], end: int, upto: int) -> None:
    """Refuse an LSN that is behind the end. One amid a transaction is not: the store ends before that."""
    if all_names:
        [data] = performer.read_segments(all_names[-1:])
        end = segments.about(all_names[-1], data).last
    if upto > end:
        message = f"there is no LSN {upto} outside yet: the last one is {end}"
        raise UsageError(message, argument="at", value=upto, last=end)


def _make(performer: Performer, head: Head, path: Path) -> list[str]:
    """Make the file of the image that a head's base has; return the names of the base's logs."""
    listed = None if head.base is None else listed_of(performer, head.base)
    if listed is None or not listed.size_bytes:
        create_store(path, head.store_id, key=performer.key)
    else:
        with new_file(path) as descriptor:
            bases.join(listed, descriptor, performer.read_all)
    return [] if listed is None else [log.name for log in listed.logs]


def listed_of(performer: Performer, base: Base) -> Listed:
    """Return what the list of a base says. Raises CorruptionError: it is missing or damaged. Facts: object."""
    name = bases.list_name(base)
    [data] = performer.read_all([name])
    return bases.decode(name, data)


def _head_at(performer: Performer, head: Head, at: int | datetime) -> Head:
    """Return the head, this one or one before, whose base is not behind a moment."""
    while head.base is not None:
        name = bases.list_name(head.base)
        [data] = performer.read_all([name])
        listed = bases.decode(name, data)
        if (head.base.lsn <= at) if isinstance(at, int) else (listed.time_us <= _to_us(at)):
            return head
        before = _kept(performer, listed)
        if before is None:
            made = datetime.fromtimestamp(listed.time_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
            message = (
                f"what was at {at} is not kept any more: the oldest that is kept is LSN {head.base.lsn}, of {made}"
            )
            raise ExpiredError(message, at=at, oldest=head.base.lsn)
        head = before
    return head


def _kept(performer: Performer, listed: Listed) -> Head | None:
    """Return the head that a base has taken the place of, None if what it leads to is not kept any more."""
    before = decode(names.HEAD, listed.before)
    first = [*segments_of(before)[:1], *([bases.list_name(before.base)] if before.base else [])]
    return before if None not in performer.archive.read_all([performer.folder + each for each in first]) else None


def _segments_upto(performer: Performer, head: Head, lsn: int) -> list[str]:
    """Return the names of the segments that hold what is up to an LSN: what is behind it may be damaged."""
    found: list[str] = []
    last = 0 if head.base is None else head.base.lsn
    for name in segments_of(head):
        if last >= lsn:
            break
        [data] = performer.read_segments([name])
        last = segments.about(name, data).last
        found.append(name)
    return found


def _lsn_at(performer: Performer, head: Head, at: int | datetime) -> int:
    if isinstance(at, int):
        return at
    last = 0 if head.base is None else head.base.lsn
    for name in segments_of(head):
        [data] = performer.read_segments([name])
        last = segments.last_lsn_at(name, data, _to_us(at))
        if last < segments.about(name, data).last:
            break
    return last


def _to_us(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


def set_aside(path: Path, epoch: int) -> Path:
    """Move a local file aside that has what was never shipped; return where it lies."""
    target = path.with_name(f"{path.name}-stranded-{epoch}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}-stranded-{epoch}-{number}")
    path.rename(target)
    return target


@_naming
def bring_here(performer: Performer, head: Head, path: Path) -> Path | None:
    """Have a file at a path that has all that a head leads to.

    What it has behind that stays: it was not shipped yet. If another has shipped something else since, the file is set
    aside; returns where it lies then.

    Raises:
        As `restore`.

    """
    if not path.exists():
        restore(performer, head, path)
        return None
    _take_fence_off(performer, path)
    with open_for_records(path, key=performer.key) as store:
        found = store_id(store)
    if found in head.gone:  # deleted, by another machine
        stranded = set_aside(path, head.epoch)
        restore(performer, head, path)
        return stranded
    with open_for_records(path, key=performer.key) as store:
        if found != head.store_id:
            message = f"{path} is another store than {performer.folder.rstrip('/')!r} of this fleet: move it away"
            raise ConflictError(message, path=str(path), object=performer.folder)
        try:
            catch_up(performer, head, store)
            if head.cut is None or chain_at(store, head.cut.lsn) == head.cut.chain:
                return None
        except (ConflictError, CorruptionError) as error:  # a base lies between, or they differ
            if "object" in error.facts:  # of the storage, not of the file here
                raise
    return start_over(performer, head, path)


@_naming
def start_over(performer: Performer, head: Head, path: Path) -> Path | None:
    """Put what a head leads to in the place of a file. If the file has something else, it is set aside: returns where.

    Raises:
        As `restore`.

    """
    with statelog.open(path, read_only=True, key=performer.key) as store:
        here = cut_here(store)
    fresh = path.with_name(f".{path.name}.restored")
    fresh.unlink(missing_ok=True)
    restore(performer, head, fresh)
    with statelog.open(fresh, read_only=True, key=performer.key) as store:
        is_earlier = chain_at(store, here.lsn) == here.chain
    _follow_mode(fresh, path)
    aside = None if is_earlier else set_aside(path, head.epoch)
    fresh.replace(path)
    fresh.with_name(f"{fresh.name}-lock").unlink(missing_ok=True)
    return aside


def remove_leftovers(path: Path) -> None:
    """Remove what a process that ended too early has left beside a store's file: a copy of it, made for a while."""
    for what in ("base", "restored", "unfenced"):
        for ending in ("", "-lock"):
            path.with_name(f".{path.name}.{what}{ending}").unlink(missing_ok=True)


def store_id(store: Store) -> bytes:
    """Return the id of an open store."""
    return session_of(store).owner.store_file.lmdb_file.store_id


def _take_fence_off(performer: Performer, path: Path) -> None:
    """Put an image in the place of a file that was fenced, and that nobody has open."""
    with open_for_records(path, key=performer.key) as store:
        if not store.fenced:
            return
        temporary = path.with_name(f".{path.name}.unfenced")
        temporary.unlink(missing_ok=True)
        store.image(temporary)
    _follow_mode(temporary, path)
    temporary.replace(path)


def _follow_mode(fresh: Path, path: Path) -> None:
    """Give a new file the owner and the mode of the file that it replaces."""
    status = path.stat()
    descriptor = open_file(fresh, os.O_RDONLY)
    try:
        follow_owner(descriptor, status, status.st_mode & SHARED_MODE)
    finally:
        os.close(descriptor)


def now_us() -> int:
    """Return the time, in microseconds since 1970."""
    return time.time_ns() // 1000
