"""A snapshot cut into channels, so that each version stores what is new in it.

A dict becomes a channel for each of its keys, some levels down. A list becomes a channel that is a list. Everything
else is one channel of JSON. The channel `shape` says which there are, and in which order the keys stood.
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
"""In a shape: what a channel holds. A dict stands for a dict."""

_LEVELS_MAX = 5
_KEYS_MAX = 256
"""A dict of more keys is one channel: each channel that there ever was is a name that the store keeps."""

_TRIES_MAX = 3
"""After so many commits of others a version is written whole, which no other commit can be in the way of."""

_PREFIX = items.codec_prefix(CODEC)
_MAJOR_TEXT, _MAJOR_LIST = 3, 4
"""Of CBOR."""

_NAME_BYTES_MAX = 160
_ESCAPED = str.maketrans({"/": "%2F", "%": "%25", "~": "%7E"})


class _Listed(NamedTuple):
    values: list[Any]
    text: str
    """Of the whole list."""
    encode: Callable[[Any], Json]

    def items(self, start: int = 0) -> list[Json]:
        """Return the items from a position on, as they are stored."""
        return [self.encode(value) for value in self.values[start:]]


def cut(
    snapshot: dict[str, Any], *, whole: frozenset[str] = frozenset(), encode: Callable[[Any], Json] = Json.of
) -> dict[str, Any]:
    """Return the channels for a snapshot.

    Args:
        snapshot: the snapshot, which must not change any more.
        whole: its top-level keys that become one channel each.
        encode: a function that returns the JSON of a part.

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
    """Make a version of a thread that holds these channels; of a list that grew, what is new is written.

    Args:
        store: an open one.
        id: of the thread. One that was deleted begins anew.
        channels: what `cut` has returned.
        beside: commits, in the transaction it is given, what belongs to the version; returns the id of the version,
            None for one of the store's making.
        metadata: of the version.

    """
    for _try in range(_TRIES_MAX):
        try:
            change = _Change.since(store.thread(id).head, channels)
            with store.transaction() as transaction:
                _commit(id, change, beside, metadata, transaction)
        except (ConflictError, ExpiredError, ThreadDeletedError):  # from another's version something else differs
            continue
        return
    transact(store, partial(_commit, id, _Whole(channels), beside, metadata))


def add(
    transaction: Transaction,
    id: str,
    channels: Mapping[str, Any],
    *,
    version_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Make a version of a thread, as `put`, within a transaction, which may make several."""
    change = _Change.since(transaction.thread(id).head, channels)
    write(transaction, id, None, lambda thread: change.commit(thread, version_id, metadata))


def _commit(
    id: str,
    change: _Change | _Whole,
    beside: Callable[[Transaction], str | None] | None,
    metadata: Mapping[str, Any] | None,
    transaction: Transaction,
) -> None:
    version_id = None if beside is None else beside(transaction)
    write(transaction, id, None, lambda thread: change.commit(thread, version_id, metadata))


class _Whole(NamedTuple):
    """Every channel, whatever the head is when it is committed."""

    channels: Mapping[str, Any]

    def commit(self, thread: Thread[Any, Any], version_id: str | None, metadata: Mapping[str, Any] | None) -> None:
        gone = {name: reducers.DROP for name in thread.state if name not in self.channels}
        thread.commit({**_stored(self.channels), **gone}, id=version_id, metadata=metadata)


class _Change(NamedTuple):
    """What makes one version of another."""

    before: Checkpoint[Any] | None
    changed: dict[str, Any]
    longer: dict[str, tuple[int, list[Json]]]
    """Of lists: how many items stay, and what comes behind them."""
    gone: list[str]

    @classmethod
    def since(cls, head: Checkpoint[Any] | None, channels: Mapping[str, Any]) -> _Change:
        if head is None:
            return cls(None, _stored(channels), {}, [])
        return cls(head, *_differences(head.state, channels))

    def commit(self, thread: Thread[Any, Any], version_id: str | None, metadata: Mapping[str, Any] | None) -> None:
        if self.before is None:
            thread.commit(self.changed, id=version_id, metadata=metadata, expected_version=-1)
        else:
            thread.edit(self._apply, id=version_id, metadata=metadata, expected_version=self.before, lazy=True)

    def _apply(self, state: Any) -> None:
        """Change the state. It may be that of another version: the commit finds that out after this."""
        for name in self.gone:
            state.pop(name, None)
        state.update(self.changed)
        for name, (same, new) in self.longer.items():
            kept = state.get(name)
            if not isinstance(kept, MutableSequence) or len(kept) < same:
                message = f"channel {name!r} is not what it was"
                raise ConflictError(message)
            if same < len(kept):
                del kept[same:]
            kept.extend(new)


def _stored(channels: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.items() if type(value) is _Listed else value for name, value in channels.items()}


def _differences(
    state: MapView, channels: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[int, list[Json]]], list[str]]:
    """Return channels to set; lists to cut at a length and to go on with, by channel; and channels to remove."""
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
    """Return how many items at the beginning of two lists are the same.

    Most lists have grown, or stayed. Then the text of the old one is how the text of the new one begins.
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
    """Return the snapshot that a state holds; None of an empty state. Inverse of `cut`."""
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
    """Return the channel of a path of keys: it begins with `/`, and one that would be too long ends with a digest."""
    name = "".join("/" + key.translate(_ESCAPED) for key in path)
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) <= _NAME_BYTES_MAX and name.isprintable():
        return name
    shown = "".join(filter(str.isprintable, encoded[:_NAME_BYTES_MAX].decode(errors="ignore")))
    return f"{shown}~{blake2b(encoded, digest_size=20).hexdigest()}"
