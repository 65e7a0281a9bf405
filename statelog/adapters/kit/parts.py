"""Cuts a snapshot into channels, so that each version stores only its changes.

Each key of a dict becomes a channel, down to some depth. A list becomes a list channel. Any other value becomes one
channel of JSON. The channel `shape` has the structure and the order of keys.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import reducers
from statelog.adapters.kit import items
from statelog.adapters.kit.lives import transact, write
from statelog.adapters.kit.ordered import CODEC, Json, read_list, read_value
from statelog.errors import ConflictError, ExpiredError, ThreadDeletedError
from statelog.format import cbor
from statelog.kernels.objects import join_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from statelog import Store, Thread
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.transaction import Transaction
    from statelog.store.views import MapView

__all__ = ["add", "cut", "join", "put"]

SHAPE = "shape"

_LIST, _VALUE = 1, 0
"""How a shape marks a channel: as a list, or as any other value. For a nested dict, it has a dict of such marks."""

_LEVELS_MAX = 5
_KEYS_MAX = 256
"""A dict with more keys becomes one channel, because the store keeps every channel name for ever."""

_TRIES_MAX = 3
"""After this many conflicts a version is written whole, which cannot conflict."""

_PREFIX = items.codec_prefix(CODEC)
_MAJOR_TEXT, _MAJOR_LIST = 3, 4
"""Major types of CBOR."""

_NAME_BYTES_MAX = 160
_ESCAPED = str.maketrans({"/": "%2F", "%": "%25", "~": "%7E"})


class _Listed(NamedTuple):
    values: list[Any]
    text: str
    """The JSON text of the whole list."""
    encode: Callable[[Any], Json]

    def items(self, start: int = 0) -> list[Json]:
        """Return the items from `start` on, each encoded as `Json`."""
        return [self.encode(value) for value in self.values[start:]]


def cut(
    snapshot: dict[str, Any], *, whole: frozenset[str] = frozenset(), encode: Callable[[Any], Json] = Json.of
) -> dict[str, Any]:
    """Return the channels that store a snapshot.

    Args:
        snapshot: the snapshot. It must not change afterwards.
        whole: the top-level keys that become one channel each.
        encode: a function that returns a part of the snapshot as JSON.

    Raises:
        ValueTypeError: a part of the snapshot is not JSON.
    """
    channels: dict[str, Any] = {}

    def shape_of(value: Any, path: tuple[str, ...]) -> Any:
        is_whole = len(path) == 1 and path[0] in whole
        if type(value) is dict and len(path) < _LEVELS_MAX and _has_names(value) and not is_whole:
            return {key: shape_of(member, (*path, key)) for key, member in value.items()}
        is_list = type(value) is list and bool(value) and not is_whole
        text = encode(value)
        channels[_name(path)] = _Listed(value, text.text, encode) if is_list else text
        return _LIST if is_list else _VALUE

    shape = Json.of(shape_of(snapshot, ()))
    return {**channels, SHAPE: shape}


def _has_names(value: dict[Any, Any]) -> bool:
    return len(value) <= _KEYS_MAX and all(type(key) is str for key in value)


def put(
    store: Store,
    id: str,
    channels: Mapping[str, Any],
    beside: Callable[[Transaction], str | None] | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Commit a version of a thread with these channels. For a list that grew, only new items are written.

    Args:
        store: an open store.
        id: the thread id. A deleted thread is re-created.
        channels: the result of `cut`.
        beside: a function that commits related data in the given transaction. It returns the id of the version, or None
            for a generated id.
        metadata: metadata of the version.
    """
    for _try in range(_TRIES_MAX):
        try:
            change = _VersionChange.since(store.thread(id).head, channels)
            with store.transaction() as transaction:
                _commit(id, change, beside, metadata, transaction)
        except (ConflictError, ExpiredError, ThreadDeletedError):  # The head has changed.
            continue
        return
    transact(store, partial(_commit, id, _WholeVersion(channels), beside, metadata))


def add(
    transaction: Transaction,
    id: str,
    channels: Mapping[str, Any],
    *,
    version_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Commit a version of a thread like `put`, within a transaction, which may contain several."""
    change = _VersionChange.since(transaction.thread(id).head, channels)
    write(transaction, id, None, lambda thread: change.commit(thread, version_id, metadata))


def _commit(
    id: str,
    change: _VersionChange | _WholeVersion,
    beside: Callable[[Transaction], str | None] | None,
    metadata: Mapping[str, Any] | None,
    transaction: Transaction,
) -> None:
    version_id = None if beside is None else beside(transaction)
    write(transaction, id, None, lambda thread: change.commit(thread, version_id, metadata))


class _WholeVersion(NamedTuple):
    """A version with every channel, independent of the head."""

    channels: Mapping[str, Any]

    def commit(self, thread: Thread[Any, Any], version_id: str | None, metadata: Mapping[str, Any] | None) -> None:
        gone = {name: reducers.DROP for name in thread.state if name not in self.channels}
        thread.commit({**_stored(self.channels), **gone}, id=version_id, metadata=metadata)


class _VersionChange(NamedTuple):
    """The changes from one version to the next."""

    before: Checkpoint[Any] | None
    changed: dict[str, Any]
    longer: dict[str, tuple[int, list[Json]]]
    """By list channel, how many of its items stay, and the new items after these."""
    gone: list[str]

    @classmethod
    def since(cls, head: Checkpoint[Any] | None, channels: Mapping[str, Any]) -> _VersionChange:
        if head is None:
            return cls(None, _stored(channels), {}, [])
        return cls(head, *_differences(head.state, channels))

    def commit(self, thread: Thread[Any, Any], version_id: str | None, metadata: Mapping[str, Any] | None) -> None:
        if self.before is None:
            thread.commit(self.changed, id=version_id, metadata=metadata, expected_version=-1)
        else:
            thread.edit(self._apply, id=version_id, metadata=metadata, expected_version=self.before, lazy=True)

    def _apply(self, state: Any) -> None:
        """Apply the changes to a state. If it is not the state of `before`, the commit detects this afterwards."""
        for name in self.gone:
            state.pop(name, None)
        state.update(self.changed)
        for name, (same, new) in self.longer.items():
            kept = state.get(name)
            if not isinstance(kept, MutableSequence) or len(kept) < same:
                message = f"channel {name!r} has changed"
                raise ConflictError(message)
            if same < len(kept):
                del kept[same:]
            kept.extend(new)


def _stored(channels: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.items() if type(value) is _Listed else value for name, value in channels.items()}


def _differences(
    state: MapView, channels: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[int, list[Json]]], list[str]]:
    """Return the channels to set, the lists to cut at a length and extend (by channel), and the channels to remove."""
    before = items.read(state)
    changed: dict[str, Any] = {}
    longer: dict[str, tuple[int, list[Json]]] = {}
    for name, value in channels.items():
        stored = before.pop(name, None)
        if type(value) is Json:
            if stored != _item(value):
                changed[name] = value
            continue
        held = [] if stored is None or _is_no_list(stored) else items.read_list(stored)
        same = _count_same(held, value)
        if not same:
            changed[name] = value.items()
        elif same < max(len(held), len(value.values)):
            longer[name] = same, value.items(same)
    return changed, longer, list(before)


def _count_same(held: list[bytes], new: _Listed) -> int:
    """Return the number of equal items at the beginning of two lists.

    Most lists have grown or are unchanged. Then the new text begins with the old text.
    """
    if held and len(held) <= len(new.values):
        text = join_texts(held, _PREFIX)[:-1]
        if new.text.startswith(text) and new.text[len(text)] in ",]":
            return len(held)
    same = 0
    for old, value in zip(held, new.values, strict=False):
        if old != _item(new.encode(value)):
            break
        same += 1
    return same


def _is_no_list(stored: items.Stored) -> bool:
    return isinstance(stored, bytes) and stored[0] >> 5 != _MAJOR_LIST


def _item(value: Json) -> bytes:
    text = value.text.encode()
    return _PREFIX + cbor.head(_MAJOR_TEXT, len(text)) + text


def join(state: MapView) -> dict[str, Any] | None:
    """Return the snapshot in a state, or None for an empty state. This is the inverse of `cut`."""
    shape = read_value(state, SHAPE)
    return None if shape is None else dict(_joined(state, shape, ()))


def _joined(state: MapView, shape: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, kind in shape.items():
        inner = (*path, key)
        if type(kind) is dict:
            yield key, dict(_joined(state, kind, inner))
        else:
            yield key, (read_list if kind == _LIST else read_value)(state, _name(inner))


def _name(path: tuple[str, ...]) -> str:
    """Return the channel name for a path of keys. It begins with `/`. If it is too long, it ends with a digest."""
    name = "".join("/" + key.translate(_ESCAPED) for key in path)
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) <= _NAME_BYTES_MAX and name.isprintable():
        return name
    shown = "".join(filter(str.isprintable, encoded[:_NAME_BYTES_MAX].decode(errors="ignore")))
    return f"{shown}~{blake2b(encoded, digest_size=20).hexdigest()}"
