"""Migrates matching entries of the board to the declared version of their schema."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import reducers
from statelog.board import entry_writer, reads, writes
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.log.kinds.entries import EntryAct
from statelog.log.times import now_us
from statelog.schema.value_versions import stored_version, upgraded_item
from statelog.store.arguments import check_flag
from statelog.store.checked_views import entry_seen
from statelog.store.diff import value_changes
from statelog.store.entry_versions import upgrade_of
from statelog.store.migrations import (
    DIFFERENCES_MAX,
    STORE_ERRORS,
    MigrationDifference,
    MigrationFailure,
    MigrationReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.board.entry_writer import Value
    from statelog.board.names import KeyPattern
    from statelog.log.batch import Batch
    from statelog.schema.versions import Versioned
    from statelog.store.entry_versions import EntrySchemas
    from statelog.store.session import StoreSession

_GROUP_ENTRIES_MAX = 64
_GROUP_SIZE_BYTES_MAX = 256 * 1024
"""The maximum number of entries in one transaction, and the maximum size of their new values if there are several."""

_EVEN_EXPIRED = 0
"""Scans at this time count no entry as expired. Expired entries are left out later, when they are read."""


class _Prepared(NamedTuple):
    """An entry, and its migrated value, which was computed without a lock."""

    key: str
    schema: Versioned[Any, Any]
    lsn: int
    value: Value
    size_bytes: int


def migrate_entries(
    session: StoreSession,
    pattern: KeyPattern,
    agent: str | None,
    *,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> MigrationReport:
    """See `Board.migrate`."""
    check_flag("dry_run", dry_run)
    if not dry_run:
        session.engine.store_file.lmdb_file.check_writable()
    schemas: EntrySchemas | None = session.engine.entry_schemas
    if schemas is None:
        return MigrationReport()
    with session.read() as view:
        board = reads.board_of(view)
        pages = [] if board is None else reads.scan(view, board, pattern, reads.Span(), _EVEN_EXPIRED)
        keys = [key for page in pages for key, _place in page if schemas.of(key) is not None]
    return _EntryMigration(session, schemas, agent, is_dry=dry_run).run(keys, progress)


class _EntryMigration:
    """One run of `Board.migrate`."""

    def __init__(self, session: StoreSession, schemas: EntrySchemas, agent: str | None, *, is_dry: bool) -> None:
        self._session = session
        self._schemas = schemas
        self._agent = agent
        self._is_dry = is_dry
        self._report = MigrationReport()
        self._group: list[_Prepared] = []

    def run(self, keys: list[str], progress: Callable[[int, int], None] | None) -> MigrationReport:
        """Migrate the entries of all keys, several in each transaction."""
        for start in range(0, len(keys), _GROUP_ENTRIES_MAX):
            for key in keys[start : start + _GROUP_ENTRIES_MAX]:
                try:
                    self._prepare(key)
                except STORE_ERRORS:
                    raise
                except StatelogError as error:
                    self._fail(key, error)
            self._commit_group()
            if progress is not None:
                progress(min(start + _GROUP_ENTRIES_MAX, len(keys)), len(keys))
        return self._report

    def _prepare(self, key: str) -> None:
        """Run the steps for an entry, outside of any lock, and add the entry to the group."""
        schema = self._schemas.of(key)
        with self._session.read() as view:
            board = reads.board_of(view)
            found = None if board is None else reads.find(view, board, key, now_us())
        if found is None or schema is None:
            return  # The entry was deleted after its key was listed, or has expired.
        stored = stored_version(schema, key, found.event.schema)
        if stored == schema.version:
            self._report.skipped += 1
            return
        value = reads.read_value(self._session.workspace(), found.event)
        item = upgraded_item(schema, key, value, stored)
        if self._is_dry:
            self._compare(key, found.event.agent, value, cbor.decode(item))
            self._report.migrated += 1
            return
        if self._group and sum(each.size_bytes for each in self._group) + len(item) > _GROUP_SIZE_BYTES_MAX:
            self._commit_group()
        write = entry_writer.prepare(reducers.replace.prepare(reads.VALUE, cbor.decode(item), path=key))
        self._group.append(_Prepared(key, schema, found.lsn, write, len(item)))

    def _compare(self, key: str, agent: str | None, old: Any, new: Any) -> None:
        differences = self._report.differences
        guard = self._session.owner.guard
        if guard is not None and guard.on_read is not None:
            old, new = (entry_seen(guard.on_read, each, key, agent, raises=False) for each in (old, new))
        changes = islice(value_changes(old, new), DIFFERENCES_MAX - len(differences))
        differences += [MigrationDifference(None, None, change, key) for change in changes]

    def _commit_group(self) -> None:
        """Commit the group in one transaction. If that fails, commit each of its entries separately."""
        group, self._group = self._group, []
        if not group:
            return
        try:
            self._count(self._commit(group))
        except STORE_ERRORS:
            raise
        except StatelogError:
            for each in group:
                try:
                    self._count(self._commit([each]))
                except STORE_ERRORS:
                    raise
                except StatelogError as error:
                    self._fail(each.key, error)

    def _commit(self, group: list[_Prepared]) -> list[bool]:
        """Commit some entries together. Return a bool for each: whether it was migrated."""

        def work(batch: Batch) -> list[bool]:
            writer = writes.begin(batch, self._agent)
            return [_stage(writer, each) for each in group]

        return self._session.act(work)

    def _count(self, migrated: list[bool]) -> None:
        """Count the entries of a transaction. Another process may have migrated or deleted some of them."""
        self._report.migrated += sum(migrated)
        self._report.skipped += len(migrated) - sum(migrated)

    def _fail(self, key: str, error: StatelogError) -> None:
        self._report.failed.append(MigrationFailure(None, type(error).__name__, error.message, key))


def _stage(writer: entry_writer.EntryWriter, each: _Prepared) -> bool:
    """Stage the new value of an entry. If the entry has changed since `_prepare`, run the steps again."""
    found = writes.find(writer, each.key)
    if found is None or stored_version(each.schema, each.key, found.event.schema) == each.schema.version:
        return False
    kept, write = upgrade_of(each.schema, found)
    if found.lsn == each.lsn:
        write = each.value
    entry_writer.stage(writer, EntryAct.SET, each.key, kept, entry_writer.place_of(found), write)
    return True
