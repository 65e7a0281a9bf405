"""Reads the messages in LangGraph's delta channels, which deepagents uses. The state of most checkpoints lacks them.

Only some checkpoints have the value of a delta channel. At other checkpoints, the value is the last stored value plus
the writes of tasks since then, which are in the thread's branch `writes`. Nothing here imports LangGraph.
`statelog.store.frameworks` imports this module by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit.items import keys_between
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.values.msgpack_items import unpack_name
from statelog.adapters.langgraph.values.names import WRITES_BRANCH, channel_name, checkpoint_prefix, writes_range
from statelog.display.graphs import is_graph
from statelog.display.packed import SNAPSHOT, Coded, Constructed, shown_msgpack, unpacked
from statelog.store.diff import Change, diff
from statelog.store.frameworks import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Checkpoint
    from statelog.store.frameworks import StateOf
    from statelog.store.session import AnySession, Holder
    from statelog.store.views import MapView

_ANCESTORS_MAX = 2000
_WRITE_PARTS = 4
_CLEAR_ALL = "__remove_all__"


def delta_channels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the delta channels that a checkpoint's metadata lists, by their names in the store."""
    counters = unpacked(metadata.get(COUNTERS))
    return list(map(channel_name, counters)) if isinstance(counters, Mapping) else []


def delta_channels_left_out(checkpoint: Checkpoint[Any]) -> list[str]:
    """Return the names of the delta channels whose value the state of a checkpoint lacks."""
    return [name for name in delta_channels(checkpoint.metadata) if name not in checkpoint.state]


def _state(checkpoint: Checkpoint[Any]) -> MapView:
    return checkpoint.state


def delta_items(
    held: Holder[AnySession],
    checkpoint: Checkpoint[Any],
    channel: str,
    state_of: StateOf = _state,
    known: Mapping[int, list[Any]] = MappingProxyType({}),
) -> list[Any]:
    """Return the items of a delta channel at a checkpoint, oldest first, merged by their ids as messages are.

    Args:
        held: the store or snapshot of the checkpoint.
        checkpoint: a checkpoint whose state lacks the channel.
        channel: the name of the channel in the store.
        state_of: returns the state of a checkpoint.
        known: results of this function for the same channel and thread, keyed by the LSN of their checkpoints.
    """
    writes = _writes(held, checkpoint.thread_id, state_of)
    steps: list[list[Any]] = []
    snapshot: list[Any] = []
    found = checkpoint.parent
    while found is not None and len(steps) < _ANCESTORS_MAX:
        steps.append([] if writes is None else [*_written(writes, found.id, channel)])
        if found.lsn in known:
            snapshot = known[found.lsn]
            break
        state = state_of(found)
        if channel in state:
            snapshot = _items_of(state[channel])
            break
        found = found.parent
    return _merged([*snapshot, *(item for step in reversed(steps) for item in step)])


def channel_items(
    held: Holder[AnySession],
    checkpoint: Checkpoint[Any],
    channel: str,
    known: Mapping[int, list[Any]] = MappingProxyType({}),
) -> list[Any]:
    """Return the items of a delta channel at a checkpoint, whether or not its state has the channel.

    The arguments are as in `delta_items`.
    """
    if channel in checkpoint.state:
        return _items_of(checkpoint.state[channel])
    return delta_items(held, checkpoint, channel, known=known)


def find_changes(held: Holder[AnySession], old: Checkpoint[Any] | None, new: Checkpoint[Any]) -> list[Change]:
    """Return the changes from one checkpoint to another, including the items of LangGraph's delta channels.

    Args:
        held: the store or snapshot of the checkpoints.
        old: a checkpoint, or None for an empty state.
        new: a checkpoint of the same thread.
    """
    found = list(diff(old, new))
    if not is_graph(new.state):
        return found
    deltas = {name for each in (old, new) if each is not None for name in delta_channels_left_out(each)}
    found = [each for each in found if each.path[0] not in deltas]
    for name in sorted(deltas):
        before = [] if old is None else channel_items(held, old, name)
        known = {} if old is None else {old.lsn: before}
        found += _changed_items(name, before, channel_items(held, new, name, known))
    return found


def _changed_items(channel: str, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Yield the differences between two lists of messages, whose beginnings and ends are usually equal."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    for at in range(start, max(len(before), len(after)) - end):
        if at >= len(after) - end:
            yield Change((channel, at), "removed", before[at], None)
        elif at >= len(before) - end:
            yield Change((channel, at), "added", None, after[at])
        else:
            yield Change((channel, at), "changed", before[at], after[at])


def written_items(
    held: Holder[AnySession], checkpoint: Checkpoint[Any], channel: str, state_of: StateOf = _state
) -> list[Any]:
    """Return the items that tasks have written to a channel after a checkpoint. The arguments are as in `delta_items`.

    An item may replace or remove another one.
    """
    writes = _writes(held, checkpoint.thread_id, state_of)
    return [] if writes is None else [*_written(writes, checkpoint.id, channel)]


def _writes(held: Holder[AnySession], thread_id: str, state_of: StateOf) -> MapView | None:
    head = Lineage(held, thread_id).head(WRITES_BRANCH)
    return None if head is None else state_of(head)


def _items_of(value: Any) -> list[Any]:
    """Return the items of a channel's whole value. A value that is not a list counts as one item."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [unpacked(value)]
    return [unpacked(item) for item in value if not (isinstance(item, Coded) and item.stored[1] == SNAPSHOT)]


def _written(writes: MapView, id: str, channel: str) -> Iterator[Any]:
    """Yield the items that tasks have written to a channel after a checkpoint."""
    namespace, _, own = id.rpartition("/")
    for name in keys_between(writes, *writes_range(checkpoint_prefix(namespace, own))):
        stored = writes[name]
        header, items = unpacked(stored), []
        # The value is a list: the items of all written lists, and then the header.
        if header is stored and isinstance(stored, Sequence) and len(stored) > 0:
            *items, last = (unpacked(part) for part in stored)
            header = shown_msgpack(last) if isinstance(last, bytes) else None
        yield from _of_channel(header, items, channel)


def _of_channel(header: Any, items: list[Any], channel: str) -> Iterator[Any]:
    """Yield a channel's items from a header of writes: None, then the id, path, write count and writes of each task."""
    if not isinstance(header, list) or not header or header[0] is not None:
        return
    at, taken = 1, 0
    while at + 2 < len(header):
        count = int(_name(header[at + 2]))
        at += 3
        for _ in range(count):
            name, _number, form, data = header[at : at + _WRITE_PARTS]
            at += _WRITE_PARTS
            if form is True:
                written: Any = items[taken : taken + int(_name(data))]
                taken += int(_name(data))
            else:
                written = data if form is None else None
            if channel_name(_name(name)) == channel and written is not None:
                yield from written if isinstance(written, list) else [written]


def _name(value: Any) -> str:
    """Return the name that a header stores. The header stores well-known names as numbers."""
    return unpack_name(bytes([value])) if type(value) is int else value if isinstance(value, str) else ""


def _merged(items: list[Any]) -> list[Any]:
    """Merge messages as LangGraph does: a later message with the same id replaces or removes the earlier one."""
    merged: dict[Any, Any] = {}
    for number, item in enumerate(items):
        fields = item.fields if isinstance(item, Constructed) and isinstance(item.fields, dict) else item
        id = fields.get("id") if isinstance(fields, dict) else None
        if isinstance(item, Constructed) and item.short_name == "RemoveMessage":
            if id == _CLEAR_ALL:
                merged.clear()
            else:
                merged.pop(id, None)
        else:
            merged[number if id is None else str(id)] = item
    return [*merged.values()]
