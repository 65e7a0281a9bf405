"""Threads: sequences of checkpoints. A `Thread` object reads and writes one branch of a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from statelog.errors import (
    BranchNotFoundError,
    CheckpointNotFoundError,
    SchemaError,
    StatelogError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.format import cbor, keys
from statelog.kernels import KIND_DICT
from statelog.limits import GRAPH_CHANNEL
from statelog.log import operations as writer
from statelog.log.batch import Head, settled_view
from statelog.log.care.policies import POLICY_STEP_VERSIONS
from statelog.log.events import MAIN, SCHEMA_KEY_ITEM, schema_version
from statelog.log.kinds.entries import OWN_IDS
from statelog.log.names import check_name
from statelog.redaction import hidden
from statelog.schema import Schema, reconcile
from statelog.schema.typed import D, Fields, S, Untyped, W, Written
from statelog.store.arguments import check_durable, check_flag, seen
from statelog.store.checkpoint import Checkpoint, event_of, head_of
from statelog.store.fences import fence_check, fenced
from statelog.store.state import state_of
from statelog.store.views import EMPTY_STATE, MapView
from statelog.store.writes import (
    NO_METADATA,
    check_thread_id,
    encode_metadata,
    leaves_beside,
    prepare_writes,
    written_item,
)
from statelog.tree.mapping import empty_root
from statelog.tree.node import ROOT
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from statelog.log.batch import Batch
    from statelog.log.step import PreparedWrite
    from statelog.log.view import View
    from statelog.store.branches import BranchInfo
    from statelog.store.fences import Fence
    from statelog.store.mount import Mount, Mountable
    from statelog.store.session import AnySession, Outcome
    from statelog.store.sizes import StateSize
    from statelog.store.targets import Target
    from statelog.tree.node import Workspace

T = TypeVar("T")

_GRAPH_CHANNEL = GRAPH_CHANNEL.encode()


class Thread(Written[S, W]):
    """One branch of one thread of a store.

    Nothing is written before the first commit. All methods may be called from several OS
    threads, tasks and processes at once.
    """

    _head_seen: tuple[int | None, Head | None] = (None, None)
    """The number of the store's last commit when the head was read, and the head.

    They are valid until the next commit.
    """

    _include_quarantined = False
    """Whether reads return values that a check has quarantined."""

    _is_migrated = False
    """Whether the head had the declared version of the schema when it was last read."""

    _kept: bool | None = None
    """Whether this is a thread of LangGraph, so that LangGraph's ids select the checkpoint to show.

    None until this is known.
    """

    _state_seen: tuple[int | None, Head | None, MapView] = (None, None, EMPTY_STATE)
    """The commit number and the head as in `_head_seen`, and the state of that head, which is a read-only view."""

    def __init__(
        self,
        session: AnySession,
        thread_id: str,
        schema: object = None,
        branch: str | None = None,
        *,
        recreate: bool = False,
    ) -> None:
        check_thread_id(thread_id)
        check_flag("recreate", recreate)
        if thread_id in OWN_IDS:
            message = f"thread {thread_id!r} has the records of the board: use store.board()"
            raise UsageError(message, argument="thread id", value=thread_id)
        self._session = session
        self._id = thread_id
        self._follows = branch is None
        self._branch = branch = MAIN if branch is None else branch
        self._given = Schema.of(schema)
        self._schema = self._given
        self._declared = self._given if schema is not None else None
        lineage = self._given.lineage
        if lineage is not None:
            from statelog.store.foreign_threads import check_not_foreign

            check_not_foreign(thread_id)
        self._declared_version: int | None = 1 if lineage is None else lineage.version
        self._missing_specs: dict[str, str] = {}
        self._lsn: int | None = None
        self._branch_number: int | None = None
        self._has_branches = False
        self._may_recreate = recreate
        with session.read() as view:
            if not self._resolve(view) and branch != MAIN and self._lsn is not None:
                self._resolve_line(view, self._lsn)
        if recreate and self._lsn is not None:
            message = f"thread {thread_id!r} is not deleted: only a deleted thread can be re-created"
            raise UsageError(message, argument="recreate", thread=thread_id)
        if branch != MAIN and self._branch_number is None:
            raise no_branch(thread_id, branch)

    @property
    def id(self) -> str:
        """The caller's stable id."""
        return self._id

    @property
    def branch(self) -> str:
        """The branch of this object."""
        return self._branch

    def __repr__(self) -> str:
        from statelog.display.lines import thread_line

        return cbor.decoded_loosely(thread_line, self)

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:
        yield from (("id", hidden(self._id)), ("branch", hidden(self._branch)), ("version", self.version))

    def __rich__(self) -> object:
        from statelog.display.terminal import thread_table

        return cbor.decoded_loosely(thread_table, self)

    def _repr_html_(self) -> str:
        from statelog.display.notebook import thread_html

        return cbor.decoded_loosely(thread_html, self)

    # --- state ----------------------------------------------------------------------

    @property
    def head(self) -> Checkpoint[S] | None:
        """The last checkpoint of the branch, or None before the first commit."""
        _snapshot, head = self._look()
        return None if head is None else self._wrap(head)

    def _look(self) -> tuple[int | None, Head | None]:
        """Return the number of the store's last commit (None inside a transaction), and the head."""
        with self._session.read() as view:
            snapshot = view.snapshot_id()
            seen, head = self._head_seen
            if snapshot is None or snapshot != seen:
                if not self._resolve(view):
                    return snapshot, None
                found = view.head_checkpoint(*self._ids(view))
                head = None if found is None else Head(*found)
        if self._follows and (snapshot is None or snapshot != seen) and self._is_kept(head):
            from statelog.store import frameworks

            latest = frameworks.keeper().latest(self, self._id)
            head = None if latest is None else head_of(latest)
        self._head_seen = (snapshot, head)
        return snapshot, head

    def _is_kept(self, head: Head | None) -> bool:
        """Return True for a thread of LangGraph. `head`, the head of the branch `main`, shows whether it is one."""
        if self._kept is None and head is not None and head.event.version > 0:
            self._kept = _GRAPH_CHANNEL in head.event.written or (
                self._has_branches and GRAPH_CHANNEL in self._wrap(head)._read_state()  # noqa: SLF001 - as above
            )
        return self._kept is True

    def _shown(self) -> Checkpoint[S] | None:
        """Return the checkpoint that LangGraph shows for a thread of LangGraph; None for any other thread."""
        if self._kept is False or not self._follows:
            return None
        head = self.head
        return head if self._kept else None

    def _is_langgraphs(self) -> bool:
        """Return True if the branch belongs to LangGraph."""
        from statelog.store import frameworks

        if not frameworks.is_line(self._branch):
            return False
        if self._kept is None:
            main: Thread[Any, Any] = Thread(self._session, self._id)
            main._look()
            self._kept = main._kept
        return self._kept is True

    def _read_state(self) -> MapView:
        seen, former, state = self._state_seen
        if seen is not None and seen == self._session.last_commit_id():
            return state
        snapshot, head = self._look()
        if head is None:
            state = EMPTY_STATE
        elif former is None or former.digest != head.digest or former.event.lsn != head.event.lsn:
            state = self._wrap(head)._read_state()  # noqa: SLF001 - `state`, past its types
        self._state_seen = (snapshot, head, state)
        return state

    state = state_of(
        _read_state, "The channels of the head: a mapping that reads values on access; empty before the first commit."
    )
    """The channels of the head: a mapping that reads values on access. It is empty before the first commit."""

    @property
    def version(self) -> int:
        """The head's version, -1 before the first commit."""
        if self._follows and self._kept is not False:
            head = self.head
            return -1 if head is None else head.version
        with self._session.read() as view:
            return view.head_version(*self._ids(view)) if self._resolve(view) else -1

    def size(self) -> StateSize:
        """Return the size of the head's state and of each channel: bytes, shared bytes, and items. See `StateSize`."""
        from statelog.store.sizes import EMPTY

        head = self.head
        return EMPTY if head is None else head.size()

    def _wrap(self, head: Head) -> Checkpoint[S]:
        return Checkpoint(self._session, self._id, head, self._declared, include_quarantined=self._include_quarantined)

    # --- writing --------------------------------------------------------------------

    def commit(
        self,
        *writes: W,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        id: str | None = None,
        durable: bool | Literal["remote"] | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """Merge writes into the head's channels and commit the result as the new head.

        Args:
            writes: one or more updates, each a dict of channel names and values. They are merged in order, like the
                parallel writes of one superstep.
            metadata: metadata of the checkpoint.
            expected_version: the expected version of the head, -1 before the first commit. Or the expected head itself,
                which also differs from a head with the same version in a re-created thread.
            id: the checkpoint's id. By default, a generated id.
            durable: True returns when the commit is on the disk. False leaves the flush to the next commit or to the
                interval. The default is the `durability=` of the store. "remote" returns when a fleet has shipped the
                commit.
            fence: a lease or a claim of the board. If it has ended, nothing is written.

        Raises:
            LeaseLostError: `fence` has ended.
            ConflictError: the head is not at `expected_version`.
            AlreadyExistsError: `id` is in use in this thread.
            ValueTypeError, ValidationError, ChannelError, ReducerTypeError, LimitError: a write
                cannot be stored or merged. The message names channel and path.
            SizeLimitError: a channel or the state would exceed a limit set by `Store.limit`.
            StoreFullError: the quota or the disk is used up.

        In each case nothing was written.

        Raises:
            StorageError: the flush failed. The commit is visible, but may be lost in a power failure.
        """
        if durable is not None:
            check_durable(durable, self._session.owner.remote)
        made = self._commit_writes(
            prepare_writes(self._schema, writes),
            metadata,
            expected_version=expected_version,
            checkpoint_id=id,
            is_flushed=durable is not False,
            fence=fence,
        )
        if durable:
            self._session.make_durable(is_remote=durable == "remote")
        return made

    def _commit_writes(
        self,
        prepared: list[PreparedWrite] | Callable[[Workspace, Head | None], list[PreparedWrite]],
        metadata: Mapping[str, Any] | None,
        *,
        expected_version: int | Checkpoint | None = None,
        checkpoint_id: str | None = None,
        is_flushed: bool = True,
        fence: Fence | None = None,
        is_guarded: bool = False,
    ) -> Checkpoint[S]:
        """Commit writes that are already prepared, or that a function makes from the head within the commit.

        With `is_guarded`, the writes have already passed the guard.
        """
        if self._schema.lineage is not None and not self._is_migrated and self._session.is_final:
            self._migrate_ahead()
        metadata_item = NO_METADATA if metadata is None else encode_metadata(metadata)
        written = b"" if callable(prepared) else written_item(prepared)
        expected = seen(expected_version) if isinstance(expected_version, Checkpoint) else expected_version
        guard = self._session.owner.guard
        # Run the guard before the commit acquires its lock.
        if guard is not None and not is_guarded and not callable(prepared):
            prepared, metadata_item = writer.guarded(guard, self._id, prepared, metadata_item)
            is_guarded = True
        work: Callable[[Batch], Head] = partial(
            self._commit_in, prepared, metadata_item, written, expected, checkpoint_id, is_guarded
        )
        if fence is not None:
            work = fenced(self._session, work, fence)
        made = self._checkpoint_made(self._session.write(work, is_flushed=is_flushed))
        self._is_migrated = True
        return made

    def _commit_in(
        self,
        prepared: Sequence[PreparedWrite] | Callable[[Workspace, Head | None], list[PreparedWrite]],
        metadata_item: bytes,
        written: bytes,
        expected_version: int | writer.Seen | None,
        checkpoint_id: str | None,
        is_guarded: bool,  # noqa: FBT001 - of a partial
        batch: Batch,
    ) -> Head:
        thread, branch = self._ids_for_writing(batch)
        if self._kept is not False:
            main = batch.head(thread, 0)
            if self._kept or (main is not None and _GRAPH_CHANNEL in main.event.written):
                from statelog.store import frameworks

                if frameworks.is_line(self._branch):
                    raise frameworks.refused(self._id)
            elif main is not None and main.event.version > 0 and not self._has_branches:
                # LangGraph does not continue a thread that it has not begun, so do not check this again.
                self._kept = False
        writes = prepared(batch.reader(), batch.head(thread, branch)) if callable(prepared) else prepared
        if self._schema.lineage is not None:
            writes, written = self._with_migration(batch, thread, branch, writes, written, is_guarded=is_guarded)
        made = writer.commit(
            batch,
            self._id,
            thread,
            branch,
            writes,
            metadata=metadata_item,
            written=written or written_item(writes),
            expected_version=expected_version,
            checkpoint_id=checkpoint_id,
            known=leaves_beside(batch, thread, branch) if branch else (),
            is_guarded=is_guarded,
            declared=self._declared_version,
        )
        limits = self._session.owner.limits
        if limits is not None:
            limits.check(batch, self._id, made)
        return made

    def _with_migration(
        self,
        batch: Batch,
        thread: int,
        branch: int,
        writes: Sequence[PreparedWrite],
        written: bytes,
        *,
        is_guarded: bool,
    ) -> tuple[Sequence[PreparedWrite], bytes]:
        """Add writes that first migrate the head to the declared version.

        Return all writes, and the item of their channels.

        Raises:
            SchemaVersionError: the head has a newer version.
        """
        head = batch.head(thread, branch)
        if head is None or schema_version(head.event.metadata) == self._declared_version:
            return writes, written
        from statelog.store.migration import migration_writes

        migrating = migration_writes(self._session, self._id, head.event, self._schema, batch.reader())
        if is_guarded and batch.guard is not None:
            migrating, _ = writer.guarded(batch.guard, self._id, migrating, NO_METADATA)
        return [*migrating, *writes], b""

    def _migrate_ahead(self) -> int:
        """Migrate an older head in memory before a commit takes its lock. Return the size of the new nodes."""
        _snapshot, head = self._look()
        if head is None or schema_version(head.event.metadata) == self._declared_version:
            self._is_migrated = True
            return 0
        if self._is_langgraphs():
            from statelog.store import frameworks

            raise frameworks.refused(self._id)
        from statelog.store.migration import migrate_ahead

        return migrate_ahead(self._session, self._id, head.event, self._schema)

    def _migrate_in(self, batch: Batch) -> bool:
        """Stage a version with the head's state at the declared version. Return False if the head has that version."""
        ids = self._ids(batch.view)
        head = batch.head(*ids)
        if head is None or schema_version(head.event.metadata) == self._declared_version:
            return False
        if head.event.lsn <= batch.memory.end.lsn:  # The head is not staged, so it need not be read again.
            batch.memory.heads[ids] = head
        self._commit_in([], NO_METADATA, b"", None, None, False, batch)  # noqa: FBT003 - of a partial elsewhere
        return True

    def _tree_at(self, workspace: Workspace, head: Head | None) -> Tree:
        """Return the state of a head within a commit, in the declared version of the schema."""
        if head is None:
            return Tree(workspace, empty_root(KIND_DICT))
        event = head.event
        if self._declared is None or (self._declared.lineage is None and SCHEMA_KEY_ITEM not in event.metadata):
            return Tree(workspace, workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node))
        from statelog.store.migration import declared_tree

        return declared_tree(self._session, self._id, event, self._declared, workspace, in_commit=True)

    def _checkpoint_made(self, outcome: Outcome) -> Checkpoint[S]:
        """Return the checkpoint of a commit.

        A failure of the retention policy does not raise, because the commit is done.
        """
        try:
            if self._branch_number is None or self._missing_specs:
                self._learn()
            head = outcome if type(outcome) is Head else outcome.head
            if not (head.event.version + 1) % POLICY_STEP_VERSIONS:
                self._session.after_commit(head)
        except StatelogError:  # The commit is done, so do not raise.
            pass
        limits = self._session.owner.limits
        if limits is not None:
            limits.warn(self._id)
        return Checkpoint(
            self._session, self._id, outcome, self._declared, include_quarantined=self._include_quarantined
        )

    def _mountable(self, fence: Fence | None = None) -> Mountable:
        """Return the parts of this thread that mounts use."""
        from statelog.store.mount import Mountable

        return Mountable(
            id=self._id,
            session=self._session,
            read_head=lambda: self.head,
            read_version=lambda: self.version,
            read_schema=lambda: self._schema,
            read_tree=self._tree_at,
            commit_writes=self._commit_writes if fence is None else partial(self._commit_writes, fence=fence),
        )

    def rollback(
        self,
        target: Target,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """Append a checkpoint with the state of an earlier one.

        This costs as much as the smallest commit, whatever the distance and the size of the state. Nothing is
        deleted, so a rollback to the previous head undoes this one. In a thread of LangGraph, the new checkpoint is one
        of LangGraph's, so `graph.get_state` and the next run see it.

        Args:
            target: as for `at`.
            metadata: metadata of the new checkpoint.
            expected_version: as for `commit`.
            fence: as for `commit`.

        Raises:
            CheckpointNotFoundError, ExpiredError: the checkpoint does not exist or was removed.
            ConflictError: the head is not at `expected_version`.
            UsageError: this is a thread of LangGraph, and the target is not one of its root checkpoints, or cannot be
                copied. The message explains how to go back.
        """
        if self._is_langgraphs():
            from statelog.store import frameworks

            return frameworks.keeper().roll_back(
                self,
                self._id,
                self.at(target),
                metadata={} if metadata is None else metadata,
                expected=seen(expected_version),
                check=fence_check(self._session, fence),
            )
        metadata_item = NO_METADATA if metadata is None else encode_metadata(metadata)

        def work(batch: Batch) -> Head:
            thread, branch = self._ids_at_commit(batch)
            found = self._find(settled_view(batch), thread, branch, target)
            return writer.rollback(
                batch,
                self._id,
                thread,
                branch,
                found,
                metadata=metadata_item,
                expected_version=seen(expected_version),
            )

        return self._checkpoint_made(self._session.write(fenced(self._session, work, fence)))

    def fork(
        self,
        name: str,
        *,
        at: Target | None = None,
        update: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        fence: Fence | None = None,
    ) -> Thread[S, W]:
        """Create a branch that shares everything up to a version, and return it.

        Args:
            name: the name of the branch.
            at: the last shared version. By default, the head.
            update: the first commit on the new branch, in the same transaction.
            metadata: metadata of the first commit.
            fence: as for `commit`.

        Raises:
            AlreadyExistsError: the thread has a branch with this name.
            CheckpointNotFoundError, ExpiredError: the version does not exist or was removed.

        It also raises the errors of `commit` for `update`. After an error, nothing was written.
        """
        if (shown := self._shown()) is not None:
            base = shown if at is None else self.at(at)
            return self.checkout(shown.branch).fork(name, at=base, update=update, metadata=metadata, fence=fence)
        prepared = prepare_writes(self._schema, (update,)) if update is not None else []
        metadata_item = encode_metadata(metadata)
        written = written_item(prepared)
        guard = self._session.owner.guard
        if guard is not None:
            prepared, metadata_item = writer.guarded(guard, self._id, prepared, metadata_item)

        def work(batch: Batch) -> None:
            thread, branch = self._ids(batch.view)
            base = self._fork_base(batch, thread, branch, at)
            number = writer.fork(batch, self._id, thread, name, base)
            if update is not None:
                writes: Sequence[PreparedWrite] = prepared
                of = written
                if self._schema.lineage is not None:
                    writes, of = self._with_migration(
                        batch, thread, number, prepared, written, is_guarded=guard is not None
                    )
                made = writer.commit(
                    batch,
                    self._id,
                    thread,
                    number,
                    writes,
                    metadata=metadata_item,
                    written=of or written_item(writes),
                    expected_version=None,
                    checkpoint_id=None,
                    is_guarded=guard is not None,
                    declared=self._declared_version,
                )
                if (limits := self._session.owner.limits) is not None:
                    limits.check(batch, self._id, made)

        self._session.act(fenced(self._session, work, fence))
        if (limits := self._session.owner.limits) is not None:
            limits.warn(self._id)
        return self.checkout(name)

    def _fork_base(self, batch: Batch, thread: int, branch: int, at: Target | None) -> tuple[int, int]:
        if at is None:
            head = batch.head(thread, branch)
            if head is None:
                message = f"thread {self._id!r} has no checkpoint to fork from"
                raise CheckpointNotFoundError(message, thread=self._id, branch=self._branch, target=None)
            return branch, head.event.version
        event = self._find(batch.view, thread, branch, at).event
        version = event.version
        # A version of the given branch is forked from that branch, and any other version from its own branch.
        on_line = batch.view.owner(thread, branch, version) == event.branch
        return (branch if on_line else event.branch), version

    def checkout(self, branch: str) -> Thread[S, W]:
        """Return this thread on another branch. Raises BranchNotFoundError, or UsageError if the name is not valid."""
        check_name("branch", branch)
        made: Thread[S, W] = Thread(self._session, self._id, self._schema_for_copy(), branch)
        return made._including_quarantined() if self._include_quarantined else made

    def _including_quarantined(self) -> Self:
        """Make reads of this object return quarantined values, and return the object."""
        self._include_quarantined = True
        return self

    def _schema_for_copy(self) -> object:
        return self._declared

    # --- looking back -----------------------------------------------------------------

    def at(self, target: Target) -> Checkpoint[S]:
        """Return a checkpoint of this branch.

        Args:
            target: a version (an int; -1 is the head, -2 the one before it); a tag, an id or a time in ISO 8601
                (a str; tried in this order); a time (a datetime). A time means the last checkpoint at or before
                it, and is local without an offset.

        Raises:
            CheckpointNotFoundError: the checkpoint does not exist.
        """
        if (shown := self._shown()) is not None:
            return self._at_or_below(shown, target)
        with self._session.read() as view:
            thread, branch = self._ids(view)
            head = self._find(view, thread, branch, target)
        return self._wrap(head)

    def _at_or_below(self, shown: Checkpoint[S], target: Target) -> Checkpoint[S]:
        """Find the target as if `shown` were the head.

        Negative versions count from `shown`. A time after `shown` selects `shown`.
        """
        line = self.checkout(shown.branch)
        if type(target) is int:
            version = target if target >= 0 else target + shown.version + 1
            if not 0 <= version <= shown.version:
                from statelog.store.targets import no_checkpoint

                raise no_checkpoint(self._id, shown.branch, target, shown.version)
            return line.at(version)
        found = line.at(target)
        is_above = event_of(found).branch == event_of(shown).branch and found.version > shown.version
        is_named = isinstance(target, Checkpoint) or found.id == target
        return shown if is_above and not is_named and target not in line.tags() else found

    def _find(self, view: View, thread: int, branch: int, target: Target) -> Head:
        from statelog.store.targets import Line, find_checkpoint

        return find_checkpoint(view, tuple.__new__(Line, (self._id, self._branch, thread, branch)), target)

    def history(self, limit: int | None = None, *, before: int | None = None) -> Iterator[Checkpoint[S]]:
        """Yield the branch's checkpoints, newest first, back to version 0.

        For a thread of LangGraph, if no branch was selected with `branch=`, checkpoints that LangGraph has pruned are
        left out.

        Args:
            limit: the maximum number of checkpoints.
            before: return only versions below this one.

        No transaction is open while the caller works. Commits during the iteration do not change its result.
        """
        from statelog.store.history import iterate_history

        shown = self._shown()
        if self._follows and self._kept:
            from statelog.store import frameworks

            bound = 0 if shown is None else shown.version + 1  # LangGraph may have removed every checkpoint.
            find = self.checkout(self._branch if shown is None else shown.branch)._ids_if_any  # noqa: SLF001 - own class
            if before is None or (type(before) is int and before > bound):
                before = bound
            is_shown = frameworks.keeper().shows(self, self._id)
            return iterate_history(self._session, find, self._wrap, limit, before, is_shown)
        return iterate_history(self._session, self._ids_if_any, self._wrap, limit, before)

    # --- names ----------------------------------------------------------------------------

    def branches(self) -> list[BranchInfo]:
        """Return the thread's branches in order of creation."""
        from statelog.store.branches import list_branches

        with self._session.read() as view:
            ids = self._ids_if_any(view)
            return [] if ids is None else list_branches(view, ids[0])

    def tag(self, name: str, target: Target | None = None) -> Checkpoint[S]:
        """Tag a checkpoint, by default the head. If the tag is already in use, move it to this checkpoint.

        Raises CheckpointNotFoundError if the checkpoint does not exist, and LimitError if the name is too long.
        """
        if target is None and (shown := self._shown()) is not None:
            target = shown

        def work(batch: Batch) -> Head:
            thread, branch = self._ids(batch.view)
            head = batch.head(thread, branch) if target is None else self._find(batch.view, thread, branch, target)
            if head is None:
                message = f"thread {self._id!r} has no checkpoint to tag"
                raise CheckpointNotFoundError(message, thread=self._id, branch=self._branch, target=None)
            writer.tag(batch, thread, name, head.event.lsn)
            return head

        return Checkpoint(self._session, self._id, self._session.write(work), self._declared)

    def untag(self, name: str) -> None:
        """Remove a tag. Raises CheckpointNotFoundError if the tag does not exist."""

        def work(batch: Batch) -> None:
            thread, _branch = self._ids(batch.view)
            check_name("tag", name)
            if batch.get_index(keys.encode_tag_key(thread, name)) is None:
                message = f"thread {self._id!r} has no tag {name!r}"
                raise CheckpointNotFoundError(message, thread=self._id, branch=self._branch, target=name)
            writer.tag(batch, thread, name, 0)

        self._session.act(work)

    def tags(self) -> dict[str, Checkpoint[S]]:
        """Return the thread's tags and their checkpoints."""
        from statelog.store.targets import head_at

        with self._session.read() as view:
            if not self._resolve(view):
                return {}
            thread, _branch = self._ids(view)
            prefix = keys.encode_tag_prefix(thread)
            found = [
                (key[len(prefix) :].decode(), head_at(view, thread, keys.decode_lsn(payload)))
                for key, payload in view.transaction.scan_index(prefix)
            ]
        return {name: self._wrap(head) for name, head in found if head is not None}

    @overload
    def mount(
        self: Thread[Untyped, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        lazy: bool = False,
        fence: Fence | None = None,
    ) -> AbstractContextManager[Mount]: ...
    @overload
    def mount(
        self: Thread[D, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        lazy: bool = False,
        fence: Fence | None = None,
    ) -> AbstractContextManager[D]: ...
    @overload
    def mount(
        self: Thread[Fields, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        lazy: bool = False,
        fence: Fence | None = None,
    ) -> AbstractContextManager[Mount]: ...
    def mount(
        self, *, metadata: Mapping[str, Any] | None = None, lazy: bool = False, fence: Fence | None = None
    ) -> AbstractContextManager[Any]:
        """Return a context manager whose value is the state as a mutable dict.

        A clean exit commits the changes as one checkpoint, or nothing without changes. An exception discards them.
        Channels are set, not merged with reducers. ConflictError is raised only if another commit has changed the same
        channel during the block.

        Args:
            metadata: as for `commit`.
            lazy: return large lists and dicts as `MutableSequence` and `MutableMapping`, which read on access. Use it
                for values of many megabytes of which little is read.
            fence: as for `commit`, checked at the end of the block.
        """
        from statelog.store.mount import Mounted

        return Mounted(self._mountable(fence), metadata, is_lazy=lazy)

    def edit(
        self,
        change: Callable[[Any], T],
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        id: str | None = None,
        lazy: bool = False,
        fence: Fence | None = None,
    ) -> T:
        """Call `change` inside the commit, with the state as in a mount.

        So no other commit can happen between its reads and its writes, and a conflict is impossible. The cost depends
        on the channels that `change` reads and the parts that it changes; with `lazy`, only on the parts that it reads.

        Args:
            change: called with the head's state, to change it in place. It runs while other commits wait, possibly on
                another OS thread and more than once. So it must be quick and have no other effects (a commit in it
                raises UsageError). Its exceptions are raised here, and nothing is written. For large values, create a
                `statelog.Encoded(value)` beforehand.
            metadata: as for `commit`.
            expected_version: as for `commit`.
            id: as for `commit`.
            lazy: as for `mount`.
            fence: as for `commit`.

        Return the result of `change`; in a transaction, the result of its run there. Without changes, there is no
        checkpoint, except in a transaction.

        Raises:
            UsageError: `change` is an async function, or returned a dict that looks like an update, which would be
                lost. Nothing was written.
        """
        from statelog.store.mount import edit

        return edit(
            self._mountable(fence), change, metadata, expected_version=expected_version, checkpoint_id=id, is_lazy=lazy
        )

    # --- the thread in the store -----------------------------------------------------

    def _resolve(self, view: View) -> bool:
        """Look up the numbers of the thread and the branch. Return True if they exist."""
        if self._lsn is not None and self._session.is_final:
            if not view.is_alive(self._lsn):
                return False  # A re-created thread with the same id is a different thread.
            if self._branch_number is not None:
                return True
        lsn = view.thread_lsn(self._id)
        if lsn is None:
            self._missing_specs = self._given.specs()
            return False
        row = view.thread(lsn)
        if self._declared is not None:
            self._missing_specs = reconcile(self._id, row.specs, self._given)
        else:
            self._schema = Schema.from_specs(row.specs)
            self._missing_specs = {}
        self._lsn = lsn
        self._has_branches = row.branch_count > 1
        self._branch_number = number = view.branch_number(lsn, self._branch)
        return number is not None

    def _resolve_line(self, view: View, lsn: int) -> None:
        """If the branch name is the id of a LangGraph checkpoint, use the branch with this checkpoint."""
        from statelog.store.targets import find_named

        found = find_named(view, lsn, self._branch)
        if found is not None and found.event.id == self._branch and _GRAPH_CHANNEL in found.event.written:
            self._branch_number = number = found.event.branch
            self._branch = view.branch(lsn, number).name

    def _ids(self, view: View) -> tuple[int, int]:
        if not self._resolve(view):
            self._check_not_deleted(view)
            if self._lsn is None:
                if view.is_deleted(self._id):
                    raise writer.deleted_error(self._id)
                message = f"no thread {self._id!r} in this store"
                raise ThreadNotFoundError(message, thread=self._id)
            raise no_branch(self._id, self._branch)
        assert self._lsn is not None
        assert self._branch_number is not None
        return self._lsn, self._branch_number

    def _ids_if_any(self, view: View) -> tuple[int, int] | None:
        return self._ids(view) if self._resolve(view) else None

    def _ids_at_commit(self, batch: Batch) -> tuple[int, int]:
        """Return the numbers (thread, branch). Skip the look-up if the last commit has cached the head."""
        if self._session.is_final and (self._lsn, self._branch_number) in batch.memory.heads:
            assert self._lsn is not None
            assert self._branch_number is not None
            return self._lsn, self._branch_number
        return self._ids(batch.view)

    def _ids_for_writing(self, batch: Batch) -> tuple[int, int]:
        """Return the numbers (thread, branch). Create the thread and record its schema if necessary."""
        if self._session.is_final and not self._missing_specs and self._branch_number is not None:
            assert self._lsn is not None
            row = batch.memory.rows.get(self._lsn)
            if self._schema.is_open and (row is None or row.specs or batch.index):
                self._check_still_open(batch)
            return self._lsn, self._branch_number
        self._check_not_deleted(batch.view)
        # Do not cache anything here, because the batch may fail or run again.
        lsn = batch.view.thread_lsn(self._id)
        if lsn is None:
            if self._branch != MAIN:
                raise no_branch(self._id, self._branch)
            return writer.create_thread(batch, self._id, self._given.specs(), anew=self._may_recreate), 0
        if self._declared is not None:
            added = reconcile(self._id, batch.view.thread(lsn).specs, self._given)
            if added:
                writer.extend_schema(batch, lsn, added)
        number = batch.view.branch_number(lsn, self._branch)
        if number is None:
            raise no_branch(self._id, self._branch)
        return lsn, number

    def _check_not_deleted(self, view: View) -> None:
        """Raise ThreadDeletedError if this object's thread was deleted, even if a thread with its id was re-created."""
        if self._lsn is not None and self._session.is_final and not view.is_alive(self._lsn):
            raise writer.deleted_error(self._id)

    def _check_still_open(self, batch: Batch) -> None:
        """Raise SchemaError if another handle has given the thread a schema since this object was created."""
        assert self._lsn is not None
        row = batch.find_thread(self._lsn)
        if row is not None and (specs := row.specs):
            message = f"thread {self._id!r} has a schema now: get it again with Store.thread"
            raise SchemaError(message, thread=self._id, stored=dict(specs), given={})

    def _learn(self) -> None:
        """Look up the thread and the branch that a write has created."""
        self._branch_number = None
        self._may_recreate = False
        with self._session.read() as view:
            self._resolve(view)


def no_branch(thread_id: str, branch: str) -> BranchNotFoundError:
    """Return the BranchNotFoundError for a branch of a thread."""
    message = f"thread {thread_id!r} has no branch {branch!r}"
    return BranchNotFoundError(message, thread=thread_id, branch=branch)
