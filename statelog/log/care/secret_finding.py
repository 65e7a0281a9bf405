"""Finds the secrets that were written before: in every version, also in values that were replaced since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import ThreadNotFoundError
from statelog.guard.search import Finder, SecretFound, Sighting
from statelog.log.care.secret_scan import REMOVED, Scanned, Scanner
from statelog.log.events import CheckpointEvent
from statelog.log.kinds.entries import OWN_IDS, EntryEvent
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.guard.hook import Redactor
    from statelog.log.engine import Engine
    from statelog.log.transaction import Transaction

    Known = set[tuple[tuple[str, ...], str, str]]
    """Path, rule and fingerprint of each secret."""

_BATCH_SIZE_BYTES = 512 * 1024


def find_secrets(engine: Engine, redactor: Redactor, threads: Iterable[str] | None = None) -> list[SecretFound]:
    """Return the secrets in a store, in the order of the log; see `Store.find_secrets`."""
    finder = Finder(redactor)
    found: list[SecretFound] = []
    pages = MappedPages(engine.store_file.lmdb_file)
    with engine.store_file.read() as transaction:
        view = View(transaction)
        wanted = None if threads is None else _owners(view, threads)
        scanner = Scanner(transaction, finder, is_thorough=False)
        report = _Report(view)
        for batch in transaction.log_batches(_BATCH_SIZE_BYTES):
            for lsn, data in batch:
                scanned = scanner.scan(lsn, bytes(data))
                pages.read(len(data))
                if scanned is not None and (wanted is None or scanned.owner in wanted):
                    found += report.of(finder, scanned)
                finder.found.clear()
    return found


def sightings_in(transaction: Transaction, redactor: Redactor, lsns: Iterable[int]) -> list[tuple[int, Sighting]]:
    """Return the secrets in some records, with their LSNs. LSNs without a record are left out."""
    finder = Finder(redactor)
    scanner = Scanner(transaction, finder, is_thorough=False)
    found: list[tuple[int, Sighting]] = []
    for lsn in lsns:
        data = transaction.get_log(lsn)
        if data is not None:
            scanner.scan(lsn, bytes(data))
        found += [(lsn, each) for each in finder.found]
        finder.found.clear()
    return found


def _owners(view: View, threads: Iterable[str]) -> set[int]:
    owners = set()
    for thread in threads:
        lsn = view.thread_lsn(thread)
        if lsn is None:
            message = f"there is no thread {thread!r}"
            raise ThreadNotFoundError(message, thread=thread)
        owners.add(lsn)
    return owners


class _Report:
    """Turns sightings into what users see, each secret once for the version that wrote it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._before: dict[tuple[int, int, str], Known] = {}
        """The secrets in what a version has written last, by thread, branch and channel. A later version that changes a
        part of the channel copies others, which it has not written."""

    def of(self, finder: Finder, scanned: Scanned) -> list[SecretFound]:
        """Return the secrets of a record, without those that the version before has written in the same place."""
        record, event = scanned.record, scanned.event
        thread, version = self._place(scanned)
        found: dict[Any, SecretFound] = {}
        for each in finder.found:
            key = (each.path, each.rule, each.fingerprint)
            path = finder.shown(".".join(each.path))
            found[key] = SecretFound(
                None if thread is None else finder.shown(thread), version, path, each.rule, each.fingerprint, record.lsn
            )
        if type(event) is CheckpointEvent:
            for key in self._copied(event, found):
                del found[key]
        return list(found.values())

    def _place(self, scanned: Scanned) -> tuple[str | None, int | None]:
        row = self._view.find_thread(scanned.owner) if scanned.owner else None
        thread = None if row is None or row.id in OWN_IDS else row.id
        event = scanned.event
        if type(event) is CheckpointEvent:
            return thread, event.version
        return thread, scanned.record.lsn if type(event) is EntryEvent else None

    def _copied(self, event: CheckpointEvent, found: Iterable[Any]) -> Known:
        from statelog.format import cbor

        copied: Known = set()
        for channel in cbor.decode(event.written):
            known = {key for key in found if key[0][0] == channel}
            before = self._before.get((event.thread, event.branch, channel))
            if before is None and event.parent_branch is not None:
                before = self._before.get((event.thread, event.parent_branch, channel))
            copied |= known & (before or set())
            if known or before:
                self._before[event.thread, event.branch, channel] = known
        return copied


__all__ = ["REMOVED", "find_secrets", "sightings_in"]
