"""Converts channels of a LangGraph checkpoint to a later version of the graph's state."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from statelog.errors import MigrationError, UsageError
from statelog.format import cbor
from statelog.log.events import schema_version
from statelog.schema.versions import Versioned, newer_error, result_of
from statelog.store.checkpoint import event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from langgraph.checkpoint.base import PendingWrite

    from statelog import Checkpoint
    from statelog.adapters.langgraph.values.names import CheckpointName

_OWN = ("branch:", "join:", "start:", "__")
"""Prefixes of the names of LangGraph's own channels."""


class Migration:
    """The steps of a versioned schema, which are applied to a graph's checkpoints.

    Args:
        schema: the result of `statelog.versioned`.

    Raises:
        UsageError: `schema` is something else.
    """

    def __init__(self, schema: object) -> None:
        if not isinstance(schema, Versioned):
            message = f"migrations must be a schema made with statelog.versioned, not {schema!r:.80}"
            raise UsageError(message, argument="migrations", value=schema)
        self.schema = schema

    def version_of(self, place: CheckpointName) -> int | None:
        """Return the schema version for a put checkpoint, or None in a called graph, which has a different schema."""
        return None if place.namespace else self.schema.version

    def is_older(self, checkpoint: Checkpoint | None, place: CheckpointName) -> bool:
        """Return True if a checkpoint of the graph has an older version."""
        if checkpoint is None or place.namespace:
            return False
        return schema_version(event_of(checkpoint).metadata) < self.schema.version


def migrate(
    migration: Migration | None,
    place: CheckpointName,
    checkpoint: dict[str, Any],
    metadata: bytes,
    pending: list[PendingWrite],
    deltas: Collection[str] = (),
) -> list[PendingWrite]:
    """Bring a checkpoint to the declared version in place. Return its pending writes with the present channel names.

    `deltas` are the names of its DeltaChannels. Most checkpoints do not have their values.

    Raises:
        SchemaVersionError: the checkpoint has a newer version. MissingMigrationError: as for a thread.
        MigrationError: as for a thread, or a step renames a DeltaChannel whose value the checkpoint does not have.
    """
    if place.namespace:
        return pending
    stored, declared = schema_version(metadata), 1 if migration is None else migration.schema.version
    if stored > declared:
        raise newer_error(place.thread_id, stored, declared, None if migration is None else migration.schema.name)
    if stored == declared or migration is None:
        return pending
    values = checkpoint["channel_values"]
    own = {name: value for name, value in values.items() if name.startswith(_OWN)}
    unread = {name: _DeltaChannelValue() for name in deltas if name not in values}
    channels = _Channels({name: value for name, value in values.items() if name not in own} | unread)
    migration.schema.upgrade(channels, stored)
    _take_out(channels, unread, {"schema": migration.schema.name, "stored": stored, "declared": declared})
    checkpoint["channel_values"] = own | channels.values
    _renumber(checkpoint, channels, f"{migration.schema.name} {declared}")
    return [
        (task, channels.names.get(channel, channel), value)
        for task, channel, value in pending
        if channels.names.get(channel, channel) is not None
    ]


class _DeltaChannelValue:
    """A placeholder for the value of a DeltaChannel, which LangGraph makes from the writes of many checkpoints."""


def _take_out(channels: _Channels, unread: Mapping[str, _DeltaChannelValue], facts: Mapping[str, Any]) -> None:
    """Remove the placeholders of DeltaChannels. Raise MigrationError if a step has renamed one."""
    for name, value in list(channels.values.items()):
        if isinstance(value, _DeltaChannelValue):
            former = next(each for each in unread if unread[each] is value)
            if former != name:
                message = (
                    f"channel {former!r} is a DeltaChannel, and the steps rename it to {name!r}: its value is in the"
                    " writes of many checkpoints under the old name, and would be lost. Keep the old name"
                )
                raise MigrationError(message, **facts, channel=former)
            del channels.values[name]
            channels.changed.discard(name)


class _Channels:
    """The channels of a plain state, to which migration steps are applied, and their present names."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.names: dict[str, Any] = {}
        """The present name of each channel by its stored name, or None if the channel was removed."""
        self.changed: set[str] = set()
        """The present names of channels whose values differ from the stored values under these names."""

    def has(self, channel: str) -> bool:
        return channel in self.values

    def move(self, channel: str, name: str) -> None:
        self.values[name] = self.values.pop(channel)
        self._rename(channel, name)
        self.changed.discard(channel)
        self.changed.add(name)

    def put(self, channel: str, item: bytes) -> None:
        self.values[channel] = cbor.decode(item)
        self.changed.add(channel)

    def remove(self, channel: str) -> None:
        self.values.pop(channel, None)
        self._rename(channel, None)
        self.changed.discard(channel)

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        deltas = {name: value for name, value in self.values.items() if isinstance(value, _DeltaChannelValue)}
        made = deltas | result_of(function, dict(self.values))
        for channel in self.values.keys() - made.keys():
            self._rename(channel, None)
        self.values = made
        self.changed = set(made)  # Mark all: the function may have changed lists and dicts in place.

    def _rename(self, channel: str, name: str | None) -> None:
        former = next((old for old, new in self.names.items() if new == channel), channel)
        self.names[former] = name


def _renumber(checkpoint: dict[str, Any], channels: _Channels, of: str) -> None:
    """Give changed channels different versions, so that the next checkpoint stores them, but no node sees a change."""
    former = {new: old for old, new in channels.names.items() if new is not None}
    versions: dict[str, Any] = checkpoint["channel_versions"]
    latest = max(map(str, versions.values()), default="0")
    made = {name: version for name, version in versions.items() if name not in channels.names}
    for name in channels.changed:
        made[name] = _other(str(versions.get(former.get(name, name), latest)), f"{of} {name}")
    checkpoint["channel_versions"] = made
    seen: dict[str, dict[str, Any]] = checkpoint.get("versions_seen") or {}
    checkpoint["versions_seen"] = {
        node: _seen(of_node, versions, made, channels.names) for node, of_node in seen.items()
    }
    if checkpoint.get("updated_channels"):
        names = (channels.names.get(name, name) for name in checkpoint["updated_channels"])
        checkpoint["updated_channels"] = sorted(name for name in names if name is not None)


def _seen(
    seen: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for channel, version in seen.items():
        name = names.get(channel, channel)
        if name is not None:
            is_seen = channel in before and before[channel] == version and name in after
            found[name] = after[name] if is_seen else version
    return found


def _other(version: str, salt: str) -> str:
    """Return a different version with the same number. Each reader gets the same version."""
    number = version.partition(".")[0]
    return f"{number}.{hashlib.blake2b(f'{version} {salt}'.encode(), digest_size=5).hexdigest()}"
