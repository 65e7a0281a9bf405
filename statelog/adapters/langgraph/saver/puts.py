"""Finds what a put must write: the part of each channel that the parent does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.constants import START

from statelog.adapters.kit import items
from statelog.adapters.kit.shared_items import Similar, Twins, are_looked_for
from statelog.adapters.langgraph.saver.checkpoint_order import Ordered
from statelog.adapters.langgraph.saver.checkpoint_reader import decode_versions, find_place
from statelog.adapters.langgraph.saver.metadata import deltas_of
from statelog.adapters.langgraph.values.codec import is_cut, is_snapshot
from statelog.adapters.langgraph.values.frozen import common_ends, equal_ends, freeze, still
from statelog.adapters.langgraph.values.msgpack_items import renewed
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    WRITES_BRANCH,
    CheckpointName,
    channel_name,
    checkpoint_prefix,
    similar_lines,
    writes_range,
)
from statelog.adapters.langgraph.values.own import decode_own, kept_item
from statelog.reducers import Removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint

    from statelog import Checkpoint
    from statelog.adapters.kit.items import PreparedWrite, Stored
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.values.codec import Encoded, ValueCodec
    from statelog.adapters.langgraph.values.frozen import Frozen, Items
    from statelog.adapters.langgraph.values.own import Own

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""

_ALL = 1 << 62
_BASES_MAX, _NAMESPACES_MAX = 4, 1024
"""The maximum number of cached bases in one namespace, where several runs may be active, and of cached namespaces."""
_EDITED_MAX = 8
"""Up to this many changed items, a list is edited. With more, the list is written whole, and shares equal parts."""
_PASSED_MAX = 512
"""The number of preceding checkpoints whose pending writes may have the items of a DeltaChannel."""


class Trail(NamedTuple):
    """A checkpoint's ancestors, whose values and writes make up the values of its DeltaChannels."""

    number: int
    """The number of ancestors in the trail."""
    passed: tuple[Any, ...]
    """A linked list: namespace and id of the last checkpoint, and the list of the earlier ones, or () at the end."""
    snapshots: Mapping[str, tuple[int, Checkpoint]]
    """By channel, the checkpoint that stored it whole last, after the position of this checkpoint in the trail."""

    def after(self, snapshots: Sequence[str], made: Checkpoint | None, own: Own) -> Trail:
        """Return the trail after one more checkpoint, in which some channels were stored whole."""
        known, passed = self.snapshots, self.passed
        if snapshots and made is not None:
            known = {**known, **dict.fromkeys(snapshots, (self.number, made))}
        if self.number % _PASSED_MAX == 0:  # Drop the oldest checkpoints, which the linked list would keep alive.
            last, passed = self.last(_PASSED_MAX), ()
            for namespace, id in reversed(last):
                passed = (namespace, id, passed)
        return _new(Trail, (self.number + 1, (own.namespace, own.id, passed), known))

    def last(self, count: int) -> list[tuple[str, str]]:
        """Return the namespace and id of at most `count` checkpoints, the last one first."""
        found: list[tuple[str, str]] = []
        rest = self.passed
        while rest and len(found) < count:
            namespace, id, rest = rest
            found.append((namespace, id))
        return found

    def twins(self, snapshots: Sequence[str], asked: CheckpointName) -> Twins:
        """Return the places that may already store the items of channels that are stored whole."""
        count = 0
        held: list[tuple[Checkpoint, str]] = []
        for name in snapshots:
            number, checkpoint = self.snapshots.get(name, (0, None))
            count = max(count, self.number - number)
            if checkpoint is not None:
                held.append((checkpoint, name))
        places = self.last(min(count, _PASSED_MAX)) or [(asked.namespace, asked.id)]
        return Twins(WRITES_BRANCH, [writes_range(checkpoint_prefix(*place)) for place in places], held)


NO_TRAIL = Trail(0, (), {})


class PutBase(NamedTuple):
    """The checkpoint on which a put builds. Values are inherited by version: any base with these versions would do."""

    checkpoint: Checkpoint | None
    versions: Mapping[str, Any]
    channels: Mapping[str, Stored | items.Unread]
    own: Own | None
    """The position of the base, if it is a checkpoint."""
    trail: Trail

    @property
    def latest(self) -> str:
        """See `Own.latest`."""
        return "" if self.own is None else self.own.latest

    @property
    def start(self) -> items.Unread | None:
        """The run's input (channel `START`), if this checkpoint has stored it with the items of its lists."""
        start = self.channels.get(START)
        return start if type(start) is items.Unread and start.made is self.checkpoint else None

    def after(
        self,
        changes: Changes,
        writes: Sequence[PreparedWrite],
        made: Checkpoint,
        versions: Mapping[str, Any],
        own: Own,
        *,
        has_deltas: bool,
    ) -> PutBase:
        """Return the base for the next put. `has_deltas` is True if the put checkpoint has DeltaChannels."""
        channels = items.after(self.channels, writes, made)
        trail = self.trail.after(changes.snapshots, made, own) if has_deltas or changes.snapshots else NO_TRAIL
        return _new(PutBase, (made, dict(versions), channels, own, trail))

    @classmethod
    def find(cls, codec: ValueCodec, lineage: Lineage, asked: CheckpointName) -> PutBase:
        """Read the base from the parent that a config names. Without a parent, the base is empty."""
        parent = find_place(lineage, asked) if asked.id else None
        channels = {} if parent is None else items.read(parent.state)
        kept = channels.pop(CHECKPOINT_CHANNEL, None)
        own = decode_own(kept) if isinstance(kept, bytes) else None
        if own is None or not isinstance(kept, bytes):
            return cls(None, {}, {}, None, NO_TRAIL)
        versions = decode_versions(codec, kept)
        return cls(parent, versions, channels, own, NO_TRAIL.after((), parent, own))


class Bases:
    """Remembers the bases of recent puts. OS threads may share an object, and interrupts are safe.

    Each change is one assignment. If two changes happen at once, one may be lost, and the next put needs a look-up.
    """

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], Checkpoint | None] = {}
        """By thread and `checkpoint_prefix`, the commit with all pending writes that this saver has stored for a
        checkpoint, or None if several commits have them."""
        self._lately: dict[tuple[str, str], tuple[tuple[str, PutBase], ...]] = {}
        """By thread and namespace, the ids and bases of recent puts, the last one first."""
        self.last_called: dict[tuple[str, ...], Checkpoint] = {}
        """The last checkpoint of a graph that a task has called, keyed by the task's thread and namespace."""
        self._called: dict[tuple[str, str], str] = {}
        """The namespace of the graph that a task has called, keyed by thread and task."""

    def get(self, place: CheckpointName) -> PutBase | None:
        """Return the base at a place, or None if it is not remembered."""
        for id, base in self._lately.get(place[:2], ()):
            if id == place[2]:
                return base
        return None

    def keep(self, place: CheckpointName, base: PutBase) -> None:
        """Remember a base, and forget the oldest in its namespace."""
        of = place[:2]
        lately = self._lately.get(of)
        if lately is None:
            lately = ()
            if len(self._lately) >= _NAMESPACES_MAX:
                self._lately.clear()
                self._called.clear()
                self.last_called.clear()
            if of[1]:
                self._called[of[0], of[1].rpartition(":")[2]] = of[1]
        self._lately[of] = ((place[2], base), *lately[: _BASES_MAX - 1])
        if of[1] and base.checkpoint is not None:
            self.last_called[of[0], of[1].rpartition("|")[0]] = base.checkpoint

    def note_written(self, thread_id: str, prefix: str, made: Checkpoint) -> None:
        """Remember the commit of a checkpoint's pending writes."""
        of = (thread_id, prefix)
        if len(self.written) >= _NAMESPACES_MAX:
            self.written.clear()
        self.written[of] = None if of in self.written else made

    def called_by(self, thread_id: str, task_id: str) -> str:
        """Return the namespace of the graph that a task has called and whose result it writes, or "" if unknown."""
        return self._called.get((thread_id, task_id), "")

    def forget(self, place: CheckpointName) -> None:
        """Forget the bases in the namespace of a place."""
        self._lately.pop(place[:2], None)


def _find_elsewhere(codec: ValueCodec, lineage: Lineage, namespace: str, wanted: dict[str, Any]) -> dict[str, Stored]:
    """Return, by channel, the values that have the wanted versions, from any checkpoint in the namespace."""
    values: dict[str, Stored] = {}
    missing = dict(wanted)
    for found in Ordered(lineage, namespace).draw(lineage, _ALL, hidden=True):
        state = found.checkpoint.state
        kept = kept_item(state)
        versions = {} if kept is None else decode_versions(codec, kept)
        for channel in [channel for channel, version in missing.items() if versions.get(channel) == version]:
            stored = items.get(state, channel_name(channel))
            if stored is not None:
                values[channel_name(channel)] = stored
                del missing[channel]
        if not missing:
            break
    return values


class Changes(NamedTuple):
    """The writes of a put, and its lists as they were when they were serialised."""

    writes: list[PreparedWrite]
    frozen: dict[str, Items]
    lists: list[str]
    """Channels whose items are written. Pending writes may hold these items already."""
    snapshots: list[str]
    """DeltaChannels that are stored whole."""
    whole: list[int]
    """The lengths of lists that are written whole and are not small."""

    def similar(self, place: CheckpointName) -> Similar:
        """Return the branches that may already store parts of the lists that are written whole."""
        return _new(Similar, (similar_lines(place.namespace), max(self.whole)))

    def needs(self, base: PutBase, metadata: Mapping[str, Any]) -> list[str]:
        """Return the DeltaChannels whose values need the values and writes of ancestors."""
        names = set(map(channel_name, deltas_of(metadata)))
        gone = {write.channel for write in self.writes if isinstance(write, Removal)}
        held = (set(base.channels) - gone) | {write.channel for write in self.writes if not isinstance(write, Removal)}
        return sorted(names - held)

    def twins(
        self,
        base: PutBase,
        asked: CheckpointName,
        made: CheckpointName,
        bases: Bases,
        *,
        is_known: bool,
        is_together: bool,
    ) -> Twins | None:
        """Return the places that may already store the items to write.

        Args:
            base: the base of the checkpoint.
            asked: the place of the base.
            made: the place of the checkpoint.
            bases: the bases of recent puts.
            is_known: whether this saver has put all pending writes of both checkpoints, or commits them with this one.
            is_together: whether some pending writes are committed with the checkpoint.
        """
        if not (self.lists or self.snapshots):
            return None
        if self.snapshots and asked.id:
            return base.trail.twins(self.snapshots, asked)
        prefixes = [checkpoint_prefix(place.namespace, place.id) for place in (asked, made) if place.id]
        known = bases.written
        written = [(prefix, known[of]) for prefix in prefixes if (of := (made.thread_id, prefix)) in known]
        called, start = bases.last_called.get(made[:2]), base.start if START in base.channels else None
        records = [] if called is None else [called]
        if start is not None:
            records.append(start.made)
        if not is_known or len(written) > 1 or (written and (is_together or written[0][1] is None)):
            ranges = [writes_range(prefix) for prefix in sorted(prefixes, reverse=True)]
            return _new(Twins, (WRITES_BRANCH, ranges, (), None, is_together, records))
        if written:
            prefix, last = written[0]
            return _new(Twins, (WRITES_BRANCH, [writes_range(prefix)], (), last, False, records))
        return _new(Twins, (WRITES_BRANCH, (), (), None, is_together, records)) if is_together or records else None

    def remember(self, memory: Frozen, made: PutBase) -> None:
        """Remember the frozen lists by their present identity in the store."""
        for name, frozen in self.frozen.items():
            stored = made.channels.get(name)
            if type(stored) is items.Unread:
                memory.put(stored.identity, frozen)


def value_writes(
    codec: ValueCodec,
    memory: Frozen,
    lineage: Lineage,
    base: PutBase,
    checkpoint: LangGraphCheckpoint,
    new_versions: Mapping[str, Any],
    place: CheckpointName,
) -> Changes:
    """Return the writes that turn the values of the base into the values of a checkpoint."""
    _checkpoint, known_versions, channels, _own, _trail = base
    values = checkpoint["channel_values"]
    changed: Iterable[str] = ()
    if codec.migration is not None or codec.renaming is not None:
        changed = _changed_since(codec, base, checkpoint["channel_versions"], place)
    writes: list[PreparedWrite] = []
    changes = _new(Changes, (writes, {}, [], [], []))
    left = {*channels}
    left.discard(METADATA_CHANNEL)
    missing = {}
    for channel, version in checkpoint["channel_versions"].items():
        name = channel_name(channel)
        if channel in new_versions or channel in changed:
            if channel in values:
                left.discard(name)
                writes += _value_writes(codec, memory, changes, channel, channels.get(name), values[channel], place)
        elif known_versions.get(channel) == version:
            left.discard(name)
        else:
            missing[channel] = version
    if missing:
        elsewhere = _find_elsewhere(codec, lineage, place.namespace, missing)
        writes += [items.put(name, items.whole(stored)) for name, stored in elsewhere.items()]
        left.difference_update(elsewhere)
        for channel in missing.keys() & values.keys():
            name = channel_name(channel)
            if name not in elsewhere:  # The value's checkpoint has been pruned, deleted or superseded.
                left.discard(name)
                writes += _value_writes(codec, memory, changes, channel, channels.get(name), values[channel], place)
    for name in sorted(left):
        writes.append(items.remove(name))
    return changes


def _changed_since(
    codec: ValueCodec, base: PutBase, versions: Mapping[str, Any], place: CheckpointName
) -> Iterable[str]:
    """Return the channels that the base has under a different name or in an older schema version."""
    known, migration, renaming = base.versions, codec.migration, codec.renaming
    if migration is not None and migration.is_older(base.checkpoint, place):
        return [channel for channel, version in versions.items() if known.get(channel) != version]
    if renaming is None:
        return ()
    renamed = renaming.renamed(known)
    return [channel for channel in renamed if versions.get(channel) == renamed[channel]]


def _value_writes(
    codec: ValueCodec,
    memory: Frozen,
    changes: Changes,
    channel: str,
    held: Stored | items.Unread | None,
    value: Any,
    place: CheckpointName,
) -> Sequence[PreparedWrite]:
    """Return the writes that set a channel, or none if the channel has not changed."""
    name = channel_name(channel)
    what, path = f"channel {channel!r} of thread {place.thread_id!r}", (channel,)
    if type(value) is not list or not codec.proves:
        alone = codec.encode(value, what, path)
        if type(alone) is bytes:
            return () if held == alone else (items.put_made(name, alone),)
        (changes.snapshots if is_snapshot(alone) else changes.lists).append(name)
        return _encoded_writes(changes, name, held, alone)
    value = [*value]  # Copy the list: another OS thread may append to it.
    known = memory.get(held.identity) if type(held) is items.Unread else None
    if known is not None and held is not None:
        first, last = common_ends(known, value)
        middle = value[first : len(value) - last]
        was = freeze(middle)
        encoded = (
            codec.encode_items(middle, what, path) if first or last else None
        )  # Without equal ends, the list may be too small to split.
        if encoded is not None:
            if encoded:
                changes.lists.append(name)
            changes.frozen[name] = known[:first] + still(was, middle) + known[len(known) - last :]
            return _spliced(changes, name, held, len(known), first, last, encoded)
    was = freeze(value)
    whole = codec.encode(value, what, path)
    if isinstance(whole, list):
        changes.lists.append(name)
        if not is_cut(whole):
            changes.frozen[name] = still(was, value)
    return _encoded_writes(changes, name, held, whole)


def _encoded_writes(
    changes: Changes, name: str, held: Stored | items.Unread | None, encoded: Encoded
) -> Sequence[PreparedWrite]:
    if not isinstance(encoded, list):
        return () if held == encoded else (items.put_made(name, encoded),)
    stored = items.opened(held)
    if stored is None or isinstance(stored, bytes):
        return _whole(changes, name, encoded)
    return _spliced(changes, name, stored, stored.count, 0, 0, encoded)


def _whole(changes: Changes, name: str, encoded: Sequence[bytes]) -> Sequence[PreparedWrite]:
    if are_looked_for(encoded):
        changes.whole.append(len(encoded))
    return (items.put_made(name, items.pack_list(encoded)),)


def _spliced(
    changes: Changes,
    name: str,
    held: Stored | items.Unread,
    count: int,
    first: int,
    last: int,
    encoded: Sequence[bytes],
) -> Sequence[PreparedWrite]:
    """Return the writes that keep a list's first `first` and last `last` items, and put `encoded` between them.

    An item that is not proved to be unchanged is serialised again, but not written again if it is equal.
    """
    stop = count - last
    if first == stop or not encoded:
        return _list_writes(name, encoded, first, stop, count)
    stored = items.opened(held)
    assert stored is not None
    alike, alike_behind = equal_ends([*map(renewed, items.read_list(stored, first, stop))], encoded)
    changed = encoded[alike : len(encoded) - alike_behind]
    if len(changed) > _EDITED_MAX and first + alike < count:
        whole = [*items.read_list(stored, 0, first), *encoded, *items.read_list(stored, stop)]
        return _whole(changes, name, whole)  # Storing the whole list shares equal parts wherever they are.
    return _list_writes(name, changed, first + alike, stop - alike_behind, count)


def _list_writes(name: str, encoded: Sequence[bytes], start: int, stop: int, count: int) -> Sequence[PreparedWrite]:
    if start == stop and not encoded:
        return ()
    if start == stop == count:
        return (items.append_made(name, encoded),)
    return (items.edit(name, start, stop, encoded),)
