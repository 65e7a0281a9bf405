"""The store: one open file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from statelog.deprecated import OldStoreNames, renamed_keyword
from statelog.errors import FencedError, UsageError, not_hiding
from statelog.format.guard_key import GUARD_KEY
from statelog.limits import INTERVAL_DEFAULT_MS, MAX_SIZE_BYTES_DEFAULT
from statelog.log.care.replay import open_engine
from statelog.log.kinds.entries import OWN_IDS
from statelog.store.arguments import check_lsn, check_progress, check_timeout, list_checkpoints
from statelog.store.beside import AFTER_IT, refuse_beside
from statelog.store.session import StoreSession
from statelog.store.thread import Thread
from statelog.store.threads import Threads

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime, timedelta
    from pathlib import Path
    from types import TracebackType

    from statelog.board.rules import Rules
    from statelog.format.mac import Key
    from statelog.guard.policy import Guard
    from statelog.guard.search import SecretFound
    from statelog.log.care.compact import CompactionReport
    from statelog.log.care.purge import PurgeReport
    from statelog.log.care.vacuum import RetentionReport
    from statelog.log.care.verify import VerifyReport
    from statelog.log.engine import Engine
    from statelog.log.reader import LogRecord
    from statelog.portable.frames import ExportSource, ExportTarget
    from statelog.portable.reports import ExportReport, ImageReport, ImportReport
    from statelog.schema.versions import Versioned
    from statelog.search.hits import Hits
    from statelog.store.board import Board
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.migrations import MigrationReport
    from statelog.store.quarantine import QuarantinedPlace
    from statelog.store.snapshot import Snapshot
    from statelog.store.statistics import StoreStatistics
    from statelog.store.thread_info import ThreadInfo
    from statelog.store.transaction import Transaction

T = TypeVar("T")


_THREADS_PAGE = 256


def _is_guarded(engine: Engine) -> bool:
    """Return True if the store was ever opened with a guard."""
    with engine.store_file.read() as transaction:
        return transaction.get_meta(GUARD_KEY) is not None


class Store(Threads, OldStoreNames):
    """One open file. Several OS threads may use it. A forked child must open it again.

    Use it as a context manager, or call `close`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = StoreSession(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            self.close()

    def __repr__(self) -> str:
        return f"<Store {str(self.path)!r}{' closed' if self.closed else ''}>"

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._engine.store_file.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._engine.is_closed

    @property
    def read_only(self) -> bool:
        """Whether the store was opened read-only."""
        return self._engine.store_file.read_only

    @property
    def durability(self) -> str:
        """`commit` or `interval`."""
        return self._engine.store_file.options.durability

    @property
    def fenced(self) -> bool:
        """Whether any process has called `shut_off`. If so, no process can commit."""
        return self._engine.is_fenced

    @property
    def remote(self) -> Any:
        """The `statelog.fleet.owner.Owner` that ships this store of a fleet. Raises UsageError without a fleet."""
        if self._engine.remote is None:
            message = "this store is not shipped by a fleet: open it with statelog.fleet.connect(...).open(...)"
            raise UsageError(message, path=str(self.path))
        return self._engine.remote

    def close(self) -> None:
        """Close the file. Later uses of the store's objects raise ClosedError.

        Raises:
            UsageError: a snapshot, an iterator or a commit of another OS thread is still open after some seconds.
            StoreLockedError: another process was stopped during a write, and needs a page that this process holds.

        After either error, or an interrupt, the file stays open: close the store again later.
        """
        remote = self._engine.remote
        try:
            if remote is not None and not self._engine.is_closed:
                remote.close()
        finally:
            if "search" in self._session.kept:
                from statelog.store.search import close_search

                close_search(self._session)
            self._engine.close()

    # --- threads -----------------------------------------------------------------

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        return Thread(self._session, id, schema, branch, recreate=recreate)

    def threads(self) -> Iterator[ThreadInfo]:
        """Yield all threads in order of creation, except the thread with the records of the board."""
        from statelog.store.thread_info import read_thread_info

        with self._session.read() as view:
            rows = [row for row in view.threads() if row.id not in OWN_IDS]
        for at in range(0, len(rows), _THREADS_PAGE):
            with self._session.read() as view:
                page = [read_thread_info(view, row) for row in rows[at : at + _THREADS_PAGE]]
            yield from page

    def thread_ids(self, *, containing: str = "") -> list[str]:
        """Return the ids of all threads in order of creation. This reads less data per thread than `threads`.

        Args:
            containing: only ids that contain this string.
        """
        if not isinstance(containing, str):
            message = f"containing must be a str, not {containing!r}"
            raise UsageError(message, argument="containing", value=containing)
        with self._session.read() as view:
            return [row.id for row in view.threads() if containing in row.id and row.id not in OWN_IDS]

    @renamed_keyword("reborn", "recreate")
    def copy_thread(self, source: str, target: str, *, recreate: bool = False) -> Thread:
        """Create a thread with all branches, versions, ids of callers, metadata, tags and the schema of another thread.

        A copy of any length is one commit, with a record of about 200 bytes for each version. Values are shared. Later
        commits, retention and deletion affect only one of the threads. The copied versions have the time of the copy,
        so their digests and default ids differ. A `thread_id` in metadata that names the source names the copy in the
        copied versions. The copy gets the retention policy of a new thread.

        Args:
            source: the id of the thread to copy.
            target: the id of the copy.
            recreate: re-create the target if its thread was deleted.

        Raises:
            ThreadNotFoundError: the source does not exist. AlreadyExistsError: the target exists.
            ThreadDeletedError: the source was deleted, or the target was deleted and `recreate` is False.
        """
        from statelog.store.copies import copy_thread

        return copy_thread(self._session, source, target, recreate=recreate)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context manager for a transaction, whose operations are committed together at its end or not at all.

        Write through its value: `with store.transaction() as tx: tx.thread("t").commit(...)`. Until it ends, other
        writes of the same OS thread or task to this store raise UsageError, because an abort would not undo them.
        """
        from statelog.store.transaction import transaction

        return transaction(self._engine)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return a context manager whose value is a snapshot of the store. Its `thread(id)` reads that snapshot.

        Use it for long, consistent reads while other processes commit or remove versions. While the snapshot is open,
        the file cannot reuse its pages. So keep a snapshot short, and await nothing in it.
        """
        from statelog.store.snapshot import snapshot

        return snapshot(self._engine)

    # --- the board ----------------------------------------------------------------

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board: entries by key, shared by all processes that use the store. A store has one board.

        Args:
            agent: the name under which this handle writes. It is stored in the log and in each entry.
            rules: the rights of agents. This handle has only the rights of `agent`.
            include_quarantined: whether `get`, `list`, `history` and `claims` return values that a check of a guard has
                quarantined. If False, they return a `guard.Quarantined` in place of such a value.
        """
        from statelog.store.board import Board

        return Board(self._session, agent, rules, include_quarantined=include_quarantined)

    # --- quarantined values ------------------------------------------------------------

    def quarantined(self) -> list[QuarantinedPlace]:
        """Return the places of quarantined values in the heads of all branches and in the entries of the board.

        This reads all heads and entries. Earlier versions and metadata are not listed.
        """
        from statelog.store.quarantine import list_quarantined

        return list_quarantined(self._session)

    def release(self, place: QuarantinedPlace) -> None:
        """Store a quarantined value as an ordinary value, in a new version. No check is called.

        The value stays quarantined in earlier versions. To remove a value instead, overwrite it.

        Args:
            place: an item of the result of `quarantined`.

        Raises:
            ConflictError: a different value is now at the place. Facts: thread, key, path.
            UsageError: the value is in a thread of LangGraph, or in a record of a durable run.
        """
        from statelog.store.quarantine import release_quarantined

        release_quarantined(self._session, place)

    # --- the log --------------------------------------------------------------------

    def log(self, after: int = 0, *, follow: bool = False, timeout_s: float | None = None) -> Iterator[LogRecord]:
        """Yield the records of the event log, in order.

        Args:
            after: only records after this LSN.
            follow: wait for more records at the end instead of stopping. Then only records on the disk are yielded,
                so a power failure cannot undo them.
            timeout_s: with `follow`, stop after this time without a record.

        No transaction is held while the caller works.
        """
        from statelog.log.reader import read_log

        check_lsn(after)
        if timeout_s is not None:
            check_timeout(timeout_s)
        return read_log(self._engine, after, follow=follow, timeout_s=timeout_s)

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a record after `after`, from any process, is on the disk. Return False after a timeout."""
        check_lsn(after)
        check_timeout(timeout_s)
        with self._session.read():  # This checks that the store is open in this process.
            pass
        return self._engine.store_file.wake.wait(after, timeout_s)

    @property
    def last_lsn(self) -> int:
        """The LSN of the last record, 0 for an empty log."""
        with self._session.read() as view:
            return view.transaction.last_lsn()

    # --- search -------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        threads: str | None = None,
        where: str | None = None,
        role: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        branch: str | None = None,
        at: int | datetime | None = None,
        history: bool = False,
        match: Literal["all", "any"] = "all",
        limit: int = 10,
    ) -> Hits:
        """Return the texts of threads, entries, LangGraph items and runs that match a query, best first.

        By default this searches the heads of all branches and the current entries of the board. Everything that was
        committed before the call is found. The store confirms each hit, so a text that was deleted, expired, purged or
        rolled back is not found, and neither is a text that a check of the guard hides.

        The first search creates an index, a file next to the store such as `agent.state-search`. Later searches update
        the index. It can be deleted at any time.

        Args:
            query: words, phrases in double quotes, and beginnings of words followed by `*`. No query causes a syntax
                error. A query without a letter or digit finds nothing.
            threads: a pattern of thread ids, as for file names. With it, only threads are searched.
            where: a pattern of places: a path of threads such as `messages` or `plan.*`, or `threads:PATTERN`,
                `board:PATTERN`, `items:PATTERN`, `runs:PATTERN`.
            role: only messages of this role: "user", "assistant", "system" or "tool".
            since: only texts committed at this time or later: a datetime, or a string such as `2026-10-01`.
            until: only texts committed before this time.
            branch: only texts that this branch has.
            at: the version (of `branch`, or of `main`) or the time to search, instead of the current state.
            history: search all versions and all records of the board that still exist.
            match: "all" for texts that have all words and phrases, "any" for texts that have at least one.
            limit: the maximum number of hits, up to 10,000.

        Raises:
            UsageError: an argument is not valid. Facts: argument, value.
            FormatError: a file that is not an index has the name of the index. Facts: path, journal.
            StoreLockedError: another process was writing the index until the timeout. StoreFullError: the disk is full.
        """
        from statelog.store.search import search

        return search(
            self._session,
            query,
            threads=threads,
            where=where,
            role=role,
            since=since,
            until=until,
            branch=branch,
            at=at,
            history=history,
            match=match,
            limit=limit,
        )

    def configure_search(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tokenizer: Literal["unicode61", "trigram"] = "unicode61",
    ) -> None:
        """Configure what the search index contains. The store saves the configuration, and all processes follow it.

        If something changes, the next search rebuilds the index. A call that changes nothing writes nothing.

        Args:
            include: patterns of places to index, like `where` of `search`. By default, everything is indexed.
            exclude: patterns of places to leave out.
            tokenizer: "unicode61" finds words, without regard to case and diacritics. "trigram" finds any three
                characters in a row, for languages without spaces between words; the index is several times larger.

        Raises:
            UsageError: a pattern or the tokenizer is not valid. Facts: argument, value. ReadOnlyError.
        """
        from statelog.search.configuration import Configuration
        from statelog.store.search import configure

        configure(self._session, Configuration(include, exclude, tokenizer))

    # --- retention ---------------------------------------------------------------

    def prune(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
        pinned: Iterable[Checkpoint] = (),
    ) -> RetentionReport:
        """Remove old versions now, and the values that only they use.

        A version is kept if it is among the last `keep_last` of its branch, younger than `max_age`, tagged, pinned, a
        head or a branch point. A dependent branch, whose head has the id of a version in the metadata
        `statelog:serves`, is removed with that version. The log keeps the chain digests of removed versions, so it
        still verifies. Later commits reuse the space. `compact` makes the file smaller.

        Without a rule, the policies that `set_retention` stored are applied in full.

        Args:
            keep_last: the number of versions, at least 1.
            max_age: a timedelta or seconds, rounded up to whole seconds.
            threads: a pattern of thread ids, as for file names.
            keep_tags: whether tagged versions are kept.
            pinned: further checkpoints to keep.

        Raises:
            UsageError: a rule is not valid, or there is neither a given nor a stored rule.
            CheckpointNotFoundError: a pinned checkpoint does not exist. Nothing was removed.
        """
        from statelog.store.retain import make_policy, prune_threads

        refuse_beside(self._engine, AFTER_IT)
        policy = make_policy(keep_last, max_age, keep_tags=keep_tags)
        return prune_threads(self._engine, policy, threads, self._lsns_of(pinned))

    def set_retention(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
    ) -> RetentionReport:
        """Store a policy that removes old versions of matching threads, present and future. Apply it once now.

        The rules are as for `prune`. A commit applies the policy of its thread every 64 versions. Without a rule, the
        policy of the matching threads is removed, and all their versions stay from then on.

        A new thread gets the policy of the last call whose pattern matches. An imported thread keeps its policy. A call
        that changes nothing writes nothing, so call this each time the store is opened. `threads()` returns the policy
        of each thread, and `statistics()` the policies for future threads.

        Args:
            keep_last: the number of versions, at least 1.
            max_age: a timedelta or seconds, rounded up to whole seconds.
            threads: a pattern of thread ids, as for file names.
            keep_tags: whether tagged versions are kept.

        Returns:
            What was removed now.

        Raises:
            UsageError: a rule is not valid. LimitError: there are too many policies with different patterns.
        """
        from statelog.store.retain import make_policy, set_policies

        refuse_beside(self._engine, AFTER_IT)
        return set_policies(self._engine, make_policy(keep_last, max_age, keep_tags=keep_tags), threads)

    def limit(
        self,
        *,
        size_bytes_max: int | None = None,
        items_max: int | None = None,
        channel: str | None = None,
        threads: str = "*",
        warns: bool = False,
    ) -> None:
        """Limit the size of a channel, or of the whole state, in commits to matching threads through this object.

        A commit that exceeds the limit raises SizeLimitError, and writes nothing. With `warns`, it issues a SizeWarning
        once, until the size has fallen again. A commit that does not increase the size is always accepted, so a thread
        over its limit can be reduced. Every limit that matches a thread applies. Limits are not stored: set them each
        time the store is opened. Checkpoints of LangGraph, mounts and durable runs also count as commits; rollbacks and
        imports are not checked.

        Args:
            size_bytes_max: the maximum size of the value as one CBOR item; see `Checkpoint.size`.
            items_max: the maximum number of items of a list, a dict or a set, or of channels of a state. With neither,
                this limit is removed.
            channel: the channel. By default, the limit is on the whole state.
            threads: a pattern of thread ids, as for file names.
            warns: whether the limit only warns. A channel may have one limit that warns, and one that does not.

        Raises:
            UsageError: an argument is not valid.
        """
        from statelog.store.size_limits import Limit, SizeLimits

        held = self._engine.limits
        limits = held if isinstance(held, SizeLimits) else SizeLimits()
        is_set = limits.set(Limit(threads, channel, warns, size_bytes_max, items_max))
        self._engine.limits = limits if is_set else None

    def _lsns_of(self, pinned: Iterable[Checkpoint]) -> list[int]:
        """Return the LSNs of checkpoints. Raises CheckpointNotFoundError if one does not exist."""
        found = list_checkpoints("pinned", pinned)
        return [self.thread(checkpoint.thread_id).at(checkpoint).lsn for checkpoint in found]

    def expire(self, checkpoints: Iterable[Checkpoint]) -> RetentionReport:
        """Remove these versions, and the values that only they use.

        Tagged versions, heads and branch points stay. Dependent branches are removed with their versions. See `prune`.

        Raises:
            ReadOnlyError: the store is open read-only.
            UsageError: an item is not a checkpoint. Nothing was removed.
        """
        from statelog.store.retain import expire_checkpoints

        refuse_beside(self._engine, AFTER_IT)
        return expire_checkpoints(self._engine, list_checkpoints("checkpoints", checkpoints))

    def delete_thread(self, id: str) -> RetentionReport:
        """Delete a thread permanently, with its versions, names and values.

        A late write to the thread raises ThreadDeletedError, until `thread(id, recreate=True)` re-creates the thread.
        Later commits overwrite its bytes, and `compact` erases them. The report has the number of removed versions.

        Raises:
            ThreadNotFoundError: the thread does not exist. ThreadDeletedError: the thread is already deleted.
        """
        from statelog.store.retain import delete_thread

        refuse_beside(self._engine, AFTER_IT)
        return delete_thread(self._engine, id)

    def flush(self) -> None:
        """Wait until all commits so far are on the disk, as a barrier in `interval` mode.

        In `commit` mode they already are, and the call costs nothing.

        Raises:
            StorageError: the flush failed. Commits since the last flush may be lost in a power failure. Close the store
                and open it again.
        """
        self._engine.flush()

    # --- care -----------------------------------------------------------------------

    def statistics(self, *, progress: Callable[[int, int], None] | None = None) -> StoreStatistics:
        """Return sizes, counts, free pages and readers."""
        from statelog.store.statistics import collect

        check_progress(progress)
        return collect(self._engine, progress=progress)

    def verify(
        self,
        *,
        deep: bool = True,
        expect: bytes | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every invariant of the file and report violations.

        If the report is `ok` and `expect` was given, all records up to the anchor are those that the store had when the
        anchor was taken, except for parts that were removed since: see `VerifyReport.removed_since_anchor`. With
        `deep`, this includes all values. If the record at the anchor's LSN is damaged, the report lists that damage.

        Args:
            deep: also read every node that any version can reach.
            expect: an anchor of the store (see `anchor`). It is compared first.
            progress: called with (records done, all records).

        Raises:
            RollbackError, ForgeryError, AnchorError: as for `open`.
        """
        from statelog.log.care import verify

        check_progress(progress)
        return verify.verify(self._engine, deep=deep, expect=expect, progress=progress)

    def anchor(self) -> bytes:
        """Return an anchor: 53 bytes that name the history of the store up to its last record.

        Keep it where a person who can write the file cannot change it, and give it to `open` or `verify` as `expect`.
        These calls refuse a file that no longer has this history. Later operations of the store do not make an anchor
        invalid. An anchor covers only durable records: a store that is open for writing flushes first, and a read-only
        store leaves out records that are not flushed yet. FORMAT.md section 9 draws the bytes.

        Raises:
            StorageError: as for `flush`. CorruptionError: the last record is damaged.
        """
        from statelog.log.anchors import take_anchor

        return take_anchor(self._engine)

    def migrate(
        self,
        schema: Versioned[Any, Any],
        *,
        threads: str = "*",
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MigrationReport:
        """Migrate the heads of all branches of some threads to the declared version of a schema.

        Each head gets a new version.

        Reads and commits do not need this call, because they migrate states themselves. It makes later reads cheaper,
        and finds states that the steps cannot convert. All branches of a thread are migrated in one transaction. Other
        processes may commit while it runs. If the call ends early, the next call skips the migrated threads. A thread
        that fails stays unchanged and is reported, and the other threads are migrated.

        Args:
            schema: the result of `statelog.versioned`, with its steps.
            threads: a pattern of thread ids, as for file names. Threads of LangGraph, of other adapters and of
                `statelog.memory` are left out. Threads of other schemas fail.
            dry_run: whether to write nothing, and report what would happen with the first differences.
            progress: called with (threads done, all threads).

        Raises:
            UsageError: an argument is not valid, or `threads` is the id of a thread that would be left out. No step has
                run.
            StoreFullError, StorageError, ReadOnlyError: as for `Thread.commit`. Threads that were migrated so far stay
                migrated.
        """
        from statelog.store.migrations import migrate_threads

        check_progress(progress)
        return migrate_threads(self._session, schema, threads, dry_run=dry_run, progress=progress)

    def compact(self, *, progress: Callable[[int, int], None] | None = None) -> CompactionReport:
        """Rewrite the store in key order and without free pages, to a new file that replaces the old one.

        Other processes may have the store open: they continue in the new file, and running reads end in the old file.
        After a crash, either the old or the new file exists. The disk needs room for both files until the last read of
        the old file ends. Commits wait while commits made during the copy are copied. If versions expire or threads are
        deleted during the copy, the whole store is copied again.

        Args:
            progress: called with (entries copied, all entries). It may read the store. Its commits raise UsageError.

        Raises:
            StoreLockedError: another process or OS thread compacts the store, or holds the lock for too long.
            StoreFullError: the disk has no room for a second file. The old file stays.
        """
        from statelog.log.care import compact as compaction
        from statelog.store.retain import erase_leftovers

        check_progress(progress)
        erase_leftovers(self._engine)  # The copy must not contain leftovers of interrupted deletions.
        return compaction.compact(self._engine, progress=progress)

    def rekey(self, key: Key, *, progress: Callable[[int, int], None] | None = None) -> CompactionReport:
        """Change the key of the store, or give it its first key.

        The store is copied to a new file, and anchors stay valid.

        As with `compact`, the new file replaces the old one. If the process dies during the call, either the old file
        or the new file exists. This store continues with the new key. Other processes that have the file open get
        WrongKeyError from then on, or KeyMissingError if the store had no key. They must close the store, and open it
        with the new key.

        A store without a key may have been forged. The new file treats the contents as genuine, so call `verify` first,
        with an anchor if there is one.

        Args:
            key: as for `open`.
            progress: called with (entries copied, all entries).

        Raises:
            KeyArgumentError: `key` is not a valid key. UsageError: the store belongs to a fleet.
            CorruptionError: a record or a row is damaged. Nothing was changed.
            StoreLockedError, StoreFullError: as for `compact`.
        """
        from statelog.format.mac import as_store_key
        from statelog.log.care import compact as compaction

        check_progress(progress)
        if self._engine.remote is not None:
            message = "the key of a store in a fleet cannot be changed"
            raise UsageError(message, path=str(self.path))
        return compaction.rekey(self._engine, as_store_key(key), progress=progress)

    def find_secrets(self, *, guard: Guard | None = None, threads: Iterable[str] | None = None) -> list[SecretFound]:
        """Return the secrets in all versions of the store, including values that were replaced later.

        Each secret is reported once for each thread, version that wrote it, and path. Secrets in names, such as ids and
        keys, are reported as well. A report never has the text of a secret.

        Args:
            guard: the guard whose rules, fields and resolved handles define the secrets. By default, the guard of the
                store, or the rules of the library if the store was opened without a guard.
            threads: the ids of the threads to search. By default, the whole store with the board is searched.

        Raises:
            ThreadNotFoundError: a thread does not exist. Facts: thread.
            GuardError: google-re2 is missing.
            UsageError: `guard` is not a Guard, or `threads` is not a list of ids. Facts: argument.
        """
        from statelog.store import guarded

        return guarded.find_secrets(self._engine, guard, threads)

    def purge(
        self,
        found: Iterable[SecretFound],
        *,
        guard: Guard | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> PurgeReport:
        """Remove secrets from all versions. The store is copied to a new file, which replaces the old one.

        `[REDACTED rule fingerprint]` replaces each of these secrets in every thread and version, even where no rule
        found it. LSNs, versions, times, tags and callers' ids stay. Digests change, and so do default ids, because they
        contain a part of a digest. The new file is searched for the secrets before it replaces the old one. If the
        process dies during the call, either the complete old file or the complete new file exists. No process can write
        during a purge. After it, other handles of the store, in this process and in others, raise StoreReplacedError.
        The disk needs room for a second file.

        Args:
            found: the result of `find_secrets`, or a part of it.
            guard: the guard with which the secrets were found, if it is not the guard of the store.
            progress: called with (steps done, all steps).

        Raises:
            SecretError: one of the secrets is in a name, or in bytes that cannot be changed. Facts: lsn, path, thread.
            UsageError: `found` has the wrong type, a record does not have its secret, or a fleet ships the store.
            GuardError: the store was once opened with a guard, and this call has no guard.
            ReadOnlyError, StoreLockedError, StoreFullError, StorageError: as for `compact`.

        If an error is raised, the store is not changed.
        """
        from statelog.store import guarded
        from statelog.store.retain import erase_leftovers

        check_progress(progress)
        self._engine.store_file.lmdb_file.check_writable()
        erase_leftovers(self._engine)
        return guarded.purge(self._engine, found, guard, progress)

    def export(
        self,
        target: ExportTarget,
        *,
        threads: Iterable[str] | None = None,
        since: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Write the store, or some of its threads, as a stream that any machine can import.

        Args:
            target: a binary file or a pipe.
            threads: the ids of threads. By default, the whole log is written record by record.
            since: only records of the whole log after this LSN.
            progress: called with (records done, all records).

        Raises:
            UsageError: `target` does not accept bytes, `since` is not an LSN or is given with `threads`, or
                `threads` are not ids.
            ThreadNotFoundError: a thread does not exist.
        """
        from statelog.portable import streams

        check_progress(progress)
        return streams.export_store(self._engine, target, threads=threads, since=since, progress=progress)

    def import_(
        self, source: ExportSource, *, upto: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> ImportReport:
        """Import an export. Every digest is checked first, and existing data is skipped.

        Several exports of a log can be imported in order if each begins at or before the end of the previous one.

        Args:
            source: a binary file or a pipe. It is not trusted.
            upto: import only whole transactions of a log up to this LSN. Before you prune this store or delete its
                threads, import the rest or call `compact`. Otherwise, texts that several threads have may be lost.
            progress: called with (LSNs done, all LSNs).

        Raises:
            UsageError: `source` does not return bytes, `upto` is not an LSN, or the export is of threads.
            FormatError, CorruptionError: `source` is not an export or is damaged. Data that was already verified stays
                imported.
            ConflictError: the store has other data under the same LSNs or names.
            GuardError: another process has opened the store with a guard since this process opened it. SecretError: a
                record has a secret.
        """
        from statelog.portable import streams

        check_progress(progress)
        if upto is not None:
            check_lsn(upto)
        refuse_beside(self._engine, AFTER_IT)
        return streams.import_stream(self._engine, source, upto=upto, progress=progress)

    def image(self, target: str | os.PathLike[str] | ExportTarget) -> ImageReport:
        """Write a copy of the file at one moment, page by page, with zeros for free pages. It opens as a closed store.

        Args:
            target: the path of a new file, which is created atomically; or a binary file or a pipe.

        Raises:
            UsageError: `target` does not accept bytes. AlreadyExistsError: the path exists.
            CorruptionError: the file is damaged. StorageError, AccessError: the operating system reported an error.
        """
        from statelog.portable.images import write_image_of

        return write_image_of(self._engine, target)

    def shut_off(self, error: FencedError) -> None:
        """Forbid all later commits in every process. Reads still work. A copy made by `image` accepts commits.

        Args:
            error: the error that commits of this store raise. Other processes raise a new `FencedError`.

        Raises:
            UsageError: `error` is not a FencedError.
            StorageError, StoreLockedError: the mark in the file cannot be written.
        """
        if not isinstance(error, FencedError):
            message = f"shut_off needs a FencedError, not {error!r}"
            raise UsageError(message, argument="error", value=error)
        self._engine.shut_off(error)

    def rebuild_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index from the log in one transaction. Return the number of records read."""
        from statelog.log.care import rebuild

        check_progress(progress)
        return rebuild.rebuild_index(self._engine, progress=progress)


def open(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    durability: Literal["commit", "interval"] = "commit",
    interval_ms: float = INTERVAL_DEFAULT_MS,
    max_size_bytes: int | None = None,
    lock_timeout_s: float | None = None,
    expect: bytes | None = None,
    guard: Guard | None = None,
    key: Key | None = None,
) -> Store:
    """Open a store. Create it if it does not exist.

    Args:
        path: the file. LMDB keeps a lock file beside it, with the suffix `-lock`.
        read_only: refuse writes. The file must exist.
        create: whether a missing file is created.
        durability: "commit" flushes each commit, so acknowledged commits survive a power failure. "interval" flushes
            later: a power failure may lose the commits of the last interval, and the log ends before them. A killed
            process loses nothing in either mode.
        interval_ms: the maximum delay of a flush after a commit, from 1 to 60,000 (default 50). If this process opens
            the store several times, the shortest interval applies.
        max_size_bytes: the maximum size of the file (default 256 GiB). If processes give different sizes, the largest
            size applies.
        lock_timeout_s: how long to wait for another process that holds the store, at open and in a commit
            (default 10).
        expect: an anchor of the store (`Store.anchor`). A file that does not have the anchor's history is closed again,
            and no file is created. This compares one chain digest, and reads one record (or up to 64 small ones that
            retention has left). It does not detect changes of values or of the index, or records before the anchor that
            were changed without their digests. `Store.verify` with `expect` detects these changes. Records after the
            anchor are not compared.
        guard: keeps secrets out of the file, and checks written and read values. After that, the store cannot be opened
            for writing without a guard. With `read_only`, the guard needs `on_read`, and does nothing else.
        key: the key of the store: bytes or a str of at least 16 bytes, or a function that returns either and is called
            once. A new store gets this key. The file does not contain the key. It has a MAC for each record and each
            row of the index, and each read checks the MACs of the data it uses. An attacker may restore older bytes of
            the same store, which have genuine MACs. `expect` and `Store.verify` detect such bytes. `Store.rekey`
            changes the key.

    Raises:
        KeyMissingError, WrongKeyError, UnkeyedStoreError: the store has a key and none was given, has a different key,
            or has no key. The file is not changed. KeyArgumentError: `key` is not a valid key; the file was not opened.
        GuardError: there is no `guard`, and the store was once opened with one; or with `read_only`, the guard has no
            read checks. Later reads and writes raise CheckError if a check refuses.
        StoreNotFoundError: the file does not exist, and `create` is False, `read_only` is True, or `expect` is given.
        FormatError: the file is not a store or has a newer format, or a different kind of file has the name of its
            journal or lock file. No file is changed.
        CorruptionError: the file is damaged. JournalMissingError: the store was not closed, and its journal is missing.
            The files are not changed.
        RollbackError: the log ends before the anchor's LSN. ForgeryError: the log has a different history
            (OtherStoreError: and belongs to a different store). In a store with a key, ForgeryError also means that a
            record or row is damaged or forged. AnchorError: `expect` is not an anchor; the file was not opened.
        StoreReplacedError: the file has replaced a file that another process has open.
        StoreLockedError, StorageError, AccessError: another process holds the store, or the operating system reported
            an error.
    """
    if guard is not None:
        from statelog.store.guarded import check_guard

        check_guard(guard, read_only=read_only)
    options: dict[str, Any] = {} if lock_timeout_s is None else {"lock_timeout_s": lock_timeout_s}
    if expect is not None:
        from statelog.log.anchors import ExpectedHistory, check_opened

        expected = ExpectedHistory(expect)
    engine = open_engine(
        path,
        read_only=read_only,
        create=create and expect is None,
        durability=durability,
        interval_ms=interval_ms,
        max_size_bytes=MAX_SIZE_BYTES_DEFAULT if max_size_bytes is None else max_size_bytes,
        key=key,
        **options,
    )
    if expect is not None:
        check_opened(engine, expected)
    if not read_only or guard is not None:
        try:
            if guard is not None or _is_guarded(engine):
                from statelog.store.guarded import attach

                attach(engine, guard)
        except BaseException:
            engine.close()
            raise
    return Store(engine)


def open_for_records(path: str | os.PathLike[str], **options: Any) -> Store:
    """Open a store only to ship, restore, follow or fence its records. Options and errors are as for `open`.

    A guard is not needed, because nothing new is committed: in a store that has a guard, each commit raises GuardError.
    """
    engine = open_engine(path, **options)
    engine.is_for_records = True
    return Store(engine)
