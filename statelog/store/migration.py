"""States of older schema versions as states of the declared version: for reads, and as writes for the next commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from statelog.errors import MigrationError, StatelogError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.limits import MIGRATED_SIZE_BYTES_MAX, MIGRATED_STATES_MAX
from statelog.log.events import schema_version
from statelog.log.names import OWN_CHANNELS, channel_key
from statelog.reducers import Overwrite, Removal
from statelog.schema.versions import Versioned, newer_error, result_of
from statelog.store.checked_views import Reading
from statelog.store.views import ListView, MapView, find_text
from statelog.tree import mapping, reduce
from statelog.tree.node import ROOT, Node, Slot, Workspace
from statelog.tree.tree import Tree
from statelog.tree.value import encode_slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.record import NodeRow
    from statelog.log.engine import Engine
    from statelog.log.events import CheckpointEvent
    from statelog.log.step import Redact, Write
    from statelog.schema import Schema
    from statelog.store.session import Session

Changed = dict[str, "Slot | bytes | None"]
"""What each changed channel gets: the stored value of another channel, an encoded value, or None to be removed."""


class _Migrated:
    """What the steps made of one stored root. It is not changed after it is made."""

    __slots__ = ("changed", "node", "rows")

    def __init__(self, changed: Changed, node: Node, rows: list[NodeRow]) -> None:
        self.changed = changed
        self.node = node
        self.rows = rows

    def tree(self, workspace: Workspace) -> Tree:
        """Return the migrated state, whose stored nodes a workspace reads."""
        workspace.rows = self.rows
        return Tree(workspace, self.node)

    @property
    def size_bytes(self) -> int:
        """The bytes that it holds in memory."""
        items = sum(len(each) for each in self.changed.values() if isinstance(each, bytes))
        return len(self.node.data) + items + sum(len(row.data) for row in self.rows)


class _Remembered:
    """The migrated states of one store, the last used at the end. Several OS threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[Any, _Migrated] = {}
        self._size_bytes = 0

    def get(self, key: Any) -> _Migrated | None:
        """Return what is remembered under a key."""
        with self._lock:
            found = self._states.pop(key, None)
            if found is not None:
                self._states[key] = found
            return found

    def put(self, key: Any, made: _Migrated) -> None:
        """Remember a state, and forget the oldest if there are too many or too large ones."""
        with self._lock:
            former = self._states.pop(key, None)
            self._size_bytes += made.size_bytes - (0 if former is None else former.size_bytes)
            self._states[key] = made
            while len(self._states) > 1 and (
                len(self._states) > MIGRATED_STATES_MAX or self._size_bytes > MIGRATED_SIZE_BYTES_MAX
            ):
                self._size_bytes -= self._states.pop(next(iter(self._states))).size_bytes


_remembered: WeakKeyDictionary[Engine, _Remembered] = WeakKeyDictionary()


def check_version(event: CheckpointEvent, schema: Schema, thread_id: str) -> int:
    """Return the stored schema version of a state.

    Raises:
        SchemaVersionError: it is newer than the version that a schema declares. One without a version declares 1.
    """
    stored, lineage = schema_version(event.metadata), schema.lineage
    if stored > (1 if lineage is None else lineage.version):
        name, declared = (None, 1) if lineage is None else (lineage.name, lineage.version)
        raise newer_error(thread_id, stored, declared, name)
    return stored


def declared_tree(
    session: Session,
    thread_id: str,
    event: CheckpointEvent,
    schema: Schema,
    workspace: Workspace,
    *,
    in_commit: bool = False,
) -> Tree:
    """Return a state as the declared version has it.

    Args:
        session: of the store, of a transaction or of a snapshot.
        thread_id: the thread.
        event: the version of the thread.
        schema: the declared schema.
        workspace: reads the nodes of the state. It has no new nodes yet, and gets those of the migrated state.
        in_commit: True if the record of the state may never be committed.

    Raises:
        SchemaVersionError, MissingMigrationError, MigrationError: as named.
    """
    stored = check_version(event, schema, thread_id)
    if schema.lineage is None or stored == schema.lineage.version:
        return Tree(workspace, workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node))
    return _migrated(session, thread_id, event, schema, workspace, stored, in_commit=in_commit).tree(workspace)


def migrate_ahead(session: Session, thread_id: str, event: CheckpointEvent, schema: Schema) -> int:
    """Migrate a state and remember it, so that the commit that follows finds it. Return the bytes that are new.

    The arguments and errors are those of `declared_tree`.
    """
    stored = check_version(event, schema, thread_id)
    return _migrated(session, thread_id, event, schema, session.workspace(), stored, in_commit=False).size_bytes


def migration_writes(
    session: Session, thread_id: str, event: CheckpointEvent, schema: Schema, workspace: Workspace
) -> list[Write]:
    """Return the writes that bring the head to the declared version, within a commit; none if it has that version.

    The arguments and errors are those of `declared_tree`.
    """
    stored = check_version(event, schema, thread_id)
    if schema.lineage is None or stored == schema.lineage.version:
        return []
    made = _migrated(session, thread_id, event, schema, workspace, stored, in_commit=True)
    return [
        Removal(channel) if value is None else _Put(channel, value, _key_of(schema, channel))
        for channel, value in made.changed.items()
    ]


def _migrated(
    session: Session,
    thread_id: str,
    event: CheckpointEvent,
    schema: Schema,
    workspace: Workspace,
    stored: int,
    *,
    in_commit: bool,
) -> _Migrated:
    lineage, engine = schema.lineage, session.owner
    assert isinstance(lineage, Versioned)
    root = (event.root_digest, event.root_lsn, event.root_node)
    key = (lineage, event.thread, *root, stored)
    remembered = _remembered.get(engine) if session.is_final else None
    found = None if remembered is None else remembered.get(key)
    if found is not None:
        return found
    checks = None if engine.guard is None else engine.guard.on_read
    tree = Tree(workspace, workspace.read(ROOT, *root))

    def seen(state: MapView) -> MapView:
        return state if checks is None else Reading(checks, include_quarantined=False).state(state, thread_id, {})

    channels = _StoredChannels(tree, schema, seen)
    lineage.upgrade(channels, stored)
    try:
        changed = channels.changed()
    except StatelogError as error:
        facts = {**error.facts, "schema": lineage.name, "stored": stored, "declared": lineage.version}
        message = f"schema {lineage.name!r}: what the steps from version {stored} have made is not a state of version"
        raise MigrationError(f"{message} {lineage.version}: {error.message}", **facts) from error
    made = _Migrated(changed, *_with_changes(tree, changed, schema))
    if session.is_final and not in_commit:
        _remembered.setdefault(engine, _Remembered()).put(key, made)
    return made


def _with_changes(tree: Tree, changed: Changed, schema: Schema) -> tuple[Node, list[NodeRow]]:
    """Return the root of a state after a migration, and the nodes that are not stored."""
    workspace = tree.workspace

    def slot_of(channel: str, value: Slot | bytes | None) -> Slot | None:
        if isinstance(value, bytes):
            return encode_slot(workspace, value, top=True, key=_key_of(schema, channel))
        return value

    batch = sorted((channel_key(channel), slot_of(channel, value)) for channel, value in changed.items())
    node = mapping.merge_batch(workspace, tree.node, batch, kind=tree.kind) if batch else tree.node
    return node, workspace.rows


def _key_of(schema: Schema, channel: str) -> bytes:
    """Return the key of the items of an upsert channel, empty for any other."""
    declared = schema.channels.get(channel)
    return b"" if declared is None else declared.reducer.parameter.encode()


class _StoredChannels:
    """The channels of a stored state, as the steps of a schema change them.

    Until the first function, only slots are moved. A function gets all channels as values. A value that comes out of
    the steps as it went in, and that nobody can have changed, keeps its slot.
    """

    def __init__(self, tree: Tree, schema: Schema, seen: Callable[[MapView], MapView]) -> None:
        self._tree = tree
        self._schema = schema
        self._seen = seen
        self._changed: Changed = {}
        self._values: dict[str, Any] | None = None
        self._given: dict[str | int, tuple[Any, Slot]] = {}
        """What a function got and cannot change: views by their `id`, other values by channel. Each with its slot."""

    def has(self, channel: str) -> bool:
        """Return True if the state has a channel."""
        return channel in self._values if self._values is not None else self._find(channel) is not None

    def move(self, channel: str, name: str) -> None:
        """Give a channel another name."""
        if self._values is not None:
            self._values[name] = self._values.pop(channel)
        else:
            self._changed[name], self._changed[channel] = self._find(channel), None

    def put(self, channel: str, item: bytes) -> None:
        """Set a channel to an encoded value."""
        if self._values is not None:
            self._values[channel] = cbor.decode(item)
        else:
            self._changed[channel] = item

    def remove(self, channel: str) -> None:
        """Remove a channel, if the state has it."""
        if self._values is not None:
            self._values.pop(channel, None)
        elif self._find(channel) is not None:
            self._changed[channel] = None

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with the channels, and take the dict that it returns in their place."""
        if self._values is None:
            self._values = self._read()
        self._values = result_of(function, self._values)

    def changed(self) -> Changed:
        """Return what the steps have changed.

        Raises:
            ChannelError: a channel of the state is not declared. ValidationError, ValueTypeError, LimitError: a value
                cannot be stored in its channel.
        """
        stored = self._names()
        changed = self._changed if self._values is None else self._compared(stored, self._values)
        final = (stored - {name for name, value in changed.items() if value is None}) | {
            name for name, value in changed.items() if value is not None
        }
        for name in sorted(final):
            if name not in self._schema.channels:
                self._schema.validate_write(name, None)
        return {name: value for name, value in changed.items() if value is not None or name in stored}

    def _find(self, channel: str) -> Slot | bytes | None:
        return self._changed[channel] if channel in self._changed else find_text(self._tree, channel)

    def _names(self) -> set[str]:
        return {name for name in MapView(self._tree) if not name.startswith(OWN_CHANNELS)}

    def _read(self) -> dict[str, Any]:
        """Return the channels as a function gets them."""
        node, rows = _with_changes(self._tree, self._changed, self._schema)
        state = _Migrated(self._changed, node, rows).tree(self._tree.workspace)
        values = {name: value for name, value in self._seen(MapView(state, is_state=True)).items() if _is_users(name)}
        for name, value in values.items():
            is_view = isinstance(value, ListView | MapView)
            if is_view or cbor.is_immutable(type(value)) or type(value) is Quarantined:
                slot = find_text(state, name)
                assert slot is not None
                self._given[id(value) if is_view else name] = value, slot
        return values

    def _compared(self, stored: set[str], values: dict[str, Any]) -> Changed:
        changed: Changed = {name: None for name in stored if name not in values}
        for name, value in values.items():
            current = find_text(self._tree, name)
            given = self._given.get(id(value)) or self._given.get(name)
            if given is not None and given[0] is value and (given[1].lsn or not given[1].is_ref):
                if current is None or current.data != given[1].data:
                    changed[name] = given[1]
                continue
            item = self._item(name, value)
            if current is None or current.data != item:
                changed[name] = item
        return changed

    def _item(self, name: str, value: Any) -> bytes:
        plain = value.to_python() if isinstance(value, ListView | MapView) else value
        checked = self._schema.validate_write(name, Overwrite(plain))
        return cbor.encode(checked.value if isinstance(checked, Overwrite) else checked, path=name)


def _is_users(channel: str) -> bool:
    return not channel.startswith(OWN_CHANNELS)


class _Put:
    """A write of a migration: a channel gets an encoded value, or the stored value of another channel."""

    __slots__ = ("_key", "_value", "channel")
    spec: ClassVar[str] = "migration"
    operation: ClassVar[None] = None
    payload: ClassVar[None] = None
    parameter: ClassVar[str] = ""

    def __init__(self, channel: str, value: Slot | bytes, key: bytes) -> None:
        self.channel = channel
        self._value = value
        self._key = key

    def merge(self, workspace: Workspace, current: Slot | None, _identities: dict[bytes, bytes]) -> Slot:
        """Return the channel's new slot."""
        value = self._value
        return reduce.replace(workspace, current, value, key=self._key) if isinstance(value, bytes) else value

    def redacted(self, redact: Redact) -> _Put:
        """Return the write without secrets. A stored value was checked when it was written."""
        value = self._value
        if not isinstance(value, bytes):
            return self
        made = redact(value, self.channel)
        return self if made is value else _Put(self.channel, made, self._key)
