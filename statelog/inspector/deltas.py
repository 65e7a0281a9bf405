"""Messages of LangGraph's delta channels, as deepagents has them: what a checkpoint's state leaves out.

A checkpoint has the value of a delta channel now and then. Between two of these, the value is what tasks have written
since. The branch `writes` of the thread has those writes. `statelog.adapters.langgraph` says how they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit.items import keys_between
from statelog.adapters.langgraph.values.msgpack_items import unpack_name
from statelog.adapters.langgraph.values.names import WRITES_BRANCH, checkpoint_prefix, writes_range
from statelog.display.packed import Constructed, shown_msgpack, unpacked
from statelog.errors import BranchNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Checkpoint, Store
    from statelog.store.views import MapView

COUNTERS = "counters_since_delta_snapshot"
"""The key of metadata that names the delta channels of a checkpoint."""
_ANCESTORS_MAX = 2000
_WRITE_PARTS = 4
_CLEAR_ALL = "__remove_all__"


def delta_channels(checkpoint: Checkpoint) -> list[str]:
    """Return the names of the delta channels whose value the state of a checkpoint lacks."""
    counters = unpacked(checkpoint.metadata.get(COUNTERS))
    return [name for name in counters if name not in checkpoint.state] if isinstance(counters, Mapping) else []


def delta_items(store: Store, checkpoint: Checkpoint, channel: str) -> list[Any]:
    """Return the items of a delta channel at a checkpoint, oldest first. Items of one id are merged as messages are."""
    try:
        head = store.thread(checkpoint.thread_id, branch=WRITES_BRANCH).head
    except BranchNotFoundError:
        head = None
    steps: list[list[Any]] = []
    snapshot: list[Any] = []
    found = checkpoint.parent
    while found is not None and len(steps) < _ANCESTORS_MAX:
        if head is not None:
            steps.append([*_written(head.state, found.id, channel)])
        if channel in found.state:
            snapshot = [unpacked(item) for item in found.state[channel]]
            break
        found = found.parent
    return _merged([*snapshot, *(item for step in reversed(steps) for item in step)])


def _written(writes: MapView, id: str, channel: str) -> Iterator[Any]:
    """Yield the items that tasks have written to a channel after a checkpoint."""
    namespace, _, own = id.rpartition("/")
    for name in keys_between(writes, *writes_range(checkpoint_prefix(namespace, own))):
        stored = writes[name]
        header, items = unpacked(stored), []
        if header is stored and isinstance(stored, Sequence) and len(stored) > 0:  # the items of lists, then the header
            *items, last = (unpacked(part) for part in stored)
            header = shown_msgpack(last) if isinstance(last, bytes) else None
        yield from _of_channel(header, items, channel)


def _of_channel(header: Any, items: list[Any], channel: str) -> Iterator[Any]:
    """Yield what a header of writes has for a channel. The header: None, then of each task its id, path and writes."""
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
            if _name(name) == channel and written is not None:
                yield from written if isinstance(written, list) else [written]


def _name(value: Any) -> str:
    """Return a name of a header, which is a number if it is well-known."""
    return unpack_name(bytes([value])) if type(value) is int else value if isinstance(value, str) else ""


def _merged(items: list[Any]) -> list[Any]:
    """Return messages as LangGraph adds them: a later one of an id replaces the earlier one, or removes it."""
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
