"""The board: entries by key, shared by all processes that have the store open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.board import entry_writer, holders, reads, writes
from statelog.board.entry_writer import NO_PLACE
from statelog.board.holders import ClaimFilter
from statelog.board.names import RESERVED, check_directory, check_key, check_prefix, compile_pattern
from statelog.board.retention import RetentionRule
from statelog.board.rules import ALL, OWN
from statelog.deprecated import OldBoardNames
from statelog.errors import StatelogError, UsageError
from statelog.format import cbor
from statelog.log.kinds.entries import RANK, EntryAct
from statelog.schema.versions import Versioned
from statelog.store import claims
from statelog.store.arguments import check_flag, check_priority, check_progress, check_seconds
from statelog.store.board_policies import erase_entries, is_turn, prune_board, set_board_policy, take_turn
from statelog.store.board_reads import ReadBoard, check_moment
from statelog.store.claims import ClaimAttempt, LeaseAttempt, to_us
from statelog.store.entries import entry_of
from statelog.store.entry_versions import EntrySchemas, versioned_write
from statelog.store.fences import fence_check
from statelog.store.retain import make_policy
from statelog.store.session import StoreSession, session_of
from statelog.store.watches import Watch

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable
    from datetime import timedelta

    from statelog.board.entry_writer import EntryFields, EntryWriter
    from statelog.board.reads import EntryRecord
    from statelog.board.rules import Rights
    from statelog.log.batch import Batch
    from statelog.log.care.vacuum import RetentionReport
    from statelog.reducers import Reducer
    from statelog.store.claims import Claim, Lease, LeaseInfo
    from statelog.store.entries import Entry
    from statelog.store.fences import Fence
    from statelog.store.migrations import MigrationReport
    from statelog.store.session import AnySession, Holder


_WRITE, _WRITE_AND_READ = ("write",), ("write", "read")


class Board(ReadBoard, OldBoardNames):
    """A handle of the board, which stores entries by key.

    The `board` method of a store, transaction or snapshot returns one.

    Every write is one commit. Versions are LSNs. The version of a missing entry is 0. No read returns an entry that has
    expired. Values may have all types that a channel accepts, and are returned as plain Python values.

    An operation that the rules of the handle do not allow raises AccessError. Lists, watches and `children` leave out
    entries that the handle may not read. `update`, `cas`, `set(expected_version=)` and `delete(expected_version=)`
    depend on the entry, so they also need the right to read the entry.
    """

    # --- writing ----------------------------------------------------------------------

    def set(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Set or create an entry. A claim of the entry stays.

        Args:
            key: as for `get`.
            value: any value that a channel of a thread accepts.
            expected_version: write only if the entry is at this version; 0 means that no entry may exist.
            ttl_s: the time in seconds after which the entry expires; None for never.
            priority: from -127 to 127. Entries with a higher priority are claimed first.
            delay_s: the time in seconds until the entry may be claimed.
            fence: a lease or a claim. If it has ended, nothing is written.

        Raises:
            UsageError: `key` is not a valid key, or `ttl_s` is not positive.
            ValueTypeError, LimitError: the value cannot be stored.
            ConflictError: the entry is at a different version. Facts: key, expected_version, actual_version.
            LeaseLostError: `fence` has ended. Facts: key or name, token.
            StoreFullError: the quota or the disk is used up.

        If an error is raised, nothing is written.
        """
        how = _check_how(ttl_s, priority, delay_s)
        if expected_version is None:
            return self._put(key, reducers.replace, value, how, None, fence)
        check = partial(writes.check_version, key, expected_version)
        return self._put(key, reducers.replace, value, how, check, fence, verbs=_WRITE_AND_READ)

    def create(
        self,
        key: str,
        value: Any,
        *,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Create an entry. Raises AlreadyExistsError if the entry exists, and the errors of `set`."""
        how = _check_how(ttl_s, priority, delay_s)
        check = partial(writes.check_absent, key, is_version_told=self._rights.may("read", key))
        return self._put(key, reducers.replace, value, how, check, fence)

    def cas(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Set an entry if it is at `expected_version`, as `set` does. Version 0 means that no entry may exist.

        Raises:
            ConflictError: the entry is at a different version. Facts: key, expected_version, actual_version.

        It also raises the errors of `set`.
        """
        if expected_version is None:
            raise UsageError(
                "cas needs expected_version= (0 if the entry must not exist)", argument="expected_version", value=None
            )
        return self.set(
            key,
            value,
            expected_version=expected_version,
            ttl_s=ttl_s,
            priority=priority,
            delay_s=delay_s,
            fence=fence,
        )

    def update(
        self, key: str, reducer: Reducer | Callable[[Any, Any], Any], value: Any, *, fence: Fence | None = None
    ) -> Entry:
        """Merge a value into an entry within the commit. `update(key, reducers.add, 1)` needs no retry.

        If the entry does not exist, the value is merged into an empty channel and the entry is created. The expiry time
        stays.

        Raises:
            ReducerTypeError: the value does not merge with the entry.
            UsageError: `reducer` is not a reducer.

        It also raises the errors of `set`.
        """
        known = reducers.from_annotation(reducer)
        if known is None:
            raise UsageError(f"{reducer!r} is not a reducer", argument="reducer", value=reducer)
        return self._put(key, known, value, None, None, fence, verbs=_WRITE_AND_READ)

    def delete(self, key: str, *, expected_version: int | None = None, fence: Fence | None = None) -> bool:
        """Delete an entry. Return True if the entry existed.

        Raises:
            UsageError: `key` is not a valid key.
            ConflictError: the entry is not at `expected_version`.
        """
        check_key(key)
        self._rights.check("write", key)
        if expected_version is not None:
            self._rights.check("read", key)

        def work(writer: EntryWriter) -> bool:
            found = writes.find(writer, key)
            writes.check_version(key, expected_version, found)
            if found is not None:
                writes.take(writer, found)
            return found is not None

        return (self._is_there() or fence is not None) and bool(self._act(work, fence=fence))

    def rollback(self, prefix: str, *, to: int, fence: Fence | None = None) -> builtins.list[str]:
        """Restore all entries below a prefix to their state right after an LSN. Return the changed keys.

        Keys that the handle may not read are left out of the result.

        The cost depends on the number of writes to the board since the LSN, not on the size of the board. A rollback is
        an ordinary write: to undo it, roll back to the LSN before the rollback.

        Args:
            prefix: the prefix of the keys; empty for all keys.
            to: the LSN.
            fence: as for `set`.

        Raises:
            UsageError: an argument is not valid.
            AccessError: the rollback would change an entry that the handle may not write. Facts: key, which is `prefix`
                if the handle may not read the entry either.
            ExpiredError: retention has removed the earlier state of an entry. Nothing is changed.
        """
        check_prefix(prefix)
        self._rights.check_reserved("prefix", prefix)
        with self._session.read() as view:
            lsn = check_moment(view, "to", to)

        may_read = partial(self._rights.may, "read")

        def check(key: str) -> None:
            self._rights.check("write", key, shown=key if may_read(key) else prefix)

        def work(writer: EntryWriter) -> builtins.list[str]:
            keys = [found.event.key for found in writes.roll_back(writer, prefix, lsn, check)]
            return [key for key in keys if may_read(key)]

        changed: builtins.list[str] = self._act(work, fence=fence) if self._is_there() else []
        return changed

    def sweep(self) -> int:
        """Record the expiry of all expired entries. Return their number. Reads and writes do not need a sweep."""
        swept, count = 0, writes.SWEPT_MAX
        while count == writes.SWEPT_MAX and self._is_there():
            count = self._act(lambda writer: writes.sweep(writer, writes.SWEPT_MAX), sweeps=False)
            swept += count
        return swept

    def _is_there(self) -> bool:
        """Return True if the board exists. Only a write that sets an entry creates the board. Raises ReadOnlyError."""
        if isinstance(self._session, StoreSession):
            self._session.engine.store_file.lmdb_file.check_writable()
        with self._session.read() as view:
            return reads.board_of(view) is not None

    def _put(
        self,
        key: str,
        reducer: Reducer,
        value: Any,
        how: tuple[int, EntryFields] | None,
        check: Callable[[EntryRecord | None], None] | None,
        fence: Fence | None,
        *,
        verbs: Sequence[str] = _WRITE,
        is_guarded: bool = False,
    ) -> Entry:
        """Merge a value with an entry. `how` is None if the other fields of the entry stay as they are.

        With `is_guarded`, the value has already passed the guard.
        """
        check_key(key)
        rights = self._rights
        if rights.is_bound or key.startswith(RESERVED):
            for verb in verbs:
                rights.check(verb, key)
        owner, replaces = self._session.owner, reducer is reducers.replace
        schemas = owner.entry_schemas
        schema, value = (None, value) if schemas is None else schemas.checked(key, value, replaces=replaces)
        value, guard = entry_writer.prepare(reducer.prepare(reads.VALUE, value, path=key)), owner.guard
        if guard is not None:  # Run the guard before the commit takes its lock.
            passed = value._replace(is_guarded=True)
            value = passed if is_guarded else entry_writer.guarded(guard, key, self._agent, value)

        def work(writer: EntryWriter) -> tuple[EntryRecord, Any]:
            found = writes.find(writer, key)
            if check is not None:
                check(found)
            if how is not None:
                kept = writes.set_anew(found, how, writer.now_us)
            else:
                kept = entry_writer.NOTHING if found is None else entry_writer.kept_of(found)
            place, write = NO_PLACE if found is None else found.event[7:10], value
            if schema is not None or (found is not None and found.event.schema is not None):
                kept, write = versioned_write(schema, key, found, kept, value, replaces=replaces)
            made = entry_writer.stage(writer, EntryAct.SET, key, kept, place, write)
            if value.item is not None:
                return made, None
            # Read a merged value now: after the commit, another process may overwrite it, and retention remove it.
            return made, reads.read_value(writer.batch.workspace(writer.board, []), made.event)

        made, merged = self._act(work, fence=fence)
        entry = entry_of(self._session, made, merged if value.item is None else cbor.decode(value.item))
        if not rights.is_bound or rights.may("read", key):
            return entry
        # A handle that may not read the entry gets only the fields that it has written.
        return replace(entry, created=entry.time, claim=None, attempts=0)

    def _act(self, work: Callable[[EntryWriter], Any], *, sweeps: bool = True, fence: Fence | None = None) -> Any:
        session = self._session
        check = None if fence is None else fence_check(session, fence)
        at_once = session if type(session) is StoreSession else None

        def commit(batch: Batch) -> Any:
            if check is not None:
                check(batch)
            writer = writes.begin(batch, self._agent)
            result = work(writer)
            # Do not sweep within a transaction, because the sweep would scan all staged index changes.
            if sweeps and at_once is not None and batch.memory.expiries_us.get(writer.board, 0) <= writer.now_us:
                writes.sweep(writer, writes.EXPIRED_MAX)
            return result

        result = session.act(commit)
        if at_once is not None and is_turn():
            with suppress(StatelogError):  # The write is committed, so a failing policy must not raise.
                take_turn(at_once)
        return result

    def prune(
        self,
        pattern: str = "**",
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
    ) -> RetentionReport:
        """Remove old records of entries now. The current version of each entry stays.

        A record is removed if neither rule keeps it. `keep_last` keeps the last records of each key. `max_age` keeps
        records younger than that age, and also removes deletion records. Records that a watcher has not seen yet stay.
        If the watcher's process is killed, they stay for one more minute. The file does not shrink; see
        `Store.compact`.

        Args:
            pattern: a pattern of keys; see `list`.
            keep_last: the number of records to keep for each key.
            max_age: the age up to which records are kept, a timedelta or seconds.

        Raises:
            UsageError: an argument is not valid, or no rule is given.
            AccessError: the handle has rules. Agents with rules may not remove records.
        """
        session = claims.of_store(self._session, "prune")
        rule = self._rule("prune", pattern, keep_last, max_age)
        if rule.is_empty:
            raise UsageError("prune needs keep_last= or max_age=", argument="keep_last", value=None)
        return prune_board(session, rule)

    def set_retention(
        self,
        pattern: str = "**",
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
    ) -> RetentionReport:
        """Store a policy that removes old records of matching entries from now on. Apply it once now.

        The rules are as for `prune`. Writes of entries apply the policy from time to time. If several policies match
        a key, the policy with the longest pattern applies. A call without a rule removes the policy of the pattern. A
        call that changes nothing writes nothing.

        Args:
            pattern: a pattern of keys; see `list`.
            keep_last: the number of records to keep for each key.
            max_age: the age up to which records are kept, a timedelta or seconds.

        Returns:
            What was removed now.

        Raises:
            UsageError: an argument is not valid. LimitError: there are too many policies.
            AccessError: the handle has rules. Agents with rules may not remove records.
        """
        session = claims.of_store(self._session, "set_retention")
        return set_board_policy(session, self._rule("set_retention", pattern, keep_last, max_age))

    def _rule(self, verb: str, pattern: str, keep_last: int | None, max_age: timedelta | float | None) -> RetentionRule:
        compiled = compile_pattern(pattern)
        policy = make_policy(keep_last, max_age, keep_tags=True)
        if self._rights is not ALL:
            self._rights.check(verb, pattern)
        return (
            RetentionRule(compiled, None, None)
            if policy is None
            else RetentionRule(compiled, policy.keep_last, policy.max_age_s)
        )

    def erase(self, pattern: str) -> builtins.list[str]:
        """Delete all entries that match a pattern, and remove all their records. Return the keys.

        Afterwards no read returns a value of these entries, not even `history`, `get(at=)` or `rollback`.
        `Store.compact` removes their bytes from the file. Unlike `prune`, it removes records that a watcher has not
        seen yet. The watch then raises CursorExpiredError, and its program must list the entries again. If the process
        dies during the call, some of the entries are deleted. Then the same call finishes the work, and returns all
        keys that it finds. The keys of deleted entries may stay in the file as long as a watcher needs the records of
        the deletions.

        Args:
            pattern: see `list`. A key is a pattern that matches one entry.

        Raises:
            UsageError: the pattern is not valid, or the board belongs to a transaction.
            AccessError: the handle has rules. Agents with rules may not remove records.
        """
        session = claims.of_store(self._session, "erase")
        compiled = compile_pattern(pattern)
        self._rights.check_reserved("pattern", pattern)
        if self._rights.is_bound:
            self._rights.check("erase", pattern)
        return erase_entries(session, compiled)

    # --- schema versions ------------------------------------------------------------------

    def schema(self, pattern: str, schema: Versioned[Any, Any]) -> None:
        """Declare a versioned schema for the entries whose keys match a pattern.

        The declaration applies to all `Board` objects of this open store, including the boards of transactions and
        snapshots. Nothing is written. If several patterns match a key, the pattern with the most characters before its
        first wildcard applies. A later declaration of a pattern replaces an earlier one.

        The value of an entry with a schema is a dict of the schema's fields. Values of older versions are returned as
        values of the declared version. A write stores the declared version, and `migrate` does so for many entries. An
        entry that was written without a schema has version 1. Reads of an entry, `claim` and watches raise
        SchemaVersionError, MissingMigrationError or MigrationError if its value cannot be returned in the declared
        version. Facts: key, stored, declared. Writes also raise these errors, even in code without the schema, and
        write nothing.

        Args:
            pattern: see `list`.
            schema: the result of `statelog.versioned`, with its steps.

        Raises:
            UsageError: an argument is not valid, or the board belongs to a transaction or a snapshot.
            AccessError: the handle has rules.

        """
        session = claims.of_store(self._session, "schema")
        compiled = compile_pattern(pattern)
        if not isinstance(schema, Versioned):
            message = f"a board needs a schema made with statelog.versioned, not {schema!r:.80}"
            raise UsageError(message, argument="schema", value=schema)
        self._check_unbound("declare", pattern)
        engine = session.engine
        engine.entry_schemas = engine.entry_schemas or EntrySchemas()
        engine.entry_schemas.declare(compiled, schema)

    def migrate(
        self, pattern: str = "**", *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> MigrationReport:
        """Convert the values of matching entries to the declared version of their schema, and store them.

        Reads and writes do not need this call, because they migrate values themselves. It makes later reads cheaper,
        and finds values that the steps cannot convert. Each migrated entry gets a new version, and keeps its claim, its
        expiry and its place in the queue. Other processes may write while it runs. If the call ends early, the next
        call skips the migrated entries. An entry that fails stays unchanged and is reported, and the other entries are
        migrated.

        Args:
            pattern: see `list`. Entries without a declared schema are left out.
            dry_run: write nothing, and report what would happen, with the first differences.
            progress: called with (number of entries processed, number of all entries).

        Raises:
            UsageError: an argument is not valid, or the board belongs to a transaction or a snapshot.
            AccessError: the handle has rules.
            StoreFullError, StorageError, ReadOnlyError: as for `set`. Entries that were migrated so far stay migrated.

        """
        from statelog.store.entry_migrations import migrate_entries

        session = claims.of_store(self._session, "migration")
        compiled = compile_pattern(pattern)
        self._check_unbound("migrate", pattern)
        check_progress(progress)
        return migrate_entries(session, compiled, self._agent, dry_run=dry_run, progress=progress)

    def _check_unbound(self, verb: str, pattern: str) -> None:
        """Raise AccessError if the handle has rules, and UsageError if the pattern is reserved."""
        self._rights.check_reserved("pattern", pattern)
        if self._rights.is_bound:
            self._rights.check(verb, pattern)

    # --- watching -------------------------------------------------------------------------

    def watch(
        self,
        pattern: str = "**",
        *,
        after: str | int | None = None,
        follow: bool = True,
        timeout_s: float | None = None,
        coalesce: bool = False,
        renew: bool = False,
        progress_s: float | None = None,
    ) -> Watch:
        """Return an iterator of the events of all entries that match a pattern.

        Each event is returned exactly once, in the order of the log. To continue after a crash, store `event.cursor`,
        and watch again after that cursor. Events are on the disk before the iterator returns them.

        Args:
            pattern: see `list`.
            after: the cursor or LSN after which to begin. If it is left out, the watch begins with events from now on;
                without `follow`, it begins after the last event that retention has removed.
            follow: wait for more events at the end, instead of stopping.
            timeout_s: with `follow`, stop after this time without an event.
            coalesce: if several events of a key are available at the same time, return only the last one.
            renew: also return renewals of claims.
            progress_s: after this time without an event, return an event of kind `progress`, which has the current
                cursor of the watch.

        Raises:
            CursorError: `after` belongs to a different history. Facts: cursor.
            CursorExpiredError: retention has removed some events after the cursor. Facts: cursor, oldest.
            UsageError: an argument is not valid, or the board belongs to a transaction or a snapshot.
        """
        session = claims.of_store(self._session, "watch")
        self._rights.check_any("watch", pattern)
        for flag, value in (("follow", follow), ("coalesce", coalesce), ("renew", renew)):
            check_flag(flag, value)
        for argument, seconds in (("timeout_s", timeout_s), ("progress_s", progress_s)):
            if seconds is not None:
                check_seconds(argument, seconds, is_zero_allowed=argument == "timeout_s")
        return Watch(
            session,
            pattern,
            partial(self._rights.may, "watch"),
            after=after,
            follow=follow,
            timeout_s=timeout_s,
            coalesce=coalesce,
            renew=renew,
            progress_s=progress_s,
        )

    # --- claims and leases ----------------------------------------------------------------

    def claim(
        self,
        pattern: str | Sequence[str],
        *,
        lease_s: float = 60.0,
        wait_s: float = 0.0,
        max_attempts: int | None = None,
        dead: str | None = None,
        unless: Sequence[str] = (),
    ) -> Claim | None:
        """Claim the entry with the highest priority; among equals, the oldest. An entry has one claim at a time.

        The claim is on the disk before it is returned. It lasts `lease_s` seconds, and `renew` restarts this time.
        After that, another process may claim the entry, so no clean-up is needed after a process has died.

        Args:
            pattern: a pattern of keys, see `list`, or several patterns. One of the matching entries is claimed.
            lease_s: the duration of the claim.
            wait_s: the maximum time to wait for an entry. The longest waiter is woken first.
            max_attempts: the number of claims after which an entry is not claimed again.
            dead: the prefix to which an entry is moved after `max_attempts` claims. Entries below this prefix are not
                claimed.
            unless: prefixes of keys. Entries below these prefixes are not claimed, even if a pattern matches.

        Returns:
            The claim, or None if no entry became available in time.

        Raises:
            UsageError: an argument is not valid, or the board belongs to a transaction or a snapshot.
        """
        how: dict[str, Any] = {"max_attempts": max_attempts, "dead": dead, "unless": unless}
        return attempt_claim(self, pattern, lease_s=lease_s, wait_s=wait_s, **how).take_in_time(wait_s)

    def claim_of(self, key: str, token: int, *, max_attempts: int | None = None, dead: str | None = None) -> Claim:
        """Return a `Claim` object for an existing claim, given its token, for example in a different process.

        `max_attempts` and `dead` apply when `fail` is called on the claim.

        Raises:
            LeaseLostError: the claim has ended, or the handle has rules and another agent made the claim. Facts: key,
                token.
        """
        check_key(key)
        self._rights.check("claim", key)
        if type(token) is not int:
            raise UsageError(f"token must be an int, not {token!r}", argument="token", value=token)
        wanted = ClaimFilter(
            (compile_pattern(key),),
            partial(self._rights.may, "claim"),
            max_attempts,
            dead,
            partial(self._rights.check, "write"),
        )
        _check_attempts(max_attempts, dead, self._rights)
        return claims.claim_again(self._session, self._agent, self._rights, wanted, key, token)

    def lease(self, name: str, *, ttl_s: float = 30.0, wait_s: float = 0.0, auto_renew: bool = True) -> Lease:
        """Acquire the lease called `name`: `with board.lease("thread/42") as lease: ...`.

        The end of the block releases it.

        The lease is on the disk before it is returned. It lasts `ttl_s` seconds, and is renewed until the block ends.
        If the holder is suspended for longer, another process may take over the lease. After that, each write with the
        old lease as its `fence` raises LeaseLostError. So pass the lease as `fence` to each write that must not happen
        twice.

        Args:
            name: a valid key. There need not be an entry with this key.
            ttl_s: the time that other processes must wait after the holder was killed.
            wait_s: the maximum time to wait for the lease. Waiters get it in order of arrival.
            auto_renew: False for work that may hang. Call `renew` yourself in that case.

        Raises:
            LeaseHeldError: another holder kept the lease until the timeout. Facts: name, holder, expires.
            UsageError: an argument is not valid, or the board belongs to a transaction or a snapshot.
        """
        attempt = attempt_lease(self, name, ttl_s=ttl_s, wait_s=wait_s, auto_renew=auto_renew)
        lease = attempt.take_in_time(wait_s)
        if lease is None:
            raise attempt.refusal()
        return lease

    def leases(self) -> builtins.list[LeaseInfo]:
        """Return the leases that were not released, sorted by name, including those past their deadlines."""
        with self._session.read() as view:
            found = holders.leases(view)
            return [claims.lease_info(each) for each in found if self._rights.may("lease", each.event.key[1:])]


def attempt_claim(
    board: Board,
    pattern: str | Sequence[str],
    *,
    lease_s: float,
    wait_s: float = 0.0,
    max_attempts: int | None = None,
    dead: str | None = None,
    unless: Sequence[str] = (),
) -> ClaimAttempt:
    """Return an object that tries to make a claim. See `Board.claim`."""
    rights = board._rights  # noqa: SLF001 - of this file
    some = [pattern] if isinstance(pattern, str) or not isinstance(pattern, Sequence) else pattern
    if not some:
        raise UsageError("a claim needs at least one pattern", argument="pattern", value=pattern)
    patterns = tuple(map(compile_pattern, some))
    for each in some:
        rights.check_reserved("pattern", each)
        rights.check_any("claim", each)
    check_seconds("lease_s", lease_s)
    check_seconds("wait_s", wait_s, is_zero_allowed=True)
    _check_attempts(max_attempts, dead, rights)
    if not isinstance(unless, Sequence):
        message = f"unless must be a list of key prefixes, not {unless!r}"
        raise UsageError(message, argument="unless", value=unless)
    shunned = (unless,) if isinstance(unless, str) else tuple(unless)
    for each in shunned:
        check_prefix(each or "/")
    may, check_write = partial(rights.may, "claim"), partial(rights.check, "write")
    wanted = ClaimFilter(patterns, may, max_attempts, dead, check_write, shunned)
    return ClaimAttempt(board._session, board._agent, rights, wanted, lease_s)  # noqa: SLF001 - likewise


def attempt_lease(board: Board, name: str, *, ttl_s: float, wait_s: float, auto_renew: bool) -> LeaseAttempt:
    """Return an object that tries to take a lease. See `Board.lease`."""
    check_key(name)
    board._rights.check("lease", name)  # noqa: SLF001 - of this file
    check_seconds("ttl_s", ttl_s)
    check_seconds("wait_s", wait_s, is_zero_allowed=True)
    check_flag("auto_renew", auto_renew)
    return LeaseAttempt(board._session, board._agent, name, ttl_s, is_renewed=auto_renew)  # noqa: SLF001 - likewise


def own_board(held: Holder[AnySession], *, agent: str | None = None) -> Board:
    """Return a board for other packages of statelog, which may also write, claim and lease below `durable/`."""
    if not hasattr(held, "_session"):
        raise UsageError(f"{held!r} is not a store", argument="store", value=held)
    board = Board(session_of(held), agent)
    board._rights = OWN  # noqa: SLF001 - of this file
    return board


def _check_attempts(max_attempts: int | None, dead: str | None, rights: Rights) -> None:
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
        message = f"max_attempts must be a positive int, not {max_attempts!r}"
        raise UsageError(message, argument="max_attempts", value=max_attempts)
    if dead is not None:
        check_directory("dead", dead)
        rights.check_reserved("dead", dead)
        if max_attempts is None:
            raise UsageError(
                "dead= needs max_attempts=, the number of claims after which an entry is moved",
                argument="dead",
                value=dead,
            )


_PLAIN = (0, entry_writer.EntryFields())
"""The result of `_check_how` for the default options."""


def _check_how(ttl_s: float | None, priority: int, delay_s: float | None) -> tuple[int, EntryFields]:
    """Check the options of a write. Return the delay in microseconds, and the entry's new fields (expiry and rank)."""
    if ttl_s is None and delay_s is None and priority == 0 and type(priority) is int:
        return _PLAIN
    if ttl_s is not None:
        check_seconds("ttl_s", ttl_s)
    if delay_s is not None:
        check_seconds("delay_s", delay_s, is_zero_allowed=True)
    check_priority(priority)
    return to_us(delay_s or 0), entry_writer.EntryFields(expires_us=to_us(ttl_s or 0), rank=RANK - priority)
