"""Checkpoints: immutable snapshots of a thread's channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import UsageError
from statelog.format import cbor
from statelog.log.batch import NOTHING_HELD, Head
from statelog.log.events import SCHEMA_KEY, SCHEMA_KEY_ITEM, CheckpointEvent, default_id, schema_version
from statelog.log.operations import deleted_error
from statelog.log.times import to_datetime
from statelog.redaction import hidden
from statelog.schema.typed import S, Typed
from statelog.store.state import state_of
from statelog.store.views import MapView, state_view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from statelog.log.view import View
    from statelog.schema import Schema
    from statelog.store.checked_views import Reading
    from statelog.store.session import AnySession, Outcome
    from statelog.store.sizes import StateSize


class Checkpoint(Typed[S]):
    """One version of a thread: the values of its channels, and their origin.

    Values are read on access. Two checkpoints are equal if they are the same record of the same store.
    """

    __slots__ = ("_include_quarantined", "_outcome", "_schema", "_session", "thread_id")

    def __init__(
        self,
        session: AnySession,
        thread_id: str,
        outcome: Outcome,
        schema: Schema | None = None,
        *,
        include_quarantined: bool = False,
    ) -> None:
        self._session = session
        self._include_quarantined = include_quarantined
        self._outcome = outcome
        self._schema = schema
        self.thread_id = thread_id

    @property
    def _event(self) -> CheckpointEvent:
        """The event in the checkpoint's record."""
        outcome = self._outcome
        return outcome.event if type(outcome) is Head else outcome.head.event

    @property
    def _head(self) -> Head:
        """The checkpoint's record, and the data that was read with it."""
        return self._outcome.head

    @property
    def id(self) -> str:
        """The caller's id, or a default id made of LSN and digest."""
        event = self._event
        return event.id if event.id is not None else default_id(event.lsn, self._outcome.head.digest)

    @property
    def lsn(self) -> int:
        """The LSN of the checkpoint's record."""
        return self._event.lsn

    @property
    def version(self) -> int:
        """The version number on the branch to which the checkpoint was committed."""
        return self._event.version

    @property
    def branch(self) -> str:
        """The name of the branch to which the checkpoint was committed.

        Raises:
            ThreadDeletedError: the thread was deleted, and its branches with it.
        """
        event = self._event
        with self._session.read() as view:
            if not view.is_alive(event.thread):
                raise deleted_error(self.thread_id)
            return view.branch(event.thread, event.branch).name

    @property
    def time(self) -> datetime:
        """The time of the commit in UTC. Times ascend strictly within a thread."""
        return to_datetime(self._event.time_us)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the caller. A value whose codec is not registered in this process is an `Unregistered`."""
        metadata = cbor.decode(self._event.metadata, loosely=True)
        assert isinstance(metadata, dict)
        metadata.pop(SCHEMA_KEY, None)
        if self._include_quarantined or (
            (guard := self._session.owner.guard) is not None and guard.on_read is not None
        ):
            return self._reading().metadata(metadata, self.thread_id)
        return metadata

    @property
    def schema_version(self) -> int:
        """The version of the schema that the state was written with; 1 without `statelog.versioned`."""
        return schema_version(self._event.metadata)

    @property
    def channels_written(self) -> tuple[str, ...]:
        """The channels that were written, sorted."""
        return tuple(cbor.decode(self._event.written))

    @property
    def kind(self) -> str:
        """`commit` or `rollback`."""
        return "rollback" if self._event.target else "commit"

    @property
    def digest(self) -> str:
        """The hex digest of parent, state, time, id and metadata."""
        return self._outcome.head.digest.hex()

    @property
    def state_digest(self) -> str:
        """The hex digest of the state. Equal states have equal digests, even with different histories."""
        return self._event.root_digest.hex()

    @property
    def state_size_bytes(self) -> int:
        """The size of the state: the bytes of its values, each as one CBOR item.

        This does not read the values. The cost depends on the number of pieces in which they are stored.
        """
        from statelog.store.state_sizes import StateSizer

        return StateSizer(self._session.workspace().read, self._session.read).measure(self._event).total()

    def size(self) -> StateSize:
        """Return the size of the state and of each channel: bytes, shared bytes, and items.

        This does not read the values. It costs as much as `state_size_bytes`.
        """
        from statelog.store.sizes import measure

        return measure(self._session, self._event)

    def _reading(self) -> Reading:
        """Return the read options: the checks, and whether to show quarantined values."""
        from statelog.store.checked_views import Reading

        guard = self._session.owner.guard
        return Reading(None if guard is None else guard.on_read, self._include_quarantined)

    def _read_state(self) -> MapView:
        event, schema, workspace = self._event, self._schema, self._session.workspace()
        if schema is None or (schema.lineage is None and SCHEMA_KEY_ITEM not in event.metadata):
            state = state_view(workspace, event.root_digest, event.root_lsn, event.root_node)
        else:
            from statelog.store.migration import declared_tree

            tree = declared_tree(self._session, self.thread_id, event, schema, workspace)
            state = MapView(tree, is_state=True)
        readings = {} if schema is None else schema.readings
        if self._include_quarantined or (
            (guard := self._session.owner.guard) is not None and guard.on_read is not None
        ):
            return self._reading().state(state, self.thread_id, readings)
        if not readings:
            return state
        from statelog.store.typed_views import typed_state

        return typed_state(state, readings)

    state = state_of(_read_state, "The channels' values, as the schema declares them.")
    """The channels' values, as the schema declares them."""

    @property
    def stored(self) -> MapView:
        """The values of the channels as they were written, in schema version `schema_version` and without types."""
        whole: Checkpoint[Any] = Checkpoint(
            self._session, self.thread_id, self._outcome, include_quarantined=self._include_quarantined
        )
        return whole._read_state()

    def _read(self, view: View, branch: int, version: int) -> Checkpoint[S] | None:
        """Return the given version of the same thread as a checkpoint, or None."""
        head = read_head(view, self._event.thread, branch, version)
        if head is None:
            return None
        return Checkpoint(
            self._session, self.thread_id, head, self._schema, include_quarantined=self._include_quarantined
        )

    @property
    def parent(self) -> Checkpoint[S] | None:
        """The parent checkpoint. The parent of a rollback is its target."""
        event = self._event
        if event.parent_branch is None or event.parent_version is None:
            return None
        with self._session.read() as view:
            return self._read(view, event.parent_branch, event.parent_version)

    @property
    def has_parent(self) -> bool:
        """Whether the checkpoint has a parent, which may have expired."""
        return self._event.parent_branch is not None

    def ancestor(self, generations: int) -> Checkpoint[S] | None:
        """Return the ancestor `generations` parents back, or None if there are fewer ancestors.

        The cost is O(log n).
        """
        from statelog.log.ancestry import BranchVersion, ancestor_at_depth

        if isinstance(generations, bool) or not isinstance(generations, int) or generations < 0:
            message = f"generations must be a non-negative int, not {generations!r}"
            raise UsageError(message, argument="generations", value=generations)
        event = self._event
        place = BranchVersion(event.branch, event.version)
        with self._session.read() as view:
            depth = event.depth - generations
            found = ancestor_at_depth(view, event.thread, place, depth) if depth >= 0 else None
            if found is None:
                return None
            return self._read(view, *found)

    def common_ancestor(self, other: Checkpoint[Any]) -> Checkpoint[S] | None:
        """Return the last common ancestor of two checkpoints, which may be one of the two. The cost is O(log n).

        Raises:
            UsageError: the checkpoints belong to different threads.
        """
        from statelog.log.ancestry import common_ancestor

        event, theirs = self._event, other._event
        if event.thread != theirs.thread or self.thread_id != other.thread_id:
            message = f"checkpoints of {self.thread_id!r} and {other.thread_id!r} have no common ancestor"
            raise UsageError(message, argument="other", value=other.id)
        with self._session.read() as view:
            found = common_ancestor(view, event.thread, event, theirs)
            if found is None:
                return None
            return self._read(view, *found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.digest == other.digest and self.lsn == other.lsn

    def __hash__(self) -> int:
        return hash(self._outcome.head.digest)

    def __repr__(self) -> str:
        from statelog.display.lines import checkpoint_line

        return cbor.decoded_loosely(checkpoint_line, self)

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:
        yield from (
            ("thread", hidden(self.thread_id)),
            ("branch", hidden(self.branch)),
            ("version", self.version),
            ("id", hidden(self.id)),
        )

    def __rich__(self) -> object:
        from statelog.display.terminal import checkpoint_tree

        return cbor.decoded_loosely(checkpoint_tree, self)

    def _repr_html_(self) -> str:
        from statelog.display.notebook import checkpoint_html

        return cbor.decoded_loosely(checkpoint_html, self)


def event_of(checkpoint: Checkpoint[Any]) -> CheckpointEvent:
    """Return the event in a checkpoint's record."""
    return checkpoint._event  # noqa: SLF001 - the only access


def head_of(checkpoint: Checkpoint[Any]) -> Head:
    """Return a checkpoint's record, and the data read with it."""
    return checkpoint._head  # noqa: SLF001 - the only access


def read_checkpoint(
    session: AnySession, view: View, thread_id: str, thread: int, branch: int, version: int
) -> Checkpoint[Any] | None:
    """Return the checkpoint of a version, or None."""
    head = read_head(view, thread, branch, version)
    return None if head is None else Checkpoint(session, thread_id, head)


def read_head(view: View, thread: int, branch: int, version: int) -> Head | None:
    """Return a version's event, digest and index entry, or None."""
    found = view.checkpoint_of(thread, branch, version) if version >= 0 else None
    return None if found is None else tuple.__new__(Head, (*found, None, NOTHING_HELD))
