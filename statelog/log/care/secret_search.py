"""Searches all versions of a store for secrets, including values that were replaced later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from statelog.errors import ThreadNotFoundError, UsageError
from statelog.guard.search import SecretFinder, SecretFound, Sighting
from statelog.log.care.secret_scan import Scanned, Scanner
from statelog.log.events import CheckpointEvent
from statelog.log.kinds.checkpoints import read_version
from statelog.log.kinds.entries import OWN_IDS, EntryEvent
from statelog.log.nodes import NodeCache, read_node
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages
from statelog.tree.node import REF_ROOT, ValueSlot, Workspace
from statelog.tree.value import open_root, read_item, text_item

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.guard.detector import Detector
    from statelog.log.engine import Engine
    from statelog.log.transaction import IndexedLog

    Known = tuple[tuple[str, ...], str, str]
    """The path, rule and fingerprint that identify a secret."""


def find_secrets(engine: Engine, detector: Detector, threads: Iterable[str] | None = None) -> list[SecretFound]:
    """Return the secrets in a store, in the order of the log. See `Store.find_secrets`."""
    finder = SecretFinder(detector)
    found: list[SecretFound] = []
    pages = MappedPages(engine.store_file.lmdb_file)
    with engine.store_file.read() as transaction:
        view = View(transaction)
        wanted = None if threads is None else _owners(view, threads)
        scanner = Scanner(transaction, finder, is_thorough=False)
        report = _Report(view, finder, detector)
        for _lsn, _data, scanned in scanner.all(transaction, pages):
            if scanned is not None and (wanted is None or scanned.owner in wanted):
                found += report.of(scanned)
            finder.found.clear()
    return found


def sightings_in(transaction: IndexedLog, detector: Detector, lsns: Iterable[int]) -> list[tuple[int, Sighting]]:
    """Return the secrets in the records `lsns`, each with its LSN. Skip LSNs without a record."""
    finder = SecretFinder(detector)
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
    if isinstance(threads, str | bytes) or not hasattr(threads, "__iter__"):
        message = f"threads must be a list of thread ids, not {threads!r}"
        raise UsageError(message, argument="threads")
    owners = set()
    for thread in threads:
        if not isinstance(thread, str):
            message = f"threads must be a list of thread ids, but one item is {thread!r}"
            raise UsageError(message, argument="threads", value=thread)
        lsn = view.thread_lsn(thread)
        if lsn is None:
            message = f"there is no thread {thread!r}"
            raise ThreadNotFoundError(message, thread=thread)
        owners.add(lsn)
    return owners


class _Report:
    """Turns matches into `SecretFound` objects. Each secret is reported once, for the version that wrote it."""

    def __init__(self, view: View, finder: SecretFinder, detector: Detector) -> None:
        self._view = view
        self._finder = finder
        self._detector = detector
        self._workspace = Workspace(partial(read_node, view.transaction, NodeCache()))
        self._seen: set[tuple[int, Known]] = set()
        """The secrets reported so far, each with its thread."""

    def of(self, scanned: Scanned) -> list[SecretFound]:
        """Return the secrets of a record, except those that its version only copied from its parent.

        A version that changes part of a channel stores some unchanged parts again. A text counts as unchanged if the
        parent has an equal text with the secret at the same path.
        """
        if not self._finder.found:
            return []
        thread, version = self._place(scanned)
        found: dict[Known, SecretFound] = {}
        wholes: dict[Known, set[int]] = {}
        for each in self._finder.found:
            wholes.setdefault((each.path, each.rule, each.fingerprint), set()).add(each.whole)
            path = self._finder.shown(".".join(each.path))
            found[each.path, each.rule, each.fingerprint] = SecretFound(
                None if thread is None else self._finder.shown(thread),
                version,
                path,
                each.rule,
                each.fingerprint,
                scanned.record.lsn,
            )
        event = scanned.event
        if type(event) is CheckpointEvent and event.parent_branch is not None:
            again = {key for key in found if (event.thread, key) in self._seen}
            for channel in {path[0] for path, _rule, _fingerprint in again}:
                before = self._before(event, channel)
                grows = self._is_added_to(event.thread, channel)
                for key in again & before.keys():
                    if grows or wholes[key] <= before[key]:
                        del found[key]
        self._seen.update((scanned.owner, key) for key in found)
        return list(found.values())

    def _place(self, scanned: Scanned) -> tuple[str | None, int | None]:
        row = self._view.find_thread(scanned.owner) if scanned.owner else None
        thread = None if row is None or row.id in OWN_IDS else row.id
        event = scanned.event
        if type(event) is CheckpointEvent:
            return thread, event.version
        return thread, scanned.record.lsn if type(event) is EntryEvent else None

    def _is_added_to(self, thread: int, channel: str) -> bool:
        """Return True if a channel's reducer is `operator.add`, so that a version extends the text with the secret."""
        row = self._view.find_thread(thread)
        return row is not None and row.specs.get(channel) == "add"

    def _before(self, event: CheckpointEvent, channel: str) -> dict[Known, set[int]]:
        """Return the secrets of a channel in the parent version, each with the hashes of the texts that contain it."""
        assert event.parent_branch is not None
        assert event.parent_version is not None
        entry = self._view.entry(event.thread, event.parent_branch, event.parent_version)
        parent = None if entry is None else read_version(self._view, entry.lsn)
        if parent is None:
            return {}
        root = ValueSlot(REF_ROOT + parent.root_digest, parent.root_lsn, parent.root_node)
        _position, slot = open_root(self._workspace, root).find(text_item(channel.encode()))
        finder = SecretFinder(self._detector)
        if slot is not None:
            finder.look(read_item(self._workspace, slot), (channel,))
        wholes: dict[Known, set[int]] = {}
        for each in finder.found:
            wholes.setdefault((each.path, each.rule, each.fingerprint), set()).add(each.whole)
        return wholes
