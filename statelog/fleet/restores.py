"""Creates a local file from a base and a tail, or brings an existing file up to date."""

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
from statelog.fleet.head import Cut, HeadContents, decode
from statelog.log.care.loans import ANYONE
from statelog.log.care.removal_lists import name_again
from statelog.log.care.vacuum import append_events
from statelog.log.events import LoanEvent
from statelog.log.kinds.table import lent_to_anyone_by, removed_by
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
    from statelog.fleet.head import BaseImage
    from statelog.fleet.requests import Performer

P = ParamSpec("P")
T = TypeVar("T")

_LOOKS_MAX = 50
_PAUSE_S = 0.1


def _naming(
    work: Callable[Concatenate[Performer, P], T],
) -> Callable[Concatenate[Performer, P], T]:
    """Decorate a function so that its errors name a damaged object in full, including the store's folder."""

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


def head_to_read(performer: Performer, *, is_earlier: bool = False) -> HeadContents | None:
    """Return the head, with its tail closed at its present last segment. Return None if there is no head.

    This waits while the store is being taken over (F3). The listed segments are valid if the head
    has not changed (F2).

    Args:
        performer: performer of the store.
        is_earlier: if the takeover hangs, return a head that ends before the last segment, instead
            of raising an error, so that the store can be read.

    Raises:
        RemoteError: the takeover did not end.
        CorruptionError: the head is damaged. Facts: object.
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


def _read_head(performer: Performer) -> HeadContents | None:
    found = performer.read(names.HEAD)
    return None if found is None else decode(performer.folder + names.HEAD, found.data)


def _closed(performer: Performer, head: HeadContents, *, is_last_late: bool = False) -> HeadContents:
    """Return the head with its tail closed at the last listed segment.

    With `is_last_late`, that segment may be too late to be valid, so the tail is closed before it. This function does
    not notice a missing segment, but the reader of the segments does.
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


def segments_of(head: HeadContents) -> list[str]:
    """Return the names of a tail's segments, except the segments of a stretch that continues."""
    return [
        names.segment(stretch.epoch, number)
        for stretch in head.tail
        if stretch.last is not None
        for number in range(stretch.first, stretch.last + 1)
    ]


def cut_here(store: Store) -> Cut:
    """Return the position at the end of a store's log."""
    lsn = store.last_lsn
    return Cut(lsn, chain_at(store, lsn) or b"")


def chain_at(store: Store, lsn: int) -> bytes | None:
    """Return the chain digest at an LSN, or None if the log ends before it."""
    target = io.BytesIO()
    try:
        store.export(target, since=lsn)
    except UsageError:
        return None
    return FrameReader(io.BytesIO(target.getvalue())).header.chain


@_naming
def catch_up(performer: Performer, head: HeadContents, store: Store) -> None:
    """Import the part of a head's tail that a store does not have.

    Raises:
        ConflictError: the store is not an earlier state of the shipped store.
        CorruptionError: a segment is missing or damaged. Facts: object.
    """
    if head.cut is not None and head.cut == cut_here(store):
        return
    tail = _TailNames(performer, segments_of(head))
    wanted = tail.behind(store.last_lsn)
    if wanted:
        store.import_(segments.Tail(wanted, performer.read_segments))


class _TailNames:
    """The names of a tail's segments. The search begins with the last ones, because a copy usually lacks only these."""

    def __init__(self, performer: Performer, all_names: list[str]) -> None:
        self._performer = performer
        self._names = all_names

    def behind(self, lsn: int) -> list[str]:
        """Return the names of the segments with records after an LSN. The first may also have earlier records."""
        first = len(self._names)
        while first > 0:
            name = self._names[first - 1]
            [data] = self._performer.read_segments([name])
            first -= 1
            if segments.about(name, data).since <= lsn:
                break
        return self._names[first:]


@_naming
def catch_up_over_bases(performer: Performer, head: HeadContents, store: Store) -> None:
    """Import what a store does not have, even if the store ends before the base of the head.

    Raises:
        ExpiredError: records that the store needs are no longer kept. Facts: oldest. Other errors
            are those of `catch_up`.
    """
    heads = [head]
    while (base := heads[-1].base) is not None and base.lsn > store.last_lsn:
        before = _kept(performer, listed_of(performer, base))
        if before is None:
            message = f"the records after LSN {store.last_lsn} were removed from the storage: follow the store again"
            raise ExpiredError(message, oldest=base.lsn)
        heads.append(before)
    for each in reversed(heads):
        catch_up(performer, each, store)


@_naming
def restore(performer: Performer, head: HeadContents, path: Path, *, at: int | datetime | None = None) -> None:
    """Write the state that a head describes to a new file.

    Args:
        performer: performer of the store.
        head: a head that was read just now.
        path: a path without a file.
        at: an LSN or a time at which the file ends; the end of the tail if left out.

    Raises:
        UsageError: `at` is invalid, or is an LSN after the end. Facts: argument, value.
        ExpiredError: `at` is earlier than the oldest state that is kept. Facts: at, oldest.
        CorruptionError: a piece or a segment is missing or damaged. Facts: object.
        ForgeryError: the history in the pieces and segments differs from the head's. Facts:
            object.
        AlreadyExistsError: a file exists at that path.
    """
    if os.path.lexists(path):
        raise AlreadyExistsError(f"a file or folder exists at {path}", path=str(path))
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
                _append_left_out(performer, all_names[-1], store)
            if at is None:
                _check_shipped(performer, head, store)
            store.flush()
    except BaseException:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}-lock").unlink(missing_ok=True)
        raise


def _append_left_out(performer: Performer, name: str, store: Store) -> None:
    """Append the removals (R2) and the loans to any thread (V2) that a segment has after the end of the restored log.

    The restored records may already be as the source had them after these events.
    """
    [data] = performer.read_segments([name])
    engine, end = session_of(store).owner, store.last_lsn
    removed: set[int] = set()
    lenders: set[int] = set()
    for event in segments.events_behind(name, data, end):
        removed.update(removed_by(event))
        lender = lent_to_anyone_by(event)
        if lender is not None and lender <= end:
            lenders.add(lender)
    if removed:
        name_again(engine, removed)
    if lenders:
        loans = [LoanEvent(ANYONE, lender, []) for lender in sorted(lenders)]
        engine.care(lambda transaction: append_events(transaction, loans))


def _check_shipped(performer: Performer, head: HeadContents, store: Store) -> None:
    """Raise ForgeryError if a restored log differs from the head's chain digest. A continuing tail has no digest."""
    cut = head.cut
    found = None if cut is None else chain_at(store, cut.lsn)
    if cut is None or found == cut.chain:
        return
    name = performer.folder + names.HEAD
    message = f"the restored history differs from {name} at LSN {cut.lsn}, or ends before that LSN"
    facts = {"lsn": cut.lsn, "expected": cut.chain.hex(), "found": found and found.hex()}
    raise ForgeryError(message, path=str(store.path), object=name, **facts)


def _check_at(at: object) -> None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            message = f"`at` must have a time zone, like datetime.now(UTC), not {at.isoformat()!r}"
            raise UsageError(message, argument="at", value=at)
    elif type(at) is not int or at < 0:
        message = f"`at` must be a non-negative LSN or a datetime with a time zone, not {at!r}"
        raise UsageError(message, argument="at", value=at)


def _check_reached(performer: Performer, all_names: list[str], end: int, upto: int) -> None:
    """Raise UsageError for an LSN after the end.

    An LSN within a transaction is allowed. The restored store then ends before that transaction.
    """
    if all_names:
        [data] = performer.read_segments(all_names[-1:])
        end = segments.about(all_names[-1], data).last
    if upto > end:
        message = f"LSN {upto} has not been shipped yet: the last shipped LSN is {end}"
        raise UsageError(message, argument="at", value=upto, last=end)


def _make(performer: Performer, head: HeadContents, path: Path) -> list[str]:
    """Write the image of a head's base to a file. Return the names of the base's logs."""
    listed = None if head.base is None else listed_of(performer, head.base)
    if listed is None or not listed.size_bytes:
        create_store(path, head.store_id, key=performer.key)
    else:
        with new_file(path) as descriptor:
            bases.join(listed, descriptor, performer.read_all)
    return [] if listed is None else [log.name for log in listed.logs]


def listed_of(performer: Performer, base: BaseImage) -> Listed:
    """Return the list of a base. Raises CorruptionError if it is missing or damaged. Facts: object."""
    name = bases.list_name(base)
    [data] = performer.read_all([name])
    return bases.decode(name, data)


def _head_at(performer: Performer, head: HeadContents, at: int | datetime) -> HeadContents:
    """Return the latest head whose base is not later than `at`: this head or an earlier one."""
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
                f"the state at {at} was removed from the storage: the oldest state is LSN {head.base.lsn}, of {made}"
            )
            raise ExpiredError(message, at=at, oldest=head.base.lsn)
        head = before
    return head


def _kept(performer: Performer, listed: Listed) -> HeadContents | None:
    """Return the head before a base, or None if the objects of that head are no longer kept."""
    before = decode(names.HEAD, listed.before)
    first = [*segments_of(before)[:1], *([bases.list_name(before.base)] if before.base else [])]
    return before if None not in performer.archive.read_all([performer.folder + each for each in first]) else None


def _segments_upto(performer: Performer, head: HeadContents, lsn: int) -> list[str]:
    """Return the names of the segments with records up to an LSN.

    Later segments are not read, because they may be damaged.
    """
    found: list[str] = []
    last = 0 if head.base is None else head.base.lsn
    for name in segments_of(head):
        if last >= lsn:
            break
        [data] = performer.read_segments([name])
        last = segments.about(name, data).last
        found.append(name)
    return found


def _lsn_at(performer: Performer, head: HeadContents, at: int | datetime) -> int:
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
    """Rename a local file that has unshipped commits. Return its new path."""
    target = path.with_name(f"{path.name}-stranded-{epoch}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}-stranded-{epoch}-{number}")
    path.rename(target)
    return target


@_naming
def bring_here(performer: Performer, head: HeadContents, path: Path) -> Path | None:
    """Bring the file at a path up to date with a head.

    Unshipped commits at the end of the file stay. If another owner has shipped different records
    since, the file is set aside, and its new path is returned.

    Raises:
        As `restore`.
    """
    if not path.exists():
        restore(performer, head, path)
        return None
    _take_fence_off(performer, path)
    with open_for_records(path, key=performer.key) as store:
        found = store_id(store)
    if found in head.gone:  # Another machine has deleted this store.
        stranded = set_aside(path, head.epoch)
        restore(performer, head, path)
        return stranded
    with open_for_records(path, key=performer.key) as store:
        if found != head.store_id:
            message = f"{path} is not the store {performer.folder.rstrip('/')!r} of this fleet: move it away"
            raise ConflictError(message, path=str(path), object=performer.folder)
        try:
            catch_up(performer, head, store)
            if head.cut is None or chain_at(store, head.cut.lsn) == head.cut.chain:
                return None
        except (ConflictError, CorruptionError) as error:
            # The missing segments were merged into a base, or the histories differ: start over.
            if "object" in error.facts:  # The error is about the storage, not about the local file.
                raise
    return start_over(performer, head, path)


@_naming
def start_over(performer: Performer, head: HeadContents, path: Path) -> Path | None:
    """Replace a file with the state that a head describes.

    A file with other commits is set aside first, and its new path is returned.

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
    """Remove temporary copies next to a store's file that a killed process has left."""
    for what in ("base", "restored", "unfenced"):
        for ending in ("", "-lock"):
            path.with_name(f".{path.name}.{what}{ending}").unlink(missing_ok=True)


def store_id(store: Store) -> bytes:
    """Return the id of an open store."""
    return session_of(store).owner.store_file.lmdb_file.store_id


def _take_fence_off(performer: Performer, path: Path) -> None:
    """Replace a fenced file, which no process has open, by its image, which is not fenced."""
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
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000
