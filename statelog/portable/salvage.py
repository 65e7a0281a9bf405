"""Make a new store from the intact records of a damaged file.

Every record with a valid checksum keeps its LSN, so that locators, ids and tags stay valid. Stand-in records replace
missing ones. If found records need a thread or branch whose beginning is lost, a stand-in begins it, under its name in
the index or a new name. Other stand-ins are empty. From the first stand-in on, the chain digests differ from those of
the damaged store, because the lost contents are unknown.

A checkpoint is kept if all its nodes are intact. Otherwise its event is removed, as if it had expired, but nodes that
other checkpoints may need are kept. So the new store passes `verify`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import (
    AlreadyExistsError,
    FormatError,
    HeaderLostError,
    NewerFormatError,
    StatelogError,
    StoreKeyError,
    StoreLockedError,
)
from statelog.format import cbor, keys
from statelog.format.mac import as_store_key
from statelog.format.record import (
    NO_DIGEST,
    TYPE_CHECKPOINT,
    TYPE_FORK,
    Record,
    Redacted,
    decode_record,
    encode_record,
    encode_short_record,
    record_chain_digest,
    redact_record,
    with_previous_chain,
)
from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.care.removal_lists import name_again
from statelog.log.care.replay import open_engine
from statelog.log.care.vacuum import NOBODY
from statelog.log.events import Event, ForkEvent, LoanEvent, ThreadEvent
from statelog.log.kinds.table import kind_of, kind_of_event, owner_of, version_in
from statelog.portable.bodies import read_event
from statelog.portable.events import check_event
from statelog.portable.node_checks import Checked, RecordChecker
from statelog.portable.nodes import read_rows
from statelog.portable.overlay import Overlay
from statelog.portable.pages import PageFile
from statelog.portable.record_search import FoundRecord, RecordFinder, find_mac
from statelog.portable.salvage_plan import SalvagePlan, make_plan
from statelog.portable.salvage_report import Loss, SalvageReport
from statelog.portable.unflushed import read_unflushed
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.descriptors import open_file
from statelog.storage.file.failures import translate_os
from statelog.storage.file.locks import FileLocks
from statelog.storage.file.sidecar_files import lock_path
from statelog.storage.mapped_pages import MappedPages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from statelog.log.engine import Engine
    from statelog.storage.write_transaction import WriteTransaction

    Progress = Callable[[int, int], None]

_BATCH_SIZE_BYTES = 4 * 1024 * 1024
_BATCH_RECORDS = 512
_TOUCHED_SIZE_BYTES = 16_384
"""The estimated number of bytes that the check of a record reads from the new store."""


class _Piece(NamedTuple):
    """A record to be written to the new store."""

    data: bytes
    record: Record
    event: Event | Redacted


def salvage(
    damaged: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    max_size_bytes: int = MAX_SIZE_BYTES_DEFAULT,
    key: object = None,
    anchor: bytes | None = None,
) -> SalvageReport:
    """Make a new store from the intact records of a damaged file, and report what is lost.

    The damaged file is only read, page by page and without LMDB, which a damaged file can crash.

    Args:
        damaged: the file.
        new: path of the new store, which must not exist yet. The new store gets its own store id.
        progress: called with (steps done, total steps), for each part of the work.
        max_size_bytes: quota of the new store.
        key: the key of the damaged store, as for `statelog.open`. The new store has the same key.
            Records with a wrong MAC are lost.
        anchor: any anchor of the damaged store. It is needed if the store has a key and its header
            is lost.

    Raises:
        AlreadyExistsError: a file exists at `new`. Facts: path.
        FormatError: the damaged file has no record or other part of a store. Facts: path.
        NewerFormatError: the format of the file is newer. Facts: path, needed, supported.
        StoreLockedError: another process has the file open. Facts: path.
        StoreKeyError: the key is missing, or is not the damaged store's key. Facts: path.
        HeaderLostError: a key is given, but there is no header and no `anchor`. Facts: path.
        StoreNotFoundError, AccessError, StoreFullError, StorageError: the operating system reports an
        error, or the new store has no room.
    """
    damaged, new = Path(damaged), Path(new)
    if os.path.lexists(new):
        message = f"a file exists at {new}"
        raise AlreadyExistsError(message, path=str(new))
    try:
        with _opened(damaged) as descriptor:
            pages = PageFile(descriptor, read_unflushed(damaged, descriptor))
            mac = find_mac(pages, None if key is None else as_store_key(key), anchor)
            finder = RecordFinder(pages, mac)
            finder.find(progress)
            chosen, last = finder.choose()
            if not chosen and finder.committed_last is None:
                message = f"{damaged} contains no part of a statelog store"
                raise FormatError(message, path=str(damaged))
            plan = make_plan(pages, finder, chosen, last, progress)
            options = {"max_size_bytes": max_size_bytes, "key": key}
            return _write(damaged, new, finder, chosen, plan, options, progress)
    except (HeaderLostError, NewerFormatError, StoreKeyError) as error:
        message = f"{damaged}: {error.message}"
        raise type(error)(message, **{**error.facts, "path": str(damaged)}) from None
    except OSError as error:
        raise translate_os(error, path=Path(error.filename) if error.filename else damaged) from error


@contextlib.contextmanager
def _opened(damaged: Path) -> Iterator[int]:
    """Open the damaged file, with an exclusive lock if possible."""
    try:
        descriptor = open_file(damaged, os.O_RDWR | os.O_NONBLOCK)
    except PermissionError:
        descriptor = open_file(damaged, os.O_RDONLY | os.O_NONBLOCK)
    try:
        locks = FileLocks(descriptor, damaged)
        with contextlib.suppress(OSError):  # If the lock file is not writable, continue without a lock.
            if not locks.try_exclusive() and locks.supported:
                message = f"{damaged} is open in a process: close it there first"
                raise StoreLockedError(message, path=str(damaged))
        yield descriptor
    finally:
        os.close(descriptor)


def _write(
    damaged: Path,
    new: Path,
    finder: RecordFinder,
    chosen: dict[int, FoundRecord],
    plan: SalvagePlan,
    options: dict[str, Any],
    progress: Progress | None,
) -> SalvageReport:
    """Write the new store to a temporary file, and link this file to `new` when it is complete."""
    report = SalvageReport(str(damaged), str(new), plan.last, end_is_known=finder.committed_last is not None)
    temporary = new.with_name(f".{new.name}.{secrets.token_hex(8)}.salvaging")
    try:
        engine = open_engine(temporary, **options)
        try:
            _Writer(engine, finder, chosen, plan, report).run(progress)
        finally:
            engine.close()
        os.link(temporary, new)  # Unlike a rename, a link cannot replace an existing file at `new`.
        sync_directory(new.parent)
    except FileExistsError as error:
        message = f"a file exists at {new}"
        raise AlreadyExistsError(message, path=str(new)) from error
    except OSError as error:
        raise translate_os(error, path=new) from error
    except StatelogError as error:
        if not str(error.facts.get("path")).endswith(temporary.name):
            raise
        message = error.message.replace(temporary.name, new.name)  # Hide the temporary name from the caller.
        raise type(error)(message, **{**error.facts, "path": str(new)}) from error
    finally:
        for name in (temporary, lock_path(temporary)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                name.unlink()
    return report


class _Writer:
    """Writes the records of the new store in order of LSN."""

    def __init__(
        self,
        engine: Engine,
        finder: RecordFinder,
        chosen: dict[int, FoundRecord],
        plan: SalvagePlan,
        report: SalvageReport,
    ) -> None:
        self._engine = engine
        self._finder = finder
        self._chosen = chosen
        self._plan = plan
        self._report = report
        self._removes = False
        """Whether a record had to be written without its event or without some nodes."""
        self._are_listed = False
        """Whether a stand-in since the last record with nodes has listed all nodes that may be borrowed."""
        self._checked = Checked()
        self._mapped = MappedPages(engine.store_file.lmdb_file)

    def run(self, progress: Progress | None) -> None:
        """Write all records up to the last found record or planned stand-in."""
        stop = max([*self._chosen, *self._plan.stand_ins], default=0)
        lsn = 1
        while lsn <= stop:
            lsn = self._engine.care(partial(self._write_some, start=lsn, stop=stop), may_use_reserve=False)
            if progress is not None:
                progress(lsn - 1, stop)
        if self._plan.lost or self._removes:
            name_again(self._engine)
        self._report.finish(self._chosen, self._plan)

    def _write_some(self, transaction: WriteTransaction, *, start: int, stop: int) -> int:
        """Write records from `start` on in one transaction. Return the next LSN."""
        overlay = Overlay(transaction)
        checker = RecordChecker(overlay.get_log, self._checked)
        end = read_log_end(transaction)
        losses: list[Loss] = []
        names: dict[int, str] = {}
        size_bytes = 0
        lsn = start
        while lsn <= stop and lsn - start < _BATCH_RECORDS and size_bytes < _BATCH_SIZE_BYTES:
            piece = self._piece(overlay, checker, lsn, end, losses)
            piece = _chained(piece, end)
            overlay.stage(piece.data, piece.record, piece.event, read_rows(piece.data, piece.record))
            end = LogEnd(lsn, record_chain_digest(piece.data, piece.record, end.chain), piece.record.time_us)
            if type(piece.event) is ThreadEvent:
                names[lsn] = piece.event.thread_id
            size_bytes += len(piece.data)
            lsn += 1
        overlay.flush(transaction)
        self._mapped.read(size_bytes + (lsn - start) * _TOUCHED_SIZE_BYTES)
        self._report.add(losses, names)
        return lsn

    def _piece(self, overlay: Overlay, checker: RecordChecker, lsn: int, end: LogEnd, losses: list[Loss]) -> _Piece:
        """Return the record of an LSN, or its stand-in."""
        found = self._chosen.get(lsn)
        if found is not None:
            data = self._finder.read(found)
            record = decode_record(data, lsn)
            event = read_event(record)
            version = version_in(event)
            if version is None or version.time_us > overlay.last_time_us(version.thread):
                return self._recovered(overlay, checker, _Piece(data, record, event), losses)
            losses.append(Loss.of(lsn, event, "its time is not later than that of the version before it"))
        stand_in = self._plan.stand_ins.get(lsn)
        if stand_in is not None:
            with contextlib.suppress(StatelogError):
                return _stand_in(overlay, lsn, end, stand_in)
        body = cbor.encode([NOBODY, NO_DIGEST, self._perhaps_borrowed(overlay)])
        data = encode_short_record(
            TYPE_CHECKPOINT, 0, lsn, end.time_us + 1, previous_chain=end.chain, body=body, nodes={}
        )
        return _decoded(data, lsn)

    def _perhaps_borrowed(self, overlay: Overlay) -> list[bytes]:
        """Return the digests that a lost record may have listed as borrowed. Retention then keeps the nodes (V2).

        Only the first record that borrows a node lists it, so the records that were found do not show who uses it.
        """
        if self._are_listed:
            return []
        self._are_listed = True
        rows = overlay.scan_index(keys.encode_digest_key(b""))
        return [key[1:] for key, payload in rows if not keys.decode_place(payload).is_borrowed]

    def _recovered(self, overlay: Overlay, checker: RecordChecker, piece: _Piece, losses: list[Loss]) -> _Piece:
        """Return a found record without the parts that are no longer valid."""
        data, record, event = piece
        lsn = record.lsn
        checker.begin(lsn, data)
        rows = read_rows(data, record)
        self._are_listed = self._are_listed and not rows
        why = ""
        for number, row in rows.items():
            try:
                checker.check(number, row)
            except StatelogError as error:
                why = why or error.message
        if isinstance(event, Redacted):
            if not checker.unsound:
                return piece
            self._removes = True
            return _redacted(piece, rows.keys() - checker.unsound)
        if type(event) is ForkEvent:
            piece = _forked(overlay, piece, event)
            event = piece.event
            assert not isinstance(event, Redacted)
        try:
            if not why:
                checker.check_roots(event)
                check_event(overlay.view, event, lsn, self._checked.checkpoints)
        except StatelogError as error:
            why = error.message
        if not why:
            return piece
        losses.append(Loss.of(lsn, event, why))
        self._removes = True
        return _redacted(_Piece(data, record, event), rows.keys() - checker.unsound)


def _decoded(data: bytes, lsn: int) -> _Piece:
    record = decode_record(data, lsn)
    return _Piece(data, record, read_event(record))


def _redacted(piece: _Piece, alive: Collection[int]) -> _Piece:
    """Return a record without its event and with only the nodes in `alive`. Its chain digest stays the same."""
    data, record, event = piece
    owner, field = owner_of(event, record.lsn), kind_of(record).borrowed_field
    return _decoded(redact_record(data, record.lsn, owner, alive=alive, borrowed_field=field), record.lsn)


def _chained(piece: _Piece, end: LogEnd) -> _Piece:
    """Return the record with the chain digest of `end` as its previous chain digest."""
    if piece.record.previous_chain in (b"", end.chain):
        return piece
    return _decoded(with_previous_chain(piece.data, end.chain), piece.record.lsn)


def _stand_in(overlay: Overlay, lsn: int, end: LogEnd, event: ThreadEvent | ForkEvent | LoanEvent) -> _Piece:
    """Return a stand-in for a lost record. Raises CorruptionError if the event is not possible here."""
    kind = kind_of_event(event)
    data, _chain = encode_record(
        kind.type, lsn=lsn, time_us=end.time_us + 1, previous_chain=end.chain, body=kind.encode(event, lsn)
    )
    piece = _decoded(data, lsn)
    if type(event) is ForkEvent:
        piece = _forked(overlay, piece, event)
    assert not isinstance(piece.event, Redacted)
    check_event(overlay.view, piece.event, lsn, {})
    return piece


def _forked(overlay: Overlay, piece: _Piece, event: ForkEvent) -> _Piece:
    """Return the record that begins a branch. If its base version is lost, use the last version that was not lost.

    The lost versions in between then belong to the branch. Otherwise a later commit to the parent could reuse one of
    their numbers.
    """
    if not overlay.view.is_alive(event.thread):
        return piece
    head = overlay.view.head_version(event.thread, min(event.parent_branch, event.branch - 1))
    if event.base_version <= head or head < 0:
        return piece
    record = piece.record
    data, _chain = encode_record(
        TYPE_FORK,
        lsn=record.lsn,
        time_us=record.time_us,
        previous_chain=record.previous_chain,
        body=cbor.encode(list(event._replace(base_version=head))),
        flags=record.flags,
    )
    return _decoded(data, record.lsn)
