"""Migrates the heads of many threads to the declared version of their schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.errors import (
    AccessError,
    ClosedError,
    FencedError,
    ForkedError,
    MigrationError,
    ReadOnlyError,
    StatelogError,
    StorageError,
    StoreFullError,
    UsageError,
    ValidationError,
)
from statelog.format.quarantined import holds_quarantined
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX
from statelog.log.events import schema_version
from statelog.log.names import check_name
from statelog.reducers import Overwrite
from statelog.schema.schema import SCHEMA_ENTRY
from statelog.schema.versions import Versioned
from statelog.store import frameworks
from statelog.store.arguments import check_flag
from statelog.store.diff import Diff
from statelog.store.foreign_threads import check_not_foreign, is_foreign_id, is_langgraphs, is_of_run
from statelog.store.migration import migrate_ahead
from statelog.store.thread import Thread
from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.batch import Batch
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import ThreadRow, View
    from statelog.schema import Schema
    from statelog.store.diff import Change
    from statelog.store.session import StoreSession

_GROUP_THREADS_MAX = 64
_GROUP_SIZE_BYTES_MAX = 256 * 1024
"""The maximum size of the new nodes in one transaction, so that the transaction fits into the WAL."""

DIFFERENCES_MAX = 20

_WILDCARDS = "*?["
"""The wildcard characters in patterns of thread ids. A pattern without wildcards is the id of a single thread."""

STORE_ERRORS = (
    AccessError,
    ClosedError,
    FencedError,
    ForkedError,
    ReadOnlyError,
    StorageError,
    StoreFullError,
)
"""The errors that would occur again for every further thread or entry. Such an error ends the migration."""


@dataclass(frozen=True, slots=True)
class MigrationFailure:
    """A thread or an entry that could not be migrated and was left unchanged."""

    thread: str | None
    """The id of the thread; None for an entry."""
    kind: str
    """The name of the error's class."""
    reason: str
    """The message of the error."""
    key: str | None = None
    """The key of the entry; None for a thread."""


@dataclass(frozen=True, slots=True)
class MigrationDifference:
    """A change that the migration of a branch or of an entry makes."""

    thread: str | None
    branch: str | None
    """The name of the branch. Both `thread` and `branch` are None for an entry."""
    change: Change
    key: str | None = None
    """The key of the entry; None for a thread."""


@dataclass(slots=True)
class MigrationReport:
    """The result of `Store.migrate` or `Board.migrate`. Each matching thread or entry counts once.

    Attributes:
        migrated: the number of threads with a migrated branch, or of migrated entries. With `dry_run`, the number that
            would be migrated.
        skipped: the number of threads or entries that had nothing to migrate.
        failed: threads or entries that were left unchanged, each with the reason.
        differences: with `dry_run`, the first changes.
    """

    migrated: int = 0
    skipped: int = 0
    failed: list[MigrationFailure] = field(default_factory=list)
    differences: list[MigrationDifference] = field(default_factory=list)


def migrate_threads(
    session: StoreSession,
    schema: object,
    pattern: str,
    *,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> MigrationReport:
    """Migrate all threads whose id matches a pattern; see `Store.migrate`."""
    check_flag("dry_run", dry_run)
    if not isinstance(schema, Versioned):
        message = f"migrate needs a schema made with statelog.versioned, not {schema!r:.80}"
        raise UsageError(message, argument="schema", value=schema)
    check_name("pattern of thread ids", pattern, size_bytes_max=THREAD_ID_SIZE_BYTES_MAX)
    if not dry_run:
        session.engine.store_file.lmdb_file.check_writable()
    if not any(each in pattern for each in _WILDCARDS):
        _check_named(session, pattern)
    with session.read() as view:
        rows = [row for row in view.threads() if fnmatchcase(row.id, pattern) and not is_foreign_id(row.id)]
    return _Migration(session, schema, rows, is_dry=dry_run, progress=progress).run()


def _check_named(session: StoreSession, thread_id: str) -> None:
    """Raise UsageError if a thread is not one of the user's own."""
    check_not_foreign(thread_id)
    with session.read() as view:
        lsn = view.thread_lsn(thread_id)
        if lsn is not None and any(is_langgraphs(session, head) for _branch, head in _heads(view, lsn)):
            raise frameworks.refused(thread_id)


def _heads(view: View, thread: int) -> Iterator[tuple[str, CheckpointEvent]]:
    """Yield the branches of a thread with their heads."""
    for branch in view.branches(thread):
        head = view.head_checkpoint(thread, branch.number)
        if head is not None:
            yield branch.name, head[0]


def _check_types(thread: Thread[Any, Any], schema: Schema) -> None:
    """Raise MigrationError if the migrated state of the head does not have the declared types."""
    head = thread.head
    if head is None:
        return
    state = head._read_state()  # noqa: SLF001 - `state`, past its types
    for channel in schema.channels:
        if not schema.is_checked(channel) or channel not in state:
            continue
        try:
            value = state[channel]
            plain = value.to_python() if isinstance(value, ListView | MapView) else value
            if channel not in schema.readings and holds_quarantined(plain) is None:
                schema.validate_write(channel, Overwrite(plain))
        except ValidationError as error:
            message = (
                f"the result of the steps for thread {thread.id!r}, branch {thread.branch!r}, does not match the schema"
            )
            raise MigrationError(f"{message}: {error.message}", **error.facts) from error


class _Migration:
    """One run of `Store.migrate`."""

    def __init__(
        self,
        session: StoreSession,
        schema: Versioned[Any, Any],
        rows: list[ThreadRow],
        *,
        is_dry: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._session = session
        self._schema = schema
        self._rows = rows
        self._is_dry = is_dry
        self._progress = progress
        self._report = MigrationReport()
        self._group: list[list[Thread[Any, Any]]] = []
        self._size_bytes = 0

    def run(self) -> MigrationReport:
        """Migrate all threads, several in each transaction."""
        for start in range(0, len(self._rows), _GROUP_THREADS_MAX):
            for row, branches in self._older(self._rows[start : start + _GROUP_THREADS_MAX]):
                if branches:
                    self._prepare(row, branches)
                else:
                    self._report.skipped += 1
            self._commit_group()
            if self._progress is not None:
                self._progress(min(start + _GROUP_THREADS_MAX, len(self._rows)), len(self._rows))
        return self._report

    def _older(self, rows: list[ThreadRow]) -> Iterator[tuple[ThreadRow, dict[str, CheckpointEvent]]]:
        """Yield each thread with the heads, by branch, whose schema version is not the declared one."""
        with self._session.read() as view:
            found = [(row, self._older_branches(view, row)) for row in rows]
        yield from ((row, branches) for row, branches in found if branches is not None)

    def _older_branches(self, view: View, row: ThreadRow) -> dict[str, CheckpointEvent] | None:
        """Return, by branch, the heads whose schema version is not the declared one.

        Return None for a thread of LangGraph.
        """
        if not view.is_alive(row.lsn):
            return {}
        heads = dict(_heads(view, row.lsn))
        older = {
            branch: head for branch, head in heads.items() if schema_version(head.metadata) != self._schema.version
        }
        if older and any(is_langgraphs(self._session, head) for head in heads.values()):
            return None  # One head is enough: LangGraph's branch of pending writes lacks the channel.
        return {branch: head for branch, head in older.items() if not is_of_run(self._session, head)}

    def _prepare(self, row: ThreadRow, heads: dict[str, CheckpointEvent]) -> None:
        """Run the steps for the heads of a thread, outside any lock, and add the thread to the group."""
        schema, thread_id = self._schema.schema, row.id
        ahead = partial(migrate_ahead, self._session, thread_id, schema=schema, is_named=SCHEMA_ENTRY in row.specs)
        try:
            threads = [Thread(self._session, thread_id, self._schema, branch) for branch in heads]
            size = sum(ahead(event) for event in heads.values())
            for each in threads:
                _check_types(each, schema)
            if self._is_dry:
                self._compare(threads)
        except STORE_ERRORS:
            raise
        except StatelogError as error:
            self._fail(thread_id, error)
            return
        if self._is_dry:
            self._report.migrated += 1
            return
        if self._group and self._size_bytes + size > _GROUP_SIZE_BYTES_MAX:
            self._commit_group()
        self._group.append(threads)
        self._size_bytes += size

    def _compare(self, threads: list[Thread[Any, Any]]) -> None:
        differences = self._report.differences
        for each in threads:
            head = each.head
            if head is not None and len(differences) < DIFFERENCES_MAX:
                found = Diff(head.stored, head._read_state()).changes  # noqa: SLF001 - `state`, past its types
                room = DIFFERENCES_MAX - len(differences)
                differences += [MigrationDifference(each.id, each.branch, change) for change in found[:room]]

    def _commit_group(self) -> None:
        """Commit the group in one transaction. If that fails, commit each of its threads separately."""
        group, self._group, self._size_bytes = self._group, [], 0
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
                    self._fail(each[0].id, error)

    def _commit(self, group: list[list[Thread[Any, Any]]]) -> list[bool]:
        """Commit all branches of some threads together.

        Return a bool for each thread: whether a branch was migrated.
        """

        def work(batch: Batch) -> list[bool]:
            return [any([each._migrate_in(batch) for each in threads]) for threads in group]  # noqa: SLF001, C419 - all are called

        return self._session.act(work)

    def _count(self, migrated: list[bool]) -> None:
        """Count the threads of a transaction. Another process may have migrated some of them."""
        self._report.migrated += sum(migrated)
        self._report.skipped += len(migrated) - sum(migrated)

    def _fail(self, thread_id: str, error: StatelogError) -> None:
        self._report.failed.append(MigrationFailure(thread_id, type(error).__name__, error.message))
