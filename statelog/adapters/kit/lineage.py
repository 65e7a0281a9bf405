"""A thread as a tree of checkpoints, for frameworks that name the parent of a checkpoint instead of a branch.

The first version of such a thread is empty, and every branch begins with it. A checkpoint is committed to the branch
whose head is its parent. If the parent already has a successor, the checkpoint gets a new branch.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.kit.shared_items import (
    leaves,
    leaves_at,
    leaves_of,
    of_successors,
    similar_nodes,
    staged_leaves,
    state_of,
)
from statelog.errors import CheckpointNotFoundError, ConflictError
from statelog.format import keys
from statelog.log import operations as writer
from statelog.log.batch import Head
from statelog.log.care.policies import POLICY_STEP_VERSIONS
from statelog.log.events import MAIN
from statelog.store.checkpoint import Checkpoint, event_of, read_head
from statelog.store.session import session_of
from statelog.store.snapshot import SnapshotSession
from statelog.store.targets import find_named, head_at
from statelog.store.thread import no_branch
from statelog.store.writes import check_thread_id, encode_metadata, written_item

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.adapters.kit.shared_items import Similar, Twins
    from statelog.log.batch import Batch
    from statelog.log.events import CheckpointEvent
    from statelog.log.step import PreparedWrite
    from statelog.log.view import View
    from statelog.store.session import AnySession, Holder, Outcome
    from statelog.store.views import MapView

__all__ = ["LineHead", "Lineage"]

_NO_METADATA = encode_metadata(None)
_NOTHING_WRITTEN = written_item(())


class Follows(NamedTuple):
    """The checkpoint that a write follows. It shows whether the write was meant for the thread before its deletion."""

    time_us: int | None
    """The creation time of the checkpoint, or None if unknown."""
    id: str | None
    """The id of the checkpoint, or None if the write follows no checkpoint."""


class LineHead(NamedTuple):
    """The last checkpoint of a branch."""

    branch: str
    base_version: int
    """The version at which the branch begins. The branch's own versions are greater."""
    checkpoint: Checkpoint


class Lineage:
    """The checkpoints of one thread of a store, a snapshot or a transaction.

    Several OS threads may use one object, even while others commit.
    """

    def __init__(self, held: Holder[AnySession], thread_id: str) -> None:
        check_thread_id(thread_id)
        self._session: AnySession = session_of(held)
        self.id = thread_id
        self._number: int | None = None
        """The number of the thread, remembered only if the thread is read from a snapshot."""
        self._asides: dict[str, tuple[int, int]] = {}
        """(thread, branch number), keyed by name, of the branches to which `aside` has committed."""

    @property
    def is_of_one_moment(self) -> bool:
        """Whether reads are repeatable, because the thread is read from a snapshot."""
        return isinstance(self._session, SnapshotSession)

    # --- writing --------------------------------------------------------------------

    def commit(
        self,
        writes: Sequence[PreparedWrite],
        *,
        id: str,
        parent: Checkpoint | None,
        line: str,
        fork: str | Callable[[], str],
        metadata: Mapping[str, Any] | bytes | None = None,
        at_head: bool = False,
        counts: Callable[[MapView], bool] = lambda _state: True,
        twins: Twins | None = None,
        similar: Similar | None = None,
        follows: Follows | None = None,
        declared: int | None = None,
        before: Callable[[Batch], object] | None = None,
    ) -> Checkpoint:
        """Commit on top of a checkpoint.

        Args:
            writes: writes from `statelog.adapters.kit.items`.
            id: the checkpoint's id. It supersedes an existing checkpoint with this id: `find` returns the new one.
            parent: the parent, or None to begin with an empty state.
            line: without a parent, the branch to commit to if it has no commits.
            fork: the name of a new branch if one is needed, or a function that returns the name. If the name is in use,
                a number is added.
            metadata: metadata of the checkpoint. Bytes are an encoded item.
            at_head: raise ConflictError if a new branch is needed, except to supersede a checkpoint.
            counts: with `at_head`, a function that gets the last state of each branch that continues the parent. It
                returns True if that state counts as a successor.
            twins: where equal items may already be stored. Equal items are referenced instead of stored again.
            similar: the branches that may already store parts of the lists that this commit writes whole.
            follows: see `aside`.
            declared: the schema version of the state. By default, the schema version of the parent's branch.
            before: called first in the same commit. It may be a function from `aside`.

        Raises:
            ConflictError: `at_head` is set and the parent is not the head. Facts: thread, expected_version,
                actual_version.
            CheckpointNotFoundError: the parent has expired. ThreadDeletedError: the thread was deleted.
            LimitError, StoreFullError: as for `Thread.commit`.
        """
        encoded = metadata if isinstance(metadata, bytes) else encode_metadata(metadata)
        written = written_item(writes)

        def work(batch: Batch) -> Head:
            known: Sequence[tuple[bytes, int, int]] = ()
            if before is not None:
                before(batch)
                if twins is not None and twins.is_before:
                    known = staged_leaves(batch)
            event = None if parent is None else _event_at_head(batch, parent)
            if event is None:
                thread = self._thread_for_writing(batch, () if follows is None else (follows,))
            else:
                thread = event.thread
            is_taken = batch.has_id(thread, id)
            if event is not None:
                branch = event.branch
            else:
                refused = counts if at_head and not is_taken else None
                branch = self._line_of(batch, thread, parent, line, fork, refused)
            head = writer.commit(
                batch,
                self.id,
                thread,
                branch,
                writes,
                metadata=encoded,
                written=written,
                expected_version=None,
                checkpoint_id=None if is_taken else id,
                known=known if twins is None else [*known, *leaves(batch, thread, twins)],
                parts=() if similar is None else similar_nodes(batch, thread, similar, branch),
                declared=declared,
            )
            if (limits := self._session.owner.limits) is not None:
                limits.check(batch, self.id, head)
            if is_taken:
                writer.tag(batch, thread, id, head.event.lsn)
            return head

        return self._made(self._session.write(work))

    def commit_aside(
        self,
        branch: str,
        writes: Sequence[PreparedWrite] | Callable[[int, Sequence[str]], Sequence[PreparedWrite]],
        *,
        untag: Sequence[str] = (),
        followed: Sequence[Checkpoint] = (),
        quoted: Sequence[Checkpoint] = (),
        similar: Similar | None = None,
        follows: Sequence[Follows] = (),
        is_flushed: bool = True,
    ) -> Checkpoint:
        """Commit to the current head of a branch. The branch and the thread are created if they do not exist.

        Args:
            branch: see `aside`.
            writes: see `aside`.
            untag: see `aside`.
            followed: see `aside`.
            quoted: see `aside`.
            similar: see `aside`.
            follows: see `aside`.
            is_flushed: if False, the next commit flushes this one, or the background flusher does within `interval_ms`.
        """
        work = self.aside(
            branch, writes, untag=untag, followed=followed, quoted=quoted, similar=similar, follows=follows
        )
        return self._made(self._session.write(work, is_flushed=is_flushed))

    def aside(
        self,
        branch: str,
        writes: Sequence[PreparedWrite] | Callable[[int, Sequence[str]], Sequence[PreparedWrite]],
        *,
        untag: Sequence[str] = (),
        followed: Sequence[Checkpoint] = (),
        quoted: Sequence[Checkpoint] = (),
        similar: Similar | None = None,
        follows: Sequence[Follows] = (),
    ) -> Callable[[Batch], Head]:
        """Return a function that commits to the head of a branch in a batch.

        Args:
            branch: the name of the branch.
            writes: writes from `items`, or a function that returns them. Its arguments are the time of the commit in
                microseconds (later commits have greater times), and the ids in `follows` that do not exist.
            untag: ids of the checkpoints whose mark as superseded is removed.
            followed: checkpoints whose successors may have stored equal items. Such items are referenced instead of
                stored again.
            quoted: checkpoints that may have stored equal items themselves. Such items are also referenced.
            similar: see `commit`.
            follows: the checkpoints that the write follows. If the thread was deleted, it is re-created, unless one of
                these checkpoints was created before the deletion, or has an unknown time and does not exist.
        """

        def work(batch: Batch) -> Head:
            at_head = [event for each in followed if (event := _event_at_head(batch, each)) is not None]
            are_all_there = len(at_head) == len(followed) >= max(len(follows), 1)
            thread, number = self._asides.get(branch, (0, None)) if are_all_there else (0, None)
            if number is None or at_head[0].thread != thread or (thread, number) not in batch.memory.heads:
                thread = self._thread_for_writing(batch, follows)
                number = batch.view.branch_number(thread, branch)
                if number is None:
                    number = writer.fork(batch, self.id, thread, branch, (0, 0))
                # Cache only a stored branch: this batch may still be rolled back.
                elif (thread, number) in batch.memory.heads:
                    self._asides[branch] = (thread, number)
            for name in untag:
                if batch.get_index(keys.encode_tag_key(thread, name)) is not None:
                    writer.tag(batch, thread, name, 0)
            if callable(writes):
                there = [event.id for event in at_head]
                missing = [
                    id for _us, id in follows if id is not None and id not in there and not batch.has_id(thread, id)
                ]
                made = writes(batch.next_time_us(thread, number), missing)
            else:
                made = writes
            return writer.commit(
                batch,
                self.id,
                thread,
                number,
                made,
                metadata=_NO_METADATA,
                written=written_item(made),
                expected_version=None,
                checkpoint_id=None,
                known=[
                    *of_successors(batch, followed),
                    *[leaf for each in quoted for leaf in leaves_of(batch, each)],
                    *([] if are_all_there else _leaves_of_unknown(batch, thread, follows, at_head)),
                ],
                parts=() if similar is None else similar_nodes(batch, thread, similar),
            )

        return work

    def _made(self, outcome: Outcome) -> Checkpoint:
        head: Head = outcome if type(outcome) is Head else outcome.head
        if not (head.event.version + 1) % POLICY_STEP_VERSIONS:
            self._session.after_commit(head)
        if (limits := self._session.owner.limits) is not None:
            limits.warn(self.id)
        return Checkpoint(self._session, self.id, outcome)

    def _thread_for_writing(self, batch: Batch, follows: Sequence[Follows]) -> int:
        """Return the thread. Create it with an empty version if needed, or re-create it if `follows` allows it."""
        thread = batch.view.thread_lsn(self.id)
        died_us = batch.view.died_us(self.id)
        if died_us is not None:
            for time_us, id in follows:
                is_there = id is not None and thread is not None and batch.has_id(thread, id)
                if not is_there and (id is not None if time_us is None else time_us <= died_us):
                    raise writer.deleted_error(self.id)
        if thread is None:
            thread = writer.create_thread(batch, self.id, {}, anew=len(follows) > 0)
        if batch.head(thread, 0) is None:
            writer.commit(
                batch,
                self.id,
                thread,
                0,
                (),
                metadata=_NO_METADATA,
                written=_NOTHING_WRITTEN,
                expected_version=None,
                checkpoint_id=None,
            )
        return thread

    def _line_of(
        self,
        batch: Batch,
        thread: int,
        parent: Checkpoint | None,
        line: str,
        fork: str | Callable[[], str],
        refused: Callable[[MapView], bool] | None,
    ) -> int:
        """Return the number of the branch whose head is the parent, or of a new branch.

        Raises:
            CheckpointNotFoundError: the parent has expired. ConflictError: the parent has a successor, and `refused`
                returns True for its state.
        """
        if parent is None:
            number = batch.view.branch_number(thread, line)
            if number is None:
                return writer.fork(batch, self.id, thread, line, (0, 0))
            place, version = (0, 0), 0
        else:
            held = head_at(batch.view, thread, parent.lsn)
            if held is None:
                message = f"thread {self.id!r}: the parent, version {parent.version}, has expired"
                raise CheckpointNotFoundError(message, thread=self.id, branch=line, target=parent.id)
            number, version = held.event.branch, held.event.version
            place = (number, version)
        head = batch.head(thread, number)
        if head is None:  # The branch was pruned, and its base has expired.
            return number
        if head.event.version == version and (parent is None or head.event.lsn == parent.lsn):
            return number
        if refused is not None and any(
            (last := _last_commit(batch, thread, each, version)) is not None and refused(state_of(batch, last))
            for each in (head, *_heads_from(batch, thread, place))
        ):
            actual = head.event.version
            what = "the beginning" if parent is None else f"checkpoint {parent.id}"
            message = f"thread {self.id!r}: {what}, version {version}, has a successor: its branch is at {actual}"
            raise ConflictError(message, thread=self.id, expected_version=version, actual_version=actual)
        return writer.fork(
            batch, self.id, thread, _free_name(batch, thread, fork if isinstance(fork, str) else fork()), place
        )

    # --- reading --------------------------------------------------------------------

    def find(self, id: str) -> Checkpoint | None:
        """Return the newest checkpoint that has the id `id`, or None."""
        with self._session.read() as view:
            thread = self._thread(view)
            head = None if thread is None else find_named(view, thread, id)
        return None if head is None else self._wrap(head)

    def find_parent(self, of: Checkpoint, id: str, superseded: Mapping[str, int]) -> Checkpoint | None:
        """Return the same checkpoint as `find`, but faster if it is the parent of `of`.

        Args:
            of: a checkpoint of this thread.
            id: the id to find.
            superseded: the result of `superseded` for the same snapshot.
        """
        parent = None if id in superseded else of.parent
        return parent if parent is not None and parent.id == id else self.find(id)

    def heads(self, prefix: str = "") -> list[LineHead]:
        """Return the last checkpoint of every branch that has its own checkpoints, in order of creation.

        Args:
            prefix: only branches whose names begin with this string.
        """
        found: list[LineHead] = []
        with self._session.read() as view:
            thread = self._thread(view)
            if thread is None:
                return []
            for row in view.branches_named(thread, prefix) if prefix else view.branches(thread):
                head = view.head_checkpoint(thread, row.number)
                if head is not None and head[0].branch == row.number:
                    base = row.base_version if row.number else 0
                    if head[0].version > base:
                        found.append(LineHead(row.name, base, self._wrap(Head(*head))))
        return found

    def head(self, branch: str) -> Checkpoint | None:
        """Return the head of a branch, or None if the branch does not exist or is empty."""
        with self._session.read() as view:
            thread = self._thread(view)
            number = None if thread is None else view.branch_number(thread, branch)
            if thread is None or number is None:
                return None
            head = view.head_checkpoint(thread, number)
        return None if head is None else self._wrap(Head(*head))

    def versions(self, branch: str, below: int | None, limit: int) -> list[Checkpoint]:
        """Return at most `limit` of a branch's own checkpoints, newest first. With `below`, return only lower versions.

        Raises:
            BranchNotFoundError: the branch or the thread does not exist.
        """
        page: list[Head] = []
        with self._session.read() as view:
            thread = self._thread(view)
            number = None if thread is None else view.branch_number(thread, branch)
            if thread is None or number is None:
                raise no_branch(self.id, branch)
            base = view.branch(thread, number).base_version if number else 0
            version = view.head_version(thread, number) if below is None else below - 1
            while len(page) < limit and version > base:
                version = view.previous_version(thread, number, version)
                head = read_head(view, thread, number, version) if version > base else None
                if head is None:
                    break
                page.append(head)
                version -= 1
        return [self._wrap(head) for head in page]

    def has_lines(self, prefix: str, count: int) -> bool:
        """Return True if at least `count` branches have names that begin with `prefix`."""
        with self._session.read() as view:
            thread = self._thread(view)
            if thread is None:
                return False
            if view.thread(thread).branch_count < count:
                return False
            found = view.transaction.scan_index(keys.encode_branch_name_key(thread, prefix))
            return sum(1 for _row in islice(found, count)) == count

    def ends(self, prefix: str) -> list[tuple[int, int]]:
        """Return the numbers and last versions of the branches whose names begin with `prefix`."""
        with self._session.read() as view:
            return self.ends_in(view, prefix)

    def ends_in(self, view: View, prefix: str) -> list[tuple[int, int]]:
        """Return the same as `ends`, for a view. Inside a commit, this is the view of its batch."""
        thread = view.thread_lsn(self.id)
        rows = [] if thread is None else view.branches_named(thread, prefix)
        return [(row.number, view.head_version(thread or 0, row.number)) for row in rows]

    def ids_below(self, prefix: str, below: str, limit: int) -> list[tuple[str, int]]:
        """Return at most `limit` ids of checkpoints in descending order, each with the LSN of its first checkpoint.

        Args:
            prefix: the beginning of the ids.
            below: if not empty, only ids less than this. It begins with `prefix` and is ASCII.
            limit: the maximum number of ids.
        """
        with self._session.read() as view:
            thread = self._thread(view)
            if thread is None:
                return []
            all_ids = keys.encode_checkpoint_id_key(thread, "")
            start = keys.encode_checkpoint_id_key(thread, below) if below else b""
            found = view.transaction.scan_index(all_ids + prefix.encode(), start=start, reverse=True)
            pairs = islice((pair for pair in found if pair[0] != start), limit)
            return [(key[len(all_ids) :].decode(), keys.decode_lsn(payload)) for key, payload in pairs]

    def names(self) -> list[str]:
        """Return the ids of all checkpoints that were committed with an id."""
        with self._session.read() as view:
            thread = self._thread(view)
            if thread is None:
                return []
            prefix = keys.encode_checkpoint_id_key(thread, "")
            return [key[len(prefix) :].decode() for key, _payload in view.transaction.scan_index(prefix)]

    def at(self, lsn: int) -> Checkpoint | None:
        """Return the checkpoint in a record, or None if it belongs to another thread or has expired."""
        with self._session.read() as view:
            thread = self._thread(view)
            head = None if thread is None else head_at(view, thread, lsn)
        return None if head is None else self._wrap(head)

    def superseded(self) -> dict[str, int]:
        """Return the LSN of the newest checkpoint for each id that was committed more than once."""
        with self._session.read() as view:
            thread = self._thread(view)
            if thread is None:
                return {}
            prefix = keys.encode_tag_prefix(thread)
            return {
                key[len(prefix) :].decode(): keys.decode_lsn(payload)
                for key, payload in view.transaction.scan_index(prefix)
            }

    def _thread(self, view: View) -> int | None:
        """Return the thread's number, or None if the thread does not exist."""
        number = self._number
        if number is None:
            number = view.thread_lsn(self.id)
            if self.is_of_one_moment:
                self._number = number
        return number

    def _wrap(self, head: Head) -> Checkpoint:
        return Checkpoint(self._session, self.id, head)


def _event_at_head(batch: Batch, checkpoint: Checkpoint) -> CheckpointEvent | None:
    """Return a checkpoint's event if it is cached as its branch's head, or None. If it is cached, the thread exists."""
    event = event_of(checkpoint)
    head = batch.memory.heads.get((event.thread, event.branch))
    return event if head is not None and head.event.lsn == event.lsn else None


def _leaves_of_unknown(
    batch: Batch, thread: int, follows: Sequence[Follows], known: Sequence[CheckpointEvent]
) -> list[tuple[bytes, int, int]]:
    """Return the leaves of the checkpoints in `follows` that are not in `known`.

    Another OS thread or process has committed these checkpoints, possibly just now.
    """
    ids = {id for _us, id in follows if id is not None}.difference(event.id for event in known)
    found = [head for id in ids if (head := find_named(batch.view, thread, id)) is not None]
    return [leaf for head in found for leaf in leaves_at(batch, head.event.lsn)]


def _heads_from(batch: Batch, thread: int, place: tuple[int, int]) -> list[Head]:
    """Return the heads of the branches that begin at `place`, which is a branch and its version."""
    rows = [row for row in batch.view.branches(thread) if (row.parent, row.base_version) == place]
    return [head for row in rows if (head := batch.head(thread, row.number)) is not None]


def _last_commit(batch: Batch, thread: int, head: Head, above: int) -> Head | None:
    """Return the last version of a branch that is greater than `above` and not a rollback, or None."""
    found: Head | None = head
    while found is not None and found.event.target and found.event.version > above:
        branch, version = found.event.branch, found.event.version
        found = read_head(batch.view, thread, branch, batch.view.previous_version(thread, branch, version - 1))
    return None if found is None or found.event.version <= above else found


def _free_name(batch: Batch, thread: int, name: str) -> str:
    free = name
    number = 1
    while free == MAIN or batch.view.branch_number(thread, free) is not None:
        number += 1
        free = f"{name}.{number}"
    return free
