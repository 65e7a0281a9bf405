"""Migrates states of older schema versions to the declared version, for reads and for the next commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from statelog.errors import MigrationError, StatelogError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.kernels import KIND_DICT
from statelog.limits import MIGRATED_SIZE_BYTES_MAX, MIGRATED_STATES_MAX
from statelog.log.events import SCHEMA_KEY_ITEM, schema_version
from statelog.log.names import OWN_CHANNELS, channel_key
from statelog.reducers import Overwrite, Removal
from statelog.schema.versions import Versioned, newer_error, result_of
from statelog.store.checked_views import Reading
from statelog.store.step_values import GivenChannels, StepList, StepMap, plain_value, step_value
from statelog.store.views import channel_value
from statelog.tree import mapping, reduce
from statelog.tree.node import ROOT, Node, ValueSlot, Workspace
from statelog.tree.tree import STRIDE, Tree
from statelog.tree.value import encode_slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.record import NodeRow
    from statelog.log.events import CheckpointEvent
    from statelog.log.step import PreparedWrite, Redact
    from statelog.schema import Schema
    from statelog.store.session import AnySession

Changed = dict[str, "ValueSlot | bytes | None"]
"""The new value of each changed channel: another channel's stored value, an encoded value, or None to remove it."""


class _Migrated:
    """The immutable result of the steps on one stored root: the changes, the new root, and its nodes.

    Attributes:
        ignored: the channels that are missing in the result because a function has ignored them.
    """

    __slots__ = ("changed", "ignored", "node", "rows")

    def __init__(self, changed: Changed, node: Node, rows: list[NodeRow], ignored: frozenset[str]) -> None:
        self.changed = changed
        self.ignored = ignored
        self.node = node
        self.rows = rows

    @property
    def size_bytes(self) -> int:
        """The size in memory."""
        items = sum(len(each) for each in self.changed.values() if isinstance(each, bytes))
        return len(self.node.data) + items + sum(len(row.data) for row in self.rows)


class _Remembered:
    """A cache of one store's migrated states, the oldest first. Several OS threads may use it.

    Attributes:
        states: the states, keyed by schema, thread, root and stored version.
    """

    def __init__(self) -> None:
        self.states: dict[Any, _Migrated] = {}
        self._lock = threading.Lock()
        self._size_bytes = 0

    def put(self, key: Any, made: _Migrated) -> None:
        """Add a state to the cache. Drop the oldest states if there are too many, or if they are too large together."""
        with self._lock:
            former = self.states.pop(key, None)
            self._size_bytes += made.size_bytes - (0 if former is None else former.size_bytes)
            self.states[key] = made
            while len(self.states) > 1 and (
                len(self.states) > MIGRATED_STATES_MAX or self._size_bytes > MIGRATED_SIZE_BYTES_MAX
            ):
                self._size_bytes -= self.states.pop(next(iter(self.states))).size_bytes


def declared_tree(
    session: AnySession,
    thread_id: str,
    event: CheckpointEvent,
    schema: Schema,
    workspace: Workspace,
    *,
    in_commit: bool = False,
) -> Tree:
    """Return a state in the declared version of its schema.

    Args:
        session: the session of the store, of a transaction or of a snapshot.
        thread_id: the thread.
        event: the version of the thread.
        schema: the declared schema.
        workspace: reads the nodes of the state. It must not have new nodes yet, and receives the nodes of the migrated
            state.
        in_commit: True if the record of the state may never be committed.

    Raises:
        SchemaVersionError, MissingMigrationError, MigrationError: the state cannot be migrated.
    """
    made = _migrated(session, thread_id, event, schema, workspace, in_commit=in_commit)
    if made is None:
        return Tree(workspace, workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node))
    workspace.rows = made.rows
    return Tree(workspace, made.node)


def migrate_ahead(
    session: AnySession, thread_id: str, event: CheckpointEvent, schema: Schema, *, is_named: bool = True
) -> int:
    """Migrate a state, and cache it for the following commit. Return the size of the new nodes.

    `is_named` is False if the thread has not recorded the schema's name, so that the thread may have a different
    schema. The other arguments and errors are as for `declared_tree`.

    Raises:
        MigrationError: a step has ignored a channel, which would be lost. So the thread may have a different schema.
    """
    made = _migrated(session, thread_id, event, schema, session.workspace(), in_commit=False)
    if made is not None and made.ignored and not is_named:
        channel = min(made.ignored)
        message = (
            f"channel {channel!r} would be lost: no step has read or removed it, so thread {thread_id!r} may have"
            " a different schema. If it has this schema, remove the channel in the step: state.pop(...)"
        )
        raise MigrationError(message, thread=thread_id, channel=channel)
    return 0 if made is None else made.size_bytes


def migration_writes(
    session: AnySession, thread_id: str, event: CheckpointEvent, schema: Schema, workspace: Workspace
) -> list[PreparedWrite]:
    """Return the writes with which a commit migrates the head to the declared version.

    Return an empty list if the head already has that version.

    Arguments and errors are as for `declared_tree`.
    """
    made = _migrated(session, thread_id, event, schema, workspace, in_commit=True)
    return [
        Removal(channel) if value is None else _Put(channel, value, _key_of(schema, channel))
        for channel, value in ({} if made is None else made.changed).items()
    ]


def _migrated(
    session: AnySession,
    thread_id: str,
    event: CheckpointEvent,
    schema: Schema,
    workspace: Workspace,
    *,
    in_commit: bool,
) -> _Migrated | None:
    """Return the result of the steps on a state, or None if the state has the declared version."""
    lineage, engine = schema.lineage, session.owner
    stored = schema_version(event.metadata) if SCHEMA_KEY_ITEM in event.metadata else 1
    declared = 1 if lineage is None else lineage.version
    if stored == declared:
        return None
    key = (lineage, event.thread, event.root_digest, event.root_lsn, event.root_node, stored)
    remembered: _Remembered | None = engine.migrated
    if remembered is not None and session.is_final:
        found = remembered.states.get(key)
        if found is not None:
            return found
    if not isinstance(lineage, Versioned) or stored > declared:
        raise newer_error(thread_id, stored, declared, None if lineage is None else lineage.name)
    checks = None if engine.guard is None else engine.guard.on_read
    reading = None if checks is None else Reading(checks, include_quarantined=False)
    tree = Tree(workspace, workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node))
    channels = _StoredChannels(tree, schema, reading, thread_id)
    lineage.upgrade(channels, stored)
    try:
        changed = channels.changed()
    except StatelogError as error:
        facts = {**error.facts, "schema": lineage.name, "stored": stored, "declared": declared}
        message = f"schema {lineage.name!r}: the result of the steps from version {stored} is not a state of version"
        raise MigrationError(f"{message} {declared}: {error.message}", **facts) from error
    ignored = frozenset(channels.ignored)
    made = _Migrated(changed, _with_changes(tree, changed, schema), workspace.rows, ignored)
    if session.is_final and not in_commit:
        if remembered is None:
            remembered = engine.migrated = _Remembered()
        remembered.put(key, made)
    return made


def _with_changes(tree: Tree, changed: Changed, schema: Schema) -> Node:
    """Return the root of a state after a migration. Add new nodes to the tree's workspace."""
    workspace = tree.workspace

    def slot_of(channel: str, value: ValueSlot | bytes | None) -> ValueSlot | None:
        if isinstance(value, bytes):
            return encode_slot(workspace, value, top=True, key=_key_of(schema, channel))
        return value

    batch = [(channel_key(channel), slot_of(channel, value)) for channel, value in changed.items()]
    return mapping.merge_batch(workspace, tree.node, sorted(batch), kind=KIND_DICT) if batch else tree.node


def _key_of(schema: Schema, channel: str) -> bytes:
    """Return the item key of an upsert channel, or empty bytes for any other channel."""
    declared = schema.channels.get(channel)
    return b"" if declared is None else declared.reducer.parameter.encode()


class _StoredChannels:
    """The channels of a stored state while the steps of a schema change them.

    Until the first step that is a function, the steps only move slots. A function gets all channels as values. A value
    that the steps return unchanged keeps its slot. A list or dict that a step has read is compared, to detect whether
    the step has changed it.
    """

    def __init__(self, tree: Tree, schema: Schema, reading: Reading | None, thread_id: str) -> None:
        self._tree = tree
        self._schema = schema
        self._reading = reading
        self._thread_id = thread_id
        self._stored = _slots_of(tree)
        self._channels: dict[str, Any] = dict(self._stored)
        """The slots and encoded values, keyed by channel. Once a function has been called, the decoded values."""
        self._has_values = False
        self.ignored: set[str] = set()
        """The channels that are missing in a function's result although the function did not read or remove them."""
        self._given: dict[str | int, tuple[Any, ValueSlot | bytes]] = {}
        """The stored forms of the values that a function got, keyed by `id` for lists and dicts, else by channel.
        """

    def has(self, channel: str) -> bool:
        """Return True if the state has a channel."""
        return channel in self._channels

    def move(self, channel: str, name: str) -> None:
        """Rename a channel."""
        self._channels[name] = self._channels.pop(channel)

    def put(self, channel: str, item: bytes) -> None:
        """Set a channel to an encoded value."""
        self._channels[channel] = cbor.decode(item) if self._has_values else item

    def remove(self, channel: str) -> None:
        """Remove a channel, if the state has it."""
        self._channels.pop(channel, None)

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with a dict of the channels, and replace the channels with the dict that it returns."""
        if not self._has_values:
            self._channels = {name: self._value(name, stored) for name, stored in self._channels.items()}
            self._has_values = True
        given = GivenChannels(self._channels)
        made = result_of(function, given)
        self.ignored |= self._channels.keys() - made.keys() - given.named
        self._channels = dict(made)

    def changed(self) -> Changed:
        """Return the channels that the steps have changed.

        Raises:
            ChannelError: a channel of the state is not declared. ValidationError, ValueTypeError, LimitError: a value
                cannot be stored in its channel.
        """
        stored, declared = self._stored, self._schema.channels
        changed: Changed = {name: None for name in stored if name not in self._channels}
        for name, value in self._channels.items():
            if name not in declared:
                self._schema.validate_write(name, None)
            made = self._stored_form(name, value) if self._has_values else value
            current = stored.get(name)
            if current is None or current.data != (made if isinstance(made, bytes) else made.data):
                changed[name] = made
        return changed

    def _value(self, name: str, stored: ValueSlot | bytes) -> Any:
        """Return a channel's value as a migration function gets it."""
        slot = ValueSlot(stored) if isinstance(stored, bytes) else stored
        value = channel_value(self._tree.workspace, slot)
        if self._reading is not None:
            value = self._reading.channel(value, name, self._thread_id)
        value = step_value(value)
        is_view = isinstance(value, StepList | StepMap)
        if is_view or cbor.is_immutable(type(value)) or type(value) is Quarantined:
            self._given[id(value) if is_view else name] = value, stored
        return value

    def _stored_form(self, name: str, value: Any) -> ValueSlot | bytes:
        """Return the slot or the encoding of a channel's value after the steps."""
        given = self._given.get(id(value)) or self._given.get(name)
        plain = value
        if given is not None and given[0] is value:
            if not isinstance(value, StepList | StepMap) or value.loaded is None:
                return given[1]
            plain = plain_value(value)
            if cbor.encode(plain, path=name) == cbor.encode(value.stored.to_python()):
                return given[1]
        if type(value) is Quarantined:  # The type of a quarantined value is unknown, so it is not validated.
            return cbor.encode(value, path=name)
        checked = self._schema.validate_write(name, Overwrite(plain_value(plain)))
        return cbor.encode(checked.value if isinstance(checked, Overwrite) else checked, path=name)


def _slots_of(tree: Tree) -> dict[str, ValueSlot]:
    """Return the slots of the user's channels. No value is read."""
    slots: dict[str, ValueSlot] = {}
    for node, table, start, stop in tree.runs(0, tree.count):
        part, data = table[start * STRIDE : stop * STRIDE], node.data
        keys = [data[at:slot_at] for at, slot_at in zip(part[::STRIDE], part[1::STRIDE], strict=True)]
        slots.update(zip(cbor.decode_all(keys), tree.slots_in(node, part), strict=True))
    return {name: slot for name, slot in slots.items() if not name.startswith(OWN_CHANNELS)}


class _Put:
    """A write of a migration: it sets a channel to an encoded value, or to the stored value of another channel."""

    __slots__ = ("_key", "_value", "channel")
    spec: ClassVar[str] = "migration"
    operation: ClassVar[None] = None
    payload: ClassVar[None] = None
    parameter: ClassVar[str] = ""

    def __init__(self, channel: str, value: ValueSlot | bytes, key: bytes) -> None:
        self.channel = channel
        self._value = value
        self._key = key

    def merge(self, workspace: Workspace, current: ValueSlot | None, _identities: dict[bytes, bytes]) -> ValueSlot:
        """Return the channel's new slot."""
        value = self._value
        return reduce.replace(workspace, current, value, key=self._key) if isinstance(value, bytes) else value

    def redacted(self, redact: Redact) -> _Put:
        """Return the write with its secrets redacted. A stored value was checked when it was written."""
        value = self._value
        if not isinstance(value, bytes):
            return self
        made = redact(value, self.channel)
        return self if made is value else _Put(self.channel, made, self._key)
